"""Folders that `transformers` loads: weights, config.json, and its tokenizer's files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.processors import TemplateProcessing

from dupt_swarm.errors import ManifestError
from dupt_swarm.learning.architectures.architecture import Architecture
from dupt_swarm.learning.export import examples
from dupt_swarm.learning.export.learned import Learned, write_json, write_tensors
from dupt_swarm.learning.tokenizer import EncoderTokens, Tokenizer
from dupt_swarm.manifest import Manifest, Model

TASK_TOKENS = ("<|start|>", "<|delimiter|>", "<|extract|>")
"""In the order of their rows in W_e; section 3.3 of Radford et al. 2018."""


def write_tokenizer(folder: Path, tokenizer: Tokenizer, manifest: Manifest) -> None:
    """Write tokenizer.json, the swarm's own unless there is a task, and tokenizer_config.json.

    Raises:
        ManifestError: the vocabulary has the name of one of the task's tokens, or an encoder's no [MASK].
    """
    if manifest.model.bidirectional:
        content, special = _with_template(tokenizer), _special_of_encoder(tokenizer)
        inputs = ["input_ids", "token_type_ids", "attention_mask"]
    else:
        tokens = TASK_TOKENS[: manifest.task_tokens]
        content, special = _with_tokens(tokenizer, tokens), _special_of_decoder(tokenizer, tokens)
        # OpenAI GPT would add the embeddings of token_type_ids, as if they were tokens.
        inputs = ["input_ids", "attention_mask"]
    (folder / "tokenizer.json").write_bytes(content)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        **({} if tokenizer.surplus else {"add_prefix_space": False}),
        "clean_up_tokenization_spaces": False,
        "model_input_names": inputs,
        "model_max_length": manifest.model.context_length,
    }
    write_json(folder / "tokenizer_config.json", config)


def _special_of_decoder(tokenizer: Tokenizer, of_task: Sequence[str]) -> dict[str, Any]:
    return {
        # Of ours it is the same: a document begins after the end of another.
        "bos_token": tokenizer.name_of(tokenizer.begin_of_text),
        "eos_token": tokenizer.name_of(tokenizer.end_of_text),
        "additional_special_tokens": list(of_task),
        "split_special_tokens": True,
    }


def _special_of_encoder(tokenizer: Tokenizer) -> dict[str, Any]:
    """[MASK] is not split: it stands for what is masked in a text."""
    tokens = tokenizer.encoder_tokens
    named = {
        "cls_token": tokens.first,
        "sep_token": tokens.last,
        "mask_token": tokens.mask,
        "pad_token": tokens.last if tokens.pad is None else tokens.pad,
        **({} if tokenizer.unknown is None else {"unk_token": tokenizer.unknown}),
    }
    return {name: tokenizer.name_of(index) for name, index in named.items()}


def _with_template(tokenizer: Tokenizer) -> bytes:
    """tokenizer.json, the swarm's own if its template puts a text, or two, as an encoder has seen them."""
    tokens = tokenizer.encoder_tokens
    backend = tokenizers.Tokenizer.from_str(tokenizer.to_bytes().decode())
    if tokenizer.template == ([tokens.first], [tokens.last]) and _marks_pairs(backend, tokens):
        return tokenizer.to_bytes()
    first, last = tokenizer.name_of(tokens.first), tokenizer.name_of(tokens.last)
    backend.post_processor = TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(first, tokens.first), (last, tokens.last)],
    )
    return backend.to_str(pretty=True).encode()


def _marks_pairs(backend: tokenizers.Tokenizer, tokens: EncoderTokens) -> bool:
    """Whether its template puts two texts as an encoder has seen them, the second in segment 1."""
    first, second = (backend.encode(text, add_special_tokens=False).ids for text in ("a", "b"))
    pair = backend.encode("a", "b")
    expected = [(index, 0) for index in (tokens.first, *first, tokens.last)]
    expected += [(index, 1) for index in (*second, tokens.last)]
    return list(zip(pair.ids, pair.type_ids, strict=True)) == expected


