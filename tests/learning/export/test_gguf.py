"""A .gguf has the model's weights and tokenizer; that llama.cpp runs it is shown in tests/system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from dupt_swarm.errors import ManifestError, UsageError
from dupt_swarm.learning.export.gguf import LLAMA3, QWEN2, pre_of, vocabulary_of
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.models.exporting import export
from dupt_swarm.models.saved_model import SavedModel
from dupt_swarm.presets import load_preset
from tests.support.saved_models import TEXT, small_tokenizer, write_model

SMALL = {"context_length": 16, "layers": 2, "heads": 4, "width": 64, "hidden_width": 96}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {**load_preset("llama", "tiny")["model"], **SMALL, "kv_heads": 2},
    "gpt2": {**load_preset("gpt2", "tiny")["model"], **SMALL},
    "command-r": {**load_preset("palm", "tiny")["model"], **SMALL, "kv_heads": 1},
}


def model_of(folder: Path, shape: dict[str, Any], **changes: Any) -> SavedModel:
    shape = {key: value for key, value in shape.items() if key != "vocabulary_size"}
    return write_model(folder, model={**shape, "dropout": 0.0}, **changes)


def exported(model: SavedModel, folder: Path, type: str = "f32") -> Any:
    assert export(model, folder, "gguf", type).name == "gguf"
    assert {path.name for path in folder.iterdir()} == {"model.gguf", "README.md"}
    return gguf.GGUFReader(folder / "model.gguf")


def value(reader: Any, key: str) -> Any:
    return reader.get_field(key).contents()


@pytest.mark.parametrize("architecture", SHAPES)
def test_all_weights_are_there(tmp_path: Path, architecture: str) -> None:
    """Each number of the model once, in fp32 the same bits; and what llama.cpp must know of its shape."""
    model = model_of(tmp_path / "model", SHAPES[architecture])
    reader = exported(model, tmp_path / "out")
    ours = torch.cat([each.flatten() for each in model.build(torch.device("cpu")).state_dict().values()])
    theirs = np.concatenate([tensor.data.flatten() for tensor in reader.tensors])
    tied = model.manifest.model.tie_embeddings
    size = (
        len(ours) if not tied else sum(each.numel() for each in model.build(torch.device("cpu")).parameters())
    )
    assert theirs.size == size
    assert np.array_equal(np.unique(theirs), np.unique(ours.numpy()))
    assert value(reader, "general.architecture") == architecture
    for key, expected in (("context_length", 16), ("block_count", 2), ("embedding_length", 64)):
        assert value(reader, f"{architecture}.{key}") == expected
    assert value(reader, "dupt_swarm.state_digest") == model.state.digest
    assert value(reader, "dupt_swarm.round") == 0


@pytest.mark.parametrize(("type", "worst"), [("f16", 1e-3), ("q8_0", 1e-2)])
def test_smaller_types_are_close(tmp_path: Path, type: str, worst: float) -> None:
    """Matrices are rounded, vectors are not."""
    model = model_of(tmp_path / "model", SHAPES["llama"])
    exact, rounded = (exported(model, tmp_path / name, name) for name in ("f32", type))
    for one, other in zip(exact.tensors, rounded.tensors, strict=True):
        values = gguf.quants.dequantize(other.data, other.tensor_type)
        assert one.name == other.name
        if len(one.shape) == 1:
            assert np.array_equal(one.data, values)
        else:
            assert np.abs(one.data - values).max() <= worst * np.abs(one.data).max()
    sizes = [(tmp_path / name / "model.gguf").stat().st_size for name in ("f32", type)]
    assert sizes[1] < sizes[0]


def test_the_tokenizer_is_there(tmp_path: Path) -> None:
    """Tokens by id, merges in order, what a text begins after, and names for rows that no token has."""
    tokenizer = small_tokenizer()
    rows = tokenizer.vocabulary_size + 3
    model = model_of(tmp_path / "model", SHAPES["llama"] | {"vocabulary_size": rows})
    reader = exported(model, tmp_path / "out")
    tree = json.loads(tokenizer.to_bytes())
    tokens = value(reader, "tokenizer.ggml.tokens")
    assert {token: index for index, token in enumerate(tokens)}.items() >= tree["model"]["vocab"].items()
    assert value(reader, "tokenizer.ggml.merges") == [" ".join(pair) for pair in tree["model"]["merges"]]
    assert value(reader, "tokenizer.ggml.pre") == "gpt-2"
    assert value(reader, "tokenizer.ggml.bos_token_id") == value(reader, "tokenizer.ggml.eos_token_id") == 0
    assert value(reader, "tokenizer.ggml.token_type")[0] == gguf.TokenType.CONTROL


def test_added_tokens_have_their_types(tmp_path: Path) -> None:
    """What is added and not special is text, but not cut; what ends a text is special in any case."""
    tree = json.loads(small_tokenizer().to_bytes())
    [end] = tree["added_tokens"]
    known = small_tokenizer().vocabulary_size
    more = [end | {"id": known, "content": "<x>"}, end | {"id": known + 1, "content": "    "}]
    tree["added_tokens"] = [end | {"special": False}, more[0], more[1] | {"special": False}]
    tokenizer = Tokenizer.from_foreign(json.dumps(tree).encode(), 0)
    shape = SHAPES["llama"] | {"vocabulary_size": known + 3, "dropout": 0.0}
    model = write_model(tmp_path / "model", tokenizer, model=shape)
    types = value(exported(model, tmp_path / "out"), "tokenizer.ggml.token_type")
    kinds = gguf.TokenType
    assert types[:2] == [kinds.CONTROL, kinds.NORMAL]
    assert types[known:] == [kinds.CONTROL, kinds.USER_DEFINED, kinds.UNUSED]


def test_rows_without_a_token_are_padding() -> None:
    """Models have more rows so that matrices have handy shapes."""
    tokenizer = small_tokenizer()
    known = tokenizer.vocabulary_size
    found = vocabulary_of(tokenizer, known + 2)
    assert found.tokens[known:] == [f"[PAD{known}]", f"[PAD{known + 1}]"]
    assert found.unused == range(known, known + 2)


def byte_level(**more: Any) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True, **more}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        ([byte_level()], "gpt-2"),
        ([{"type": "Digits", "individual_digits": True}, byte_level()], "smollm"),
        ([split(LLAMA3), byte_level(use_regex=False)], "llama-bpe"),
        ([split(QWEN2), byte_level(use_regex=False)], "qwen2"),
        ([byte_level(add_prefix_space=True)], ""),
        ([split("."), byte_level(use_regex=False)], ""),
        ([split(LLAMA3) | {"behavior": "Removed"}, byte_level(use_regex=False)], ""),
        ([{"type": "Metaspace"}], ""),
        ([{"type": "Digits", "individual_digits": False}, byte_level()], ""),
        ([], ""),
    ],
)
def test_how_text_is_cut_has_a_name_there_or_none(steps: list[dict[str, Any]], name: str) -> None:
    """By what it is, not by what the model is called."""
    assert pre_of({"type": "Sequence", "pretokenizers": steps}) == name
    if len(steps) == 1:
        assert pre_of(steps[0]) == name
    assert pre_of(None) == ""


def changed(**changes: Any) -> Tokenizer:
    tree = json.loads(small_tokenizer().to_bytes())
    return Tokenizer.from_foreign(json.dumps(tree | changes).encode(), 0)


def test_an_older_tokenizer_json_is_the_same() -> None:
    """Files such as GPT-2's do not name the model, and have each pair of the merges in one string."""
    ours = small_tokenizer()
    model = json.loads(ours.to_bytes())["model"]
    older = {"vocab": model["vocab"], "merges": [" ".join(pair) for pair in model["merges"]]}
    assert older["merges"]
    tokenizer = changed(model=older)
    assert tokenizer.to_bytes() != ours.to_bytes()
    assert vocabulary_of(tokenizer, 400) == vocabulary_of(ours, 400)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"normalizer": {"type": "NFC"}}, r"rewrites text before it cuts it \(NFC\)"),
        ({"pre_tokenizer": byte_level(add_prefix_space=True)}, "llama.cpp has no name for"),
    ],
)
def test_a_tokenizer_without_counterpart_is_refused(changes: dict[str, Any], said: str) -> None:
    """Other ids would come of the same text: the model would read something else than it has learnt."""
    tokenizer = changed(**changes)
    assert tokenizer.encode(TEXT)
    with pytest.raises(ManifestError, match=said):
        vocabulary_of(tokenizer, tokenizer.vocabulary_size)


