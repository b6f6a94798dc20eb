"""A new task is one declaration, and a new objective one class: all else follows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from click.testing import CliRunner
from pydantic import ValidationError

from dupt_swarm.learning.export.examples import answer
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.labelled.load import load_examples
from dupt_swarm.learning.objectives import OBJECTIVES, build_model, kind_of
from dupt_swarm.learning.objectives.language import Language
from dupt_swarm.learning.objectives.start import task_manifest
from dupt_swarm.manifest import Objective, tables
from dupt_swarm.tasks import TASKS, Task
from dupt_swarm.tasks.task import SpecialTokens
from tests.support.saved_models import small_tokenizer
from tests.support.tasks import write_lines
from tests.support.tiny import tiny_manifest


class OddOneOut(Task):
    """Which of three words does not go with the others: a toy, declared as each task is."""

    kind = "odd-one-out"
    columns = ("a", "b", "c")
    texts_at_once = 1
    answers = ("choice",)
    hub_name = "multiple-choice"
    input = "Input, for each word: `<|start|>` word `<|extract|>`."
    example = 'torch.cat([score(state(word)) for word in ("cat", "dog", "spoon")])'

    def sequences(self, texts: list[list[int]], special: SpecialTokens) -> list[list[int]]:
        return [special.around(text) for text in texts]


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Objective:
    """The toy's objective, after it was entered in the table of tasks."""
    monkeypatch.setitem(TASKS, OddOneOut.kind, OddOneOut())
    return Objective(kind=OddOneOut.kind)


def test_a_manifest_may_name_it(odd: Objective) -> None:
    """Its kind is allowed, with labels only if its answers are; what nobody declared is refused."""
    manifest = task_manifest(tiny_manifest(), odd)
    assert manifest.name == "test-odd-one-out"
    assert manifest.from_bytes(manifest.canonical_bytes()) == manifest
    with pytest.raises(ValidationError, match="takes no labels"):
        Objective(kind=odd.kind, labels=["x", "y"])
    with pytest.raises(ValidationError, match=r'no objective "even"; use one of lm, .*, odd-one-out'):
        Objective(kind="even")


def test_a_model_learns_it(odd: Objective, tmp_path: Path) -> None:
    """Its examples are read by its columns, become sequences of its own, and give a loss."""
    rows = [{"a": "one", "b": "two", "c": "spoon", "label": 2}, {"a": "sky", "b": "1", "c": "2", "label": 0}]
    tokenizer = small_tokenizer()
    files = LabelledFiles(write_lines(tmp_path / "toy.jsonl", rows))
    manifest = task_manifest(tiny_manifest(tokenizer={"vocabulary_size": tokenizer.vocabulary_size}), odd)
    tokens, lengths, labels = load_examples(files, manifest, tokenizer).batch([0, 1])
    assert tokens.shape[:2] == (2, 3) and labels.tolist() == [2, 0]
    model = build_model(manifest)
    loss = model(tokens, lengths, labels)
    loss.backward()
    assert torch.isfinite(loss)


@contextmanager
def read_anew(name: str) -> Iterator[ModuleType]:
    """A module that reads the table of tasks when it is imported; whoever imports it later gets another."""
    before = sys.modules.pop(name, None)
    parent, _, child = name.rpartition(".")
    try:
        yield import_module(name)
    finally:
        del sys.modules[name]
        delattr(sys.modules[parent], child)
        if before is not None:
            sys.modules[name] = before
            setattr(sys.modules[parent], child, before)


def test_commands_offer_it(odd: Objective) -> None:
    """`dupt-peer new` and `dupt-model finetune` have it among their tasks."""
    for name in ("peers.new", "peers.model.finetune"):
        with read_anew(name) as module:
            assert odd.kind in CliRunner().invoke(module.command, ["--help"]).output.replace("\n", "")


def test_the_help_names_its_columns(odd: Objective) -> None:
    """`dupt-model finetune --help` says what a table of its examples has, and of others what is no text."""
    with read_anew("peers.model.finetune") as module:
        text = " ".join(CliRunner().invoke(module.command, ["--help"]).output.split())
    assert f"; {odd.kind} has a, b, c and label (an index from 0). " in text
    assert "similarity has first, second and label (a name or a number); " in text
    assert "has context, choices (a list, in JSON) and label" in text


def test_the_card_shows_how_to_ask_it(odd: Objective) -> None:
    """The code of a model's card asks for its answer in its own words, and prints what a choice is."""
    code = answer(odd)
    assert OddOneOut.example in code
    assert code.endswith("print(answer.softmax(0).tolist())")


def test_an_objective_is_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is named in the manifest and has a class, models are built and data opened by that class."""

    class Backwards(Language):
        """Language, but another class."""

    monkeypatch.setitem(tables.MODEL_OF, "backwards", "decoder")
    monkeypatch.setitem(OBJECTIVES, "backwards", Backwards)
    manifest = tiny_manifest(objective={"kind": "backwards"})
    assert kind_of(manifest) is Backwards
    assert isinstance(build_model(manifest), torch.nn.Module)
