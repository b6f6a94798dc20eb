"""One file for llama.cpp, and so for Ollama, LM Studio and others: model.gguf.

The tensors go through Hugging Face's names, from which the library `gguf` knows llama.cpp's. What those call
`llama`, `gpt2` and `cohere` has a counterpart there; a tokenizer has one if it is a byte-level BPE that cuts
text before the merges in a way that llama.cpp has a name for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dupt_swarm.errors import FileError, ManifestError, UsageError, install
from dupt_swarm.learning.architectures import ARCHITECTURES
from dupt_swarm.learning.architectures.architecture import Architecture
from dupt_swarm.learning.architectures.names import Row, neighbours
from dupt_swarm.learning.export import examples
from dupt_swarm.learning.export.learned import Learned
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.tokenizer_json.opening import parse
from dupt_swarm.manifest import Manifest, Model

if TYPE_CHECKING:
    from gguf import GGUFWriter

FILE = "model.gguf"
TYPES = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "q8_0": "MOSTLY_Q8_0"}
"""The types of matrices, and what `gguf` calls a file with such."""
THEIRS = {"llama": "LLAMA", "gpt2": "GPT2", "cohere": "COMMAND_R"}
"""What `gguf` calls the architectures."""

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True)
class Gguf:
    """A `Format`: one file with everything.

    Attributes:
        type: of the matrices, one of `TYPES`; vectors stay f32.
    """

    type: str = "f16"
    name = library = "gguf"

    def problem(self, model: Model) -> str:
        """See `Format.problem`."""
        if model.kind != "decoder":
            return f"llama.cpp continues texts with a decoder, and the model is an {model.kind}"
        problems = {name: _problem(name, model) for name in THEIRS}
        if not all(problems.values()):
            return ""
        return "; ".join(f"as {name}, {problem}" for name, problem in problems.items())

    def write(self, folder: Path, learned: Learned) -> None:
        """See `Format.write`.

        Raises:
            UsageError: the model has learnt a task.
            ManifestError: its tokenizer has no counterpart there.
            FileError: the library is not installed.
        """
        if learned.manifest.objective.supervised:
            raise UsageError(
                "the model has learnt a task, for whose answers there is no place in a .gguf; export it as "
                "safetensors",
                setting="format",
            )
        try:
            import gguf
        except ImportError as error:
            raise FileError(f"{FILE}: writing it needs gguf; {install('gguf')}") from error
        model = learned.manifest.model
        architecture = next(ARCHITECTURES[name] for name in THEIRS if not _problem(name, model))
        writer = gguf.GGUFWriter(folder / FILE, gguf.MODEL_ARCH_NAMES[_arch(architecture)])
        vocabulary = vocabulary_of(learned.tokenizer, model.vocabulary_size)
        _write_about(writer, learned)
        _write_shape(writer, architecture, model)
        writer.add_file_type(getattr(gguf.LlamaFileType, TYPES[self.type]))
        vocabulary.write(writer)
        for name, values in _tensors(architecture, learned):
            _add(writer, name, values, self.type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def load_line(self, folder: str, _manifest: Manifest) -> str:
        return f"from llama_cpp import Llama; model = Llama({f'{folder}/{FILE}'!r})"

    def example(self, manifest: Manifest) -> str:
        return examples.gguf(FILE, manifest.model)


def _problem(name: str, model: Model) -> str:
    """Why a model of this shape cannot be that architecture there, or an empty string."""
    if name == "cohere" and not model.tie_embeddings:
        return "llama.cpp has tie_embeddings = true, the model false"
    return ARCHITECTURES[name].problem(model)


def _arch(architecture: Architecture) -> Any:
    import gguf

    return getattr(gguf.MODEL_ARCH, THEIRS[architecture.name])


def _write_about(writer: GGUFWriter, learned: Learned) -> None:
    """Where it comes from; the card beside it says more."""
    origin = learned.origin
    writer.add_name(origin.swarm_id)
    writer.add_description(f"trained by the swarm {origin.swarm_id} with dupt_swarm, round {origin.round}")
    writer.add_string("dupt_swarm.swarm_id", origin.swarm_id)
    writer.add_uint64("dupt_swarm.round", origin.round)
    writer.add_uint64("dupt_swarm.swarm_tokens", origin.swarm_tokens)
    writer.add_string("dupt_swarm.state_digest", learned.fine_tuned_digest or origin.state_digest)
    writer.add_string("dupt_swarm.manifest", learned.manifest.to_toml())


def _write_shape(writer: GGUFWriter, architecture: Architecture, model: Model) -> None:
    writer.add_context_length(model.context_length)
    writer.add_embedding_length(model.width)
    writer.add_block_count(model.layers)
    writer.add_feed_forward_length(model.hidden_width)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.key_value_heads)
    writer.add_vocab_size(model.vocabulary_size)
    if architecture.name == "llama":
        writer.add_layer_norm_rms_eps(model.norm_epsilon)
    else:
        writer.add_layer_norm_eps(model.norm_epsilon)
    if architecture.name == "cohere":
        writer.add_logit_scale(1.0)
    if model.positions == "rotary":
        writer.add_rope_dimension_count(model.head_width)
        writer.add_rope_freq_base(model.rotary_base)


def _tensors(architecture: Architecture, learned: Learned) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """The parameters under llama.cpp's names, [out, in], fp32.

    Raises:
        ManifestError: one has no name there.
    """
    import gguf

    model = learned.manifest.model
    names = gguf.get_tensor_name_map(_arch(architecture), model.layers)
    arranged = replace(architecture.names, rows=tuple(map(_arranged, architecture.names.rows)))
    for name, tensor in arranged.to_theirs(learned.backbone.state_dict(), model).items():
        known = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if known is None:
            raise ManifestError(
                f"the parameter {name} has no name in a .gguf; export the model as safetensors"
            )
        yield known, tensor.float().numpy()


def _arranged(row: Row) -> Row:
    """As llama.cpp has it: it knows no `Conv1D`, and turns neighbours of a query or key together."""
    return replace(row, conv1d=False, order=neighbours if len(row.modules) > 1 else None)


def _add(writer: GGUFWriter, name: str, values: np.ndarray[Any, Any], type: str) -> None:
    """Vectors and positions stay f32, as llama.cpp expects them."""
    import gguf

    kinds = gguf.GGMLQuantizationType
    if type == "f32" or values.ndim < 2 or name.startswith("position_embd"):
        writer.add_tensor(name, values)
    elif type == "q8_0" and values.shape[-1] % gguf.GGML_QUANT_SIZES[kinds.Q8_0][0] == 0:
        quantized = gguf.quants.quantize(values, kinds.Q8_0)
        writer.add_tensor(name, quantized, raw_dtype=kinds.Q8_0)
    else:
        writer.add_tensor(name, values.astype(np.float16))


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer as llama.cpp has it.

    Attributes:
        pre: what it calls the way in which text is cut before the merges.
        tokens: by id, as the tokenizer spells them; what the model has besides is padding.
        special: ids of tokens that are no text.
        added: ids of tokens that are looked for in text before it is cut, and spelled as they are.
        unused: ids of that padding.
        merges: pairs with a space between them, in order.
        begin: the id before a text.
        end: the id after a document.
    """

    pre: str
    tokens: list[str]
    special: frozenset[int]
    added: frozenset[int]
    unused: range
    merges: list[str]
    begin: int
    end: int

    def write(self, writer: GGUFWriter) -> None:
        """Into the file."""
        import gguf

        kinds = gguf.TokenType
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(self.tokens)
        types = dict.fromkeys(range(len(self.tokens)), kinds.NORMAL)
        types |= dict.fromkeys(self.added, kinds.USER_DEFINED)
        types |= dict.fromkeys(self.special, kinds.CONTROL) | dict.fromkeys(self.unused, kinds.UNUSED)
        writer.add_token_types(list(types.values()))
        writer.add_token_merges(self.merges)
        writer.add_bos_token_id(self.begin)
        writer.add_eos_token_id(self.end)
        writer.add_add_bos_token(True)  # as all texts in training had it
        writer.add_add_space_prefix(False)