def test_what_has_no_counterpart_is_refused_by_name(tmp_path: Path) -> None:
    """A block of other parts, a task, types in other formats; and nothing is left behind."""
    odd = model_of(tmp_path / "odd", SHAPES["llama"] | {"qk_norm": True})
    with pytest.raises(
        UsageError, match="cannot be exported as gguf: as llama, the format has qk_norm = false"
    ):
        export(odd, tmp_path / "out", "gguf")
    untied = model_of(tmp_path / "untied", SHAPES["command-r"] | {"tie_embeddings": False})
    with pytest.raises(UsageError, match=r"as cohere, llama\.cpp has tie_embeddings = true"):
        export(untied, tmp_path / "out", "gguf")
    task = write_model(
        tmp_path / "task",
        objective={"kind": "classification", "labels": ["a", "b"]},
        model={"vocabulary_size": small_tokenizer().vocabulary_size + 3},
    )
    with pytest.raises(UsageError, match="has learnt a task"):
        export(task, tmp_path / "out", "gguf")
    fine = model_of(tmp_path / "fine", SHAPES["llama"])
    with pytest.raises(UsageError, match="only the format gguf has types"):
        export(fine, tmp_path / "out", "llama", "f16")
    with pytest.raises(UsageError, match="there is no type q4"):
        export(fine, tmp_path / "out", "gguf", "q4")
    assert not (tmp_path / "out").exists()
