"""The exported tokenizer, as `transformers` loads it, gives our ids for any text."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dupt_swarm.errors import ManifestError
from dupt_swarm.learning.export.export import choose_format, export
from dupt_swarm.learning.export.hugging_face import TASK_TOKENS, write_tokenizer
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.tokenizer import END_OF_TEXT, Tokenizer
from tests.learning.export.test_agreement import POST, PRE, TOKENIZER, learned_as
from tests.support.foreign_tokenizers import KEEPING
from tests.support.foreign_tokenizers import KINDS as FOREIGN
from tests.support.hugging_face import load_tokenizer
from tests.support.tiny import tiny_manifest

AWKWARD = [
    *(END_OF_TEXT, "<|", *TASK_TOKENS, "|>", " ", "  ", "\t", "\0", "\x1c", "\r", "\n", "\r\n", "'s", "é"),
    *(
        "e\u0301",
        "\u2028",
        "\ufeff",
        "\u202e",
        "🦊",
        "👩‍👩‍👧",
        "狐",
        "ية",
        "क्षि",
        "Ġ",
        "�",
        "a",
        "\U0010ffff",
    ),
]
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "openai-gpt": (POST, {}),
    "gpt2": (PRE, {}),
    "openai-gpt-task": (POST, {"kind": "entailment", "labels": ["no", "yes"]}),
    "gpt2-task": (PRE, {"kind": "multiple-choice"}),
}


@cache
def loaded(kind: str) -> Any:
    """The tokenizer of such an export, once."""
    shape, objective = KINDS[kind]
    learned = learned_as(shape, **objective)
    with TemporaryDirectory() as folder:
        export(Path(folder), learned, choose_format(None, learned.manifest.model))
        return load_tokenizer(Path(folder))


def check(theirs: Any, text: str) -> None:
    """Same ids, by each of the ways to ask, and the same text back."""
    ids = TOKENIZER.encode(text)
    assert theirs(text)["input_ids"] == theirs.encode(text) == ids
    assert theirs([text, "a"])["input_ids"] == [ids, TOKENIZER.encode("a")]
    assert theirs.decode(ids) == text


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50)
@given(text=st.text())
def test_any_text(kind: str, text: str) -> None:
    """Any Unicode text has our ids, and comes back."""
    check(loaded(kind), text)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50)
@given(parts=st.lists(st.sampled_from(AWKWARD)))
def test_awkward_text(kind: str, parts: list[str]) -> None:
    """So has text that spells special tokens, and white space, control and combining characters."""
    check(loaded(kind), "".join(parts))


@given(ids=st.lists(st.integers(0, TOKENIZER.vocabulary_size - 1), max_size=20))
def test_any_ids(ids: list[int]) -> None:
    """Any ids decode alike, incomplete characters and special tokens included."""
    assert loaded("gpt2").decode(ids) == TOKENIZER.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens(kind: str, tmp_path: Path) -> None:
    """`<|endoftext|>` begins and ends a document; a task's tokens have the rows after the vocabulary."""
    theirs = loaded(kind)
    assert (theirs.bos_token_id, theirs.eos_token_id) == (TOKENIZER.end_of_text, TOKENIZER.end_of_text)
    special = TASK_TOKENS if kind.endswith("task") else ()
    rows = [TOKENIZER.vocabulary_size + number for number in range(len(special))]
    assert theirs.convert_tokens_to_ids(list(special)) == rows
    assert len(theirs) == TOKENIZER.vocabulary_size + len(special)
    assert set(theirs.all_special_ids) == {TOKENIZER.end_of_text, *rows}
    assert theirs.decode([0, *rows, *TOKENIZER.encode("a")], skip_special_tokens=True) == "a"
    assert theirs.model_max_length == 16
    theirs.save_pretrained(tmp_path)  # whoever trains it on saves it so
    check(load_tokenizer(tmp_path), f"{END_OF_TEXT}{TASK_TOKENS[0]} a")


def test_a_language_model_keeps_its_swarms_tokenizer(tmp_path: Path) -> None:
    """tokenizer.json is the swarm's own, so that its hash can be compared with the manifest's."""
    learned = learned_as(PRE)
    write_tokenizer(tmp_path, TOKENIZER, learned.manifest)
    assert (tmp_path / "tokenizer.json").read_bytes() == TOKENIZER.to_bytes()


@pytest.mark.parametrize("kind", FOREIGN)
def test_another_models_tokenizer(kind: str, tmp_path: Path) -> None:
    """It goes out as it came in; `transformers` gives our ids, begins texts as we do, and ends them so."""
    data, end = FOREIGN[kind]()
    tokenizer = Tokenizer.from_foreign(data, end)
    shape = PRE | {"vocabulary_size": tokenizer.vocabulary_size + 7}
    manifest = tiny_manifest(
        tokenizer.sha256, tokenizer.vocabulary_size, model=shape, tokenizer={"end_of_text": end}
    )
    learned = replace(learned_as(PRE), manifest=manifest, model=build_model(manifest), tokenizer=tokenizer)
    export(tmp_path, learned, choose_format(None, manifest.model))
    assert (tmp_path / "tokenizer.json").read_bytes() == data
    for name in ("config.json", "generation_config.json"):
        config = json.loads((tmp_path / name).read_text())
        assert (config["bos_token_id"], config["eos_token_id"]) == (tokenizer.begin_of_text, end)
    theirs = load_tokenizer(tmp_path)
    assert (theirs.bos_token_id, theirs.eos_token_id) == (tokenizer.begin_of_text, end)
    assert len(theirs) == tokenizer.vocabulary_size
    for text in ("a", " The bear\n walks", f"12 {tokenizer.name_of(end)} 🦊", "".join(AWKWARD)):
        ids = tokenizer.encode(text)
        assert theirs(text)["input_ids"] == [*tokenizer.prefix, *ids]
        if kind in KEEPING:
            assert theirs.decode(ids) == text


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_task_with_another_models_tokenizer(kind: str, tmp_path: Path) -> None:
    """A task's tokens follow the model's; text alone has our ids."""
    tokenizer = Tokenizer.from_foreign(*FOREIGN[kind]())
    size = tokenizer.vocabulary_size
    task = {"kind": "entailment", "labels": ["no", "yes"]}
    write_tokenizer(
        tmp_path,
        tokenizer,
        tiny_manifest(vocabulary_size=size, model={"vocabulary_size": size + 3}, objective=task),
    )
    theirs = load_tokenizer(tmp_path)
    assert theirs.convert_tokens_to_ids(list(TASK_TOKENS)) == [size, size + 1, size + 2]
    for text in ("a", " The bear", f"<s>{TASK_TOKENS[0]}"):
        assert theirs.encode(text, add_special_tokens=False) == tokenizer.encode(text)


def test_a_vocabulary_with_a_task_token(tmp_path: Path) -> None:
    """A vocabulary that somebody gave the name of a task's token is refused: ids would be wrong."""
    content = json.loads(TOKENIZER.to_bytes())
    vocabulary, merges = content["model"]["vocab"], content["model"]["merges"]
    vocabulary[TASK_TOKENS[1]] = vocabulary.pop("".join(merges.pop()))
    odd = Tokenizer.from_foreign(json.dumps(content).encode(), 0)
    with pytest.raises(ManifestError, match=r"has one of <.* already"):
        write_tokenizer(tmp_path, odd, learned_as(PRE, kind="multiple-choice").manifest)