def _with_tokens(tokenizer: Tokenizer, special: tuple[str, ...]) -> bytes:
    if not special:
        return tokenizer.to_bytes()
    backend = tokenizers.Tokenizer.from_str(tokenizer.to_bytes().decode())
    backend.add_special_tokens(list(special))
    rows = [tokenizer.vocabulary_size + number for number in range(len(special))]
    if [backend.token_to_id(token) for token in special] != rows:
        raise ManifestError(
            f"the tokenizer's vocabulary has one of {', '.join(special)} already; "
            "export the model as safetensors"
        )
    return backend.to_str(pretty=True).encode()


@dataclass(frozen=True)
class HuggingFace:
    """The format of one architecture; see `Format`."""

    architecture: Architecture
    library = "transformers"

    @property
    def name(self) -> str:
        return self.architecture.name

    def problem(self, model: Model) -> str:
        return self.architecture.problem(model)

    def write(self, folder: Path, learned: Learned) -> None:
        state = learned.backbone.state_dict()
        if learned.head is not None and self.has_head(learned.manifest):
            state |= {f"head.{name}": tensor for name, tensor in learned.head.state_dict().items()}
        elif learned.head is not None:
            write_tensors(folder / "head.safetensors", learned.head.state_dict())
        theirs = self.architecture.names.to_theirs(state, learned.manifest.model)
        if self.has_head(learned.manifest) and (left_out := self.architecture.language_head):
            theirs = {name: tensor for name, tensor in theirs.items() if not name.startswith(left_out)}
        write_tensors(folder / "model.safetensors", theirs)
        write_tokenizer(folder, learned.tokenizer, learned.manifest)
        if learned.manifest.model.bidirectional:
            # An id that is not there would be 0 there, and its embedding would not learn.
            edges = {"pad_token_id": learned.tokenizer.encoder_tokens.pad}
        else:
            begin, end = learned.tokenizer.begin_of_text, learned.tokenizer.end_of_text
            edges = {"bos_token_id": begin, "eos_token_id": end}
            write_json(folder / "generation_config.json", edges | {"pad_token_id": end})
        write_json(folder / "config.json", self.config(learned.manifest) | edges)

    def has_head(self, manifest: Manifest) -> bool:
        """Whether W_y has a place there: of a decoder, heads of other tasks have one output, or no bias."""
        return manifest.objective.kind in self.architecture.heads

    def load_line(self, folder: str, manifest: Manifest) -> str:
        loader = self.architecture.heads.get(manifest.objective.kind, self.architecture.loader)
        return (
            f"from transformers import AutoTokenizer, {loader} as Model; "
            f"model, tokenizer = Model.from_pretrained({folder!r}), AutoTokenizer.from_pretrained({folder!r})"
        )

    def example(self, manifest: Manifest) -> str:
        head = self.architecture.heads.get(manifest.objective.kind, "")
        if manifest.model.bidirectional:
            supervised = manifest.objective.supervised
            return examples.encoded(manifest.objective, head) if supervised else examples.masked()
        if head:
            return examples.choice(head)
        if manifest.objective.supervised:
            return examples.answer(manifest.objective)
        return examples.continuation(manifest.model)

    def config(self, manifest: Manifest) -> dict[str, Any]:
        """The content of config.json."""
        model, objective = manifest.model, manifest.objective
        return {
            "architectures": [self.architecture.heads.get(objective.kind, self.architecture.class_name)],
            "model_type": self.name,
            **self.architecture.settings(model),
            **(_of_encoders(manifest) if model.bidirectional else _of_decoders(manifest)),
            "dtype": "float32",
            **_labels(objective.labels),
        }


def _of_decoders(manifest: Manifest) -> dict[str, Any]:
    return {
        "summary_first_dropout": manifest.objective.head_dropout,
        "bos_token_id": manifest.tokenizer.end_of_text,  # unless the tokenizer has a template
        "eos_token_id": manifest.tokenizer.end_of_text,
    }


def _of_encoders(manifest: Manifest) -> dict[str, Any]:
    objective = manifest.objective
    return {"classifier_dropout": objective.head_dropout} if objective.supervised else {}


def _labels(labels: list[str]) -> dict[str, Any]:
    if not labels:
        return {}
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
