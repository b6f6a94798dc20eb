"""A saved model learns a task and becomes another saved model, which learns and answers in turn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dupt_swarm.errors import CheckpointError, CorpusError, DuptError, UsageError
from dupt_swarm.learning.finetuning.loop import Moment
from dupt_swarm.learning.finetuning.settings import FinetuningSettings
from dupt_swarm.learning.interruptible import Abandoned
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.objectives import build_model, decoder_of
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.models.fine_tuning import FINETUNING_FILE, Finetuner, LabelledTask
from dupt_swarm.models.saved_model import SavedModel
from tests.support.saved_models import write_model
from tests.support.tasks import two_languages, write_lines

SETTINGS = FinetuningSettings(epochs=2, learning_rate=1e-3, batch_size=8)


@pytest.fixture
def base(tmp_path: Path) -> SavedModel:
    return write_model(tmp_path / "base")


@pytest.fixture
def task(tmp_path: Path) -> LabelledTask:
    train, valid = (
        LabelledFiles(write_lines(tmp_path / f"{name}.jsonl", two_languages(count, count)))
        for name, count in (("train", 24), ("valid", 8))
    )
    return LabelledTask("classification", train, valid)


def stop_after(count: int) -> Any:
    """Abandons when it is called for the ``count`` + 1st time."""
    seen: list[Moment] = []

    def look(moment: Moment) -> None:
        seen.append(moment)
        if len(seen) > count:
            raise Abandoned

    return look


def test_the_result_is_a_model(tmp_path: Path, base: SavedModel, task: LabelledTask) -> None:
    """A folder that loads like any other, with the task in its manifest, and how it was made beside it."""
    finetuner = Finetuner(base, task, tmp_path / "out", SETTINGS, "cpu")
    assert finetuner.report is None
    assert finetuner.run()
    saved = SavedModel.load(tmp_path / "out")
    assert saved.manifest == finetuner.manifest
    assert saved.manifest.name == "test-classification"
    assert saved.manifest.objective.labels == ["de", "en"]
    assert saved.tokenizer.sha256 == base.tokenizer.sha256
    assert (saved.state.round, saved.state.swarm_tokens) == (base.state.round, base.state.swarm_tokens)
    assert saved.state.buffers == {} and saved.described
    model = saved.build(torch.device("cpu"))
    assert isinstance(model, TaskModel) and not model.training
    report = json.loads((tmp_path / "out" / FINETUNING_FILE).read_text())
    assert report == finetuner.report
    assert report["base"]["state_digest"] == base.state.digest
    assert [epoch["number"] for epoch in report["epochs"]] == [1, 2]
    assert report["examples"]["train"] == {"examples": 24, "truncated": 0, "left_out": 0}
    assert not (tmp_path / "out.unfinished").exists()


def test_a_stopped_one_goes_on(tmp_path: Path, base: SavedModel, task: LabelledTask) -> None:
    """Stopped and started again it writes the same bits; with other settings it is refused, and says why."""
    assert Finetuner(base, task, tmp_path / "whole", SETTINGS, "cpu", threads=2).run()
    out = tmp_path / "part"
    assert not Finetuner(base, task, out, SETTINGS, "cpu", threads=2).run(stop_after(2))
    assert not out.exists() and (tmp_path / "part.unfinished").is_dir()
    other = Finetuner(base, task, out, replace(SETTINGS, learning_rate=2e-3), "cpu")
    with pytest.raises(UsageError, match=r"with learning rate 0\.001 instead of 0\.002; remove it"):
        other.run()
    goes_on = Finetuner(base, task, out, SETTINGS, "cpu")
    assert goes_on.run()
    assert goes_on.report is not None and goes_on.report["threads"] == 2  # as it was begun
    whole, part = SavedModel.load(tmp_path / "whole"), SavedModel.load(out)
    assert whole.state.digest == part.state.digest


def test_a_finished_one_is_not_done_again(tmp_path: Path, base: SavedModel, task: LabelledTask) -> None:
    """The same once more is there already; anything else in its place is refused before any work."""
    out = tmp_path / "out"
    assert Finetuner(base, task, out, SETTINGS, "cpu").run()
    again = Finetuner(base, task, out, SETTINGS, "cpu")
    assert again.report is not None
    assert again.run(stop_after(0))
    with pytest.raises(UsageError, match="with seed 0 instead of 1"):
        Finetuner(base, task, out, replace(SETTINGS, seed=1), "cpu")
    with pytest.raises(UsageError, match="already there"):
        Finetuner(base, task, base.folder, SETTINGS, "cpu")


def test_a_name_that_is_too_long(tmp_path: Path, base: SavedModel, task: LabelledTask) -> None:
    """Where nothing can be written nothing is begun."""
    with pytest.raises(UsageError, match=r"cannot be read \(.*File name too long.*; choose another folder"):
        Finetuner(base, task, tmp_path / (300 * "x"), SETTINGS, "cpu")


def test_a_full_disk(tmp_path: Path, base: SavedModel, task: LabelledTask) -> None:
    """Whichever file does not fit, the error names folder and remedy; with space it goes on at the end."""
    out = tmp_path / "out"
    real = Path.write_text

    def fail(path: Path, *arguments: Any, **more: Any) -> int:
        if path.name == FINETUNING_FILE:
            raise OSError(28, "No space left on device")
        return real(path, *arguments, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "write_text", fail)
        with pytest.raises(
            CheckpointError, match=r"out: the model could not be written \(No space left on d"
        ):
            Finetuner(base, task, out, SETTINGS, "cpu").run()
    assert not out.exists()
    assert Finetuner(base, task, out, SETTINGS, "cpu").run()
    assert SavedModel.load(out).state.digest != base.state.digest


def test_two_at_once(tmp_path: Path, base: SavedModel, task: LabelledTask) -> None:
    """A second process on the same folder is refused, and the first one goes on."""
    second = Finetuner(base, task, tmp_path / "out", SETTINGS, "cpu")
    found: list[DuptError] = []

    def disturb(_: Moment) -> None:
        with pytest.raises(UsageError, match="another process is writing there") as caught:
            second.run()
        found.append(caught.value)

    assert Finetuner(base, task, tmp_path / "out", SETTINGS, "cpu").run(disturb)
    assert found


@pytest.mark.usefixtures("without_locks")
def test_a_disk_without_locks_stops_nobody(tmp_path: Path, base: SavedModel, task: LabelledTask) -> None:
    """Whoever has only that learns there, and keeps others out by other means."""
    assert Finetuner(base, task, tmp_path / "out", SETTINGS, "cpu").run()


def test_one_that_another_process_has_finished(tmp_path: Path, base: SavedModel, task: LabelledTask) -> None:
    """Started before that, and at it only afterwards: it is done, and not to be learnt again for nothing."""
    second = Finetuner(base, task, tmp_path / "out", SETTINGS, "cpu")
    first = Finetuner(base, task, tmp_path / "out", SETTINGS, "cpu")
    assert first.run()
    assert second.run(stop_after(0))
    assert second.report == first.report
    assert not second._progress.folder.exists()


def test_a_fine_tuned_model_learns_on(tmp_path: Path, base: SavedModel, task: LabelledTask) -> None:
    """Its decoder and special tokens go on to the next task; with the same labels its head does too."""
    assert Finetuner(base, task, tmp_path / "first", SETTINGS, "cpu").run()
    first = SavedModel.load(tmp_path / "first")
    still = replace(SETTINGS, epochs=1, learning_rate=1e-12)
    assert Finetuner(first, task, tmp_path / "second", still, "cpu").run()
    torch.testing.assert_close(
        SavedModel.load(tmp_path / "second").state.anchor, first.state.anchor, rtol=0, atol=1e-6
    )
    rows = [{"premise": "the", "hypothesis": "bear", "label": label} for label in ("no", "yes")]
    files = LabelledFiles(write_lines(tmp_path / "pairs.jsonl", rows))
    entailment = LabelledTask("entailment", files, files)
    assert Finetuner(first, entailment, tmp_path / "third", still, "cpu").run()
    third = SavedModel.load(tmp_path / "third")
    assert third.manifest.name == "test-entailment"
    ours, theirs = (decoder_of(each.build(torch.device("cpu"))) for each in (third, first))
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("train", "valid", "changes", "message"),
    [
        (
            [("x", "a"), ("y", "b")],
            [("z", "c")],
            {},
            "valid.jsonl:1: label 'c' is unknown: there are 'a', 'b'",
        ),
        (
            [("x", "a"), ("y", "a")],
            [("z", "a")],
            {},
            "each of the 2 rows has the label 'a'; there is nothing",
        ),
        ([("x", "a")] * 2, [("z", "a")], {"labels": ("a", "b")}, "each of the 2 rows has the label 'a'"),
        (
            [("x", "a"), ("y", "c")],
            [("z", "a")],
            {"labels": ("a", "b")},
            "train.jsonl:2: label 'c' is unknown",
        ),
        ([("x", "a"), ("", "b")], [("z", "a")], {}, "each of the 1 rows has the label 'a'"),
        ([], [("z", "a")], {}, "train.jsonl: there are no rows"),
        ([("x", "a"), ("y", "b")], [], {}, "valid.jsonl: there are no rows"),
    ],
)
def test_bad_examples(
    tmp_path: Path,
    base: SavedModel,
    train: list[tuple[str, str]],
    valid: list[tuple[str, str]],
    changes: dict[str, Any],
    message: str,
) -> None:
    """Examples that nothing can be learnt from are refused before anything is written."""
    first, second = (
        LabelledFiles(
            write_lines(tmp_path / f"{name}.jsonl", [{"text": text, "label": label} for text, label in rows])
        )
        for name, rows in (("train", train), ("valid", valid))
    )
    task = LabelledTask("classification", first, second, **changes)
    with pytest.raises(CorpusError, match=message):
        Finetuner(base, task, tmp_path / "out", SETTINGS, "cpu")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "train.jsonl", "valid.jsonl"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ("a", "a")}, "classification: each label needs a name of its own"),
        ({"labels": ("a",)}, "needs at least two labels"),
        ({"kind": "similarity", "labels": ("a",)}, "needs at least two labels, or none for scores"),
        ({"kind": "multiple-choice", "labels": ("a", "b")}, "takes no labels; leave them out"),
        ({"lm_weight": -1.0}, "greater than or equal to 0"),
    ],
)
def test_bad_tasks(
    tmp_path: Path, base: SavedModel, task: LabelledTask, changes: dict[str, Any], message: str
) -> None:
    """A task that cannot be is refused."""
    with pytest.raises(UsageError, match=message):
        Finetuner(base, replace(task, **changes), tmp_path / "out", SETTINGS, "cpu")


def test_a_models_own_weights_are_used(tmp_path: Path, base: SavedModel, task: LabelledTask) -> None:
    """What is fine-tuned is the saved model, not a fresh one."""
    still = replace(SETTINGS, epochs=1, learning_rate=1e-12)
    assert Finetuner(base, task, tmp_path / "out", still, "cpu").run()
    saved = SavedModel.load(tmp_path / "out")
    ours = decoder_of(saved.build(torch.device("cpu"))).h.state_dict()
    fresh = decoder_of(build_model(saved.manifest)).h.state_dict()
    theirs = decoder_of(base.build(torch.device("cpu"))).h.state_dict()
    name = "0.mlp.c_fc.weight"
    torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-6)
    assert not torch.allclose(ours[name], fresh[name], atol=1e-2)
