"""`dupt-model finetune` and `predict`, as people start them."""

from __future__ import annotations

import csv
import io
import json
import signal
from pathlib import Path

import pytest

from tests.support.programs import dupt_model, start, wait_for_line
from tests.support.saved_models import write_model
from tests.support.tasks import two_languages, write_lines

QUICK = ("--epochs", "2", "--learning-rate", "3e-3", "--batch-size", "8", "--device", "cpu")

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, and German and English words in two formats, under other names than ours."""
    write_model(tmp_path / "base", model={"init_std": 0.05})
    for name, count in (("train", 160), ("valid", 24)):
        with (tmp_path / f"{name}.csv").open("w", encoding="utf-8") as stream:
            table = csv.writer(stream)
            table.writerow(["review", "language"])
            table.writerows([row["text"], row["label"]] for row in two_languages(count, count))
    return tmp_path


def options(folder: Path) -> list[str]:
    files = [f"--{name}={folder / name}.csv" for name in ("train", "valid")]
    columns = ["--column", "text=review", "--column", "label=language"]
    return [str(folder / "base"), "--task", "classification", *files, *columns, "--out", str(folder / "out")]


def test_it_learns_and_answers(folder: Path) -> None:
    """A table of epochs on stdout; the result answers with probabilities, and says how good it is.

    No label is needed; rows with an empty or a long text are answered too, with a note.
    """
    learned = dupt_model("finetune", *options(folder), *QUICK)
    assert learned.returncode == 0, learned.stderr
    heading, *epochs = learned.stdout.splitlines()
    assert " ".join(heading.split()) == "epoch training loss validation loss accuracy f1 matthews"
    assert [line.split()[0].rstrip("*") for line in epochs] == ["1", "2"]
    assert sum("*" in line for line in epochs) == 1
    assert "labels de, en, on cpu" in learned.stderr and "training: 160 examples" in learned.stderr

    asked = dupt_model(
        "predict", str(folder / "out"), str(folder / "valid.csv"), "--score",
        *("--column", "text=review", "--column", "label=language", "--device", "cpu"),
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    answers = list(csv.DictReader(io.StringIO(asked.stdout)))
    assert [answer["row"] for answer in answers] == [str(row) for row in range(1, 25)]
    assert set(answers[0]) == {"row", "label", "probability of de", "probability of en"}
    right = sum(
        answer["label"] == row["label"] for answer, row in zip(answers, two_languages(24, 24), strict=True)
    )
    scores = dict(line.split() for line in asked.stderr.splitlines())
    assert float(scores["accuracy"]) == pytest.approx(right / 24, abs=1e-4)
    assert right > 18

    questions = write_lines(
        folder / "questions.jsonl", [{"text": "the bear"}, {"text": ""}, {"text": "Brücke " * 50}]
    )
    out = folder / "answers.jsonl"
    asked = dupt_model("predict", str(folder / "out"), str(questions), "--out", str(out))
    assert (asked.returncode, asked.stdout) == (0, ""), asked.stderr
    assert "1 row cut to the model's context" in asked.stderr and "1 row with an empty text" in asked.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["row"] for line in lines] == [1, 2, 3]
    assert all(sum(line["probabilities"].values()) == pytest.approx(1) for line in lines)


def test_told_to_stop_it_goes_on_later(folder: Path) -> None:
    """SIGTERM ends it with exit code 0 and a saved state; the same command goes on from there."""
    long = [*options(folder), *QUICK, "--epochs", "8"]
    with start("finetune", *long, program="dupt-model") as process:
        wait_for_line(process, "training  loss")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "stopped; the same command goes on" in errors
    assert not (folder / "out").exists()
    again = dupt_model("finetune", *long, "--json")
    assert again.returncode == 0, again.stderr
    report = json.loads(again.stdout)
    assert len(report["epochs"]) == 8


def test_errors_name_the_option(folder: Path) -> None:
    """A wrong column, a model without a task and an unknown format are said with what to do."""
    wrong = dupt_model("finetune", *options(folder), "--column", "text=reviews")
    assert wrong.returncode == 2 and "given twice" in wrong.stderr
    unnamed = dupt_model("finetune", *options(folder)[:5], "--out", str(folder / "out"))
    assert unnamed.returncode == 1
    assert "no column `label`: it has `review`, `language`" in unnamed.stderr
    assert "(--column)" in unnamed.stderr
    untaught = dupt_model("predict", str(folder / "base"), str(folder / "valid.csv"))
    assert untaught.returncode == 2 and "`dupt-model finetune` teaches it one" in untaught.stderr
    for out in ("a.txt", str(folder / "valid.csv")):
        other = dupt_model("predict", str(folder / "base"), str(folder / "valid.csv"), "--out", out)
        assert other.returncode == 2 and "(--out)" in other.stderr