def vocabulary_of(tokenizer: Tokenizer, rows: int) -> Vocabulary:
    """The tables of a tokenizer, for a model with so many ``rows`` in its embedding.

    Raises:
        ManifestError: there is no counterpart; says of what.
    """
    tree = json.loads(parse(tokenizer.to_bytes()).to_str())  # older files lack what the library fills in
    if tree["model"]["type"] != "BPE" or tree["model"].get("byte_fallback"):
        raise _no_counterpart("is no byte-level BPE")
    if tree.get("normalizer") is not None:
        raise _no_counterpart(f"rewrites text before it cuts it ({tree['normalizer'].get('type')})")
    pre = pre_of(tree.get("pre_tokenizer"))
    if not pre:
        raise _no_counterpart("cuts text before the merges in a way that llama.cpp has no name for")
    added = {each["id"]: each["content"] for each in tree["added_tokens"]}
    by_id = {index: token for token, index in tree["model"]["vocab"].items()} | added
    known = tokenizer.vocabulary_size
    merges = (" ".join(pair) if isinstance(pair, list) else pair for pair in tree["model"]["merges"])
    return Vocabulary(
        pre=pre,
        tokens=[by_id.get(index, f"[PAD{index}]") for index in range(rows)],
        special=tokenizer.special_ids,
        added=frozenset(added) - tokenizer.special_ids,
        unused=range(known, rows),
        merges=list(merges),
        begin=tokenizer.begin_of_text,
        end=tokenizer.end_of_text,
    )


def pre_of(pre_tokenizer: Mapping[str, Any] | None) -> str:
    """What llama.cpp calls this way of cutting text; an empty string: nothing."""
    match _steps(pre_tokenizer):
        case [("ByteLevel", True)]:
            return "gpt-2"
        case [("Digits", _), ("ByteLevel", True)]:
            return "smollm"
        case [("Split", pattern), ("ByteLevel", False)]:
            return {LLAMA3: "llama-bpe", QWEN2: "qwen2"}.get(str(pattern), "")
    return ""


def _steps(pre_tokenizer: Mapping[str, Any] | None) -> list[tuple[str, object]]:
    """Each by its type, and what matters of it; one that does something else has another type."""
    steps = (pre_tokenizer or {}).get("pretokenizers", [pre_tokenizer])
    found: list[tuple[str, object]] = []
    for step in steps:
        match step:
            case {"type": "ByteLevel", "add_prefix_space": False}:
                found.append(("ByteLevel", step.get("use_regex", True)))
            case {"type": "Digits", "individual_digits": True}:
                found.append(("Digits", True))
            case {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"Regex": pattern}}:
                found.append(("Split", pattern))
            case _:
                found.append(("another", None))
    return found


def _no_counterpart(reason: str) -> ManifestError:
    return ManifestError(
        f"the tokenizer {reason}: it has no counterpart in a .gguf; export the model as safetensors"
    )
