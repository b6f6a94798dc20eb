"""``dupt-model predict``: let a fine-tuned model answer."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.errors import UsageError
from dupt_swarm.learning.labelled.files import LabelledFiles
from peers import options
from peers.model.lines import check_apart, write_lines
from peers.screen.words import number, plural

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from dupt_swarm.learning.answers import Answer
    from dupt_swarm.learning.labelled.examples import Examples
    from dupt_swarm.learning.objectives.task_model import TaskModel
    from dupt_swarm.models.saved_model import SavedModel

FORMATS = (".csv", ".jsonl")


@click.command("predict")
@click.argument("model", type=UserPath(path_type=Path))
@click.argument("file", type=UserPath(exists=True, path_type=Path))
@options.columns
@click.option(
    "--out",
    type=UserPath(dir_okay=False, path_type=Path),
    default=None,
    help="File for the answers, .csv or .jsonl. [default: CSV on stdout]",
)
@click.option(
    "--score", "scored", is_flag=True, help="FILE has labels: say on stderr how good the answers are."
)
@options.batch_size
@options.device
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines on stdout.")
@command_errors
def command(
    model: Path,
    file: Path,
    columns: dict[str, str],
    out: Path | None,
    scored: bool,
    batch_size: int,
    device: str,
    as_json: bool,
) -> None:
    """Let MODEL, which `dupt-model finetune` wrote, answer each row of FILE, with probabilities.

    FILE has the columns that the task has; a label is needed for --score only. Answers come in FILE's order.
    """
    if out is not None and out.suffix not in FORMATS:
        raise UsageError(f"{out}: unknown format; let its name end in {' or '.join(FORMATS)}", setting="out")
    check_apart(out, file)
    from dupt_swarm.learning.answers import build_answer
    from dupt_swarm.learning.device import choose_device
    from dupt_swarm.learning.labelled.load import load_examples
    from dupt_swarm.models.saved_model import SavedModel

    where = choose_device(device)
    saved = SavedModel.load(model)
    objective = saved.manifest.objective
    if not objective.supervised:
        translates = saved.manifest.model.kind == "encoder-decoder"
        remedy = (
            "`dupt-model translate` lets it write" if translates else "`dupt-model finetune` teaches it one"
        )
        raise UsageError(f"{model}: this model has learnt no task; {remedy}")
    questions = load_examples(
        LabelledFiles(file, columns), saved.manifest, saved.tokenizer, labelled=scored, keep_empty=True
    )
    _warn(questions)
    logits = _ask(saved, questions, batch_size, where)
    answer = build_answer(objective)
    answers = _answers(answer, logits)
    as_lines = as_json if out is None else out.suffix == ".jsonl"
    write_lines(_as_json(answers) if as_lines else _as_csv(answers), out)
    if scored:
        for name, value in answer.scores(logits, questions.labels).items():
            click.echo(f"{name:9} {number(value)}", err=True)


def _ask(saved: SavedModel, questions: Examples, batch_size: int, where: torch.device) -> Tensor:
    """The model's logits for all questions, [N, outputs] on the CPU."""
    from dupt_swarm.learning.interruptible import parameter_count, sequences_at_once
    from dupt_swarm.learning.objectives.scores import ask

    model: TaskModel = saved.build(where)  # type: ignore[assignment]
    sequences = sequences_at_once(batch_size, parameter_count(model), questions.length_max, where)
    logits, _ = ask(model, questions.in_order(max(1, sequences // questions.sequences_max)), where)
    return logits


def _warn(questions: Examples) -> None:
    if questions.truncated:
        click.echo(f"note: {plural(questions.truncated, 'row')} cut to the model's context", err=True)
    if questions.empty:
        click.echo(f"note: {plural(questions.empty, 'row')} with an empty text", err=True)


def _answers(answer: Answer, logits: Tensor) -> Iterator[dict[str, Any]]:
    """What the model says to each row, with the row's number from 1."""
    for index, row in enumerate(logits.tolist()):
        yield {"row": index + 1, **answer.describe(row)}


def _as_json(answers: Iterator[dict[str, Any]]) -> Iterator[str]:
    for answer in answers:
        yield json.dumps(answer) + "\n"


def _as_csv(answers: Iterator[dict[str, Any]]) -> Iterator[str]:
    """A header, then a line for each answer; each label's probability has a column of its own."""
    for index, answer in enumerate(answers):
        probabilities = answer.pop("probabilities", {})
        if isinstance(probabilities, list):  # of choices, whose number may differ from row to row
            probabilities = {"choices": json.dumps(probabilities)}
        cells = answer | {f"probability of {name}": value for name, value in probabilities.items()}
        if index == 0:
            yield _csv_line(list(cells))
        yield _csv_line(list(cells.values()))


def _csv_line(cells: list[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
