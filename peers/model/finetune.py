"""``dupt-model finetune``: teach a model a task from labelled examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.learning.finetuning.settings import FinetuningSettings
from dupt_swarm.learning.labelled.files import LABEL, LabelledFiles
from dupt_swarm.tasks import TASKS, Task
from dupt_swarm.tasks.task import AnswerKind
from peers import options
from peers.interruption import Interruption
from peers.screen.log import Log
from peers.screen.progress import show_finetuning, table_of_epochs
from peers.screen.words import plural

if TYPE_CHECKING:
    from dupt_swarm.learning.finetuning.loop import Moment
    from dupt_swarm.learning.labelled.examples import Examples
    from dupt_swarm.models.fine_tuning import Finetuner

FILE = UserPath(exists=True, path_type=Path)
LABELS: dict[AnswerKind, str] = {"label": "a name", "score": "a number", "choice": "an index from 0"}


def columns_of(task: Task) -> str:
    """What a table of its examples has, in words."""
    forms = {name: f" ({form})" for name, form in task.forms.items()}
    inputs = ", ".join(name + forms.get(name, "") for name in task.columns)
    return f"{task.kind} has {inputs} and {LABEL} ({' or '.join(LABELS[kind] for kind in task.answers)})"


COLUMNS = f"Columns: {'; '.join(map(columns_of, TASKS.values()))}. --column names them otherwise."


@click.command("finetune", epilog=COLUMNS)
@click.argument("model", type=UserPath(path_type=Path))
@click.option("--task", "kind", type=click.Choice(TASKS), required=True)
@click.option("--train", type=FILE, required=True, help="Labelled examples: .csv, .jsonl (or .gz), .parquet.")
@click.option("--valid", type=FILE, required=True, help="Others, by which the best epoch is chosen.")
@click.option(
    "--out", type=UserPath(path_type=Path), required=True, help="Folder for the result, a model like MODEL."
)
@options.columns
@click.option("--labels", default="", metavar="A,B,…", help="In this order. [default: those in --train]")
@click.option(
    "--lm-weight",
    type=options.Numbers(0, 100),
    default=None,
    help="Weight of the language model's loss beside the task's (lambda); 0: without, and faster. "
    "[default: 0.5; of an encoder 0]",
)
@click.option("--epochs", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--learning-rate", type=options.Numbers(0, 100, min_open=True), default=6.25e-5, show_default=True
)
@click.option(
    "--batch-size", type=click.IntRange(1), default=32, show_default=True, help="Examples of an update."
)
@click.option("--seed", type=click.IntRange(0, (1 << 31) - 1), default=0, show_default=True)
@options.device
@click.option(
    "--threads",
    type=click.IntRange(1),
    default=None,
    help="Compute with so many threads on a CPU; other numbers round differently. "
    "[default: as many as there are cores that others leave at the start]",
)
@options.as_json
@command_errors
def command(model: Path, labels: str, as_json: bool, **chosen: Any) -> None:
    """Teach MODEL a task, and write the result to a new folder.

    Killed or stopped, the same command goes on where it was. `dupt-model predict --score` measures the
    result on further examples.
    """
    log = Log()
    with Interruption() as interruption:
        from dupt_swarm.models.fine_tuning import Finetuner, LabelledTask
        from dupt_swarm.models.saved_model import load_model

        columns = chosen["columns"]
        task = options.pick(
            LabelledTask,
            chosen
            | {
                "train": LabelledFiles(chosen["train"], columns),
                "valid": LabelledFiles(chosen["valid"], columns),
                "labels": tuple(filter(None, map(str.strip, labels.split(",")))),
            },
        )
        settings = options.pick(FinetuningSettings, chosen)
        finetuner = Finetuner(
            load_model(model), task, chosen["out"], settings, chosen["device"], chosen["threads"]
        )
        _announce(finetuner, task.kind, log)
        done = _run(finetuner, interruption)
    if done:
        _print(finetuner, chosen["out"], log, as_json)
    else:
        log.say("stopped; the same command goes on from here")
    interruption.exit_if_received()


def _announce(finetuner: Finetuner, kind: str, log: Log) -> None:
    """What will be learnt from what; and what of the examples could not be used as it is."""
    objective = finetuner.manifest.objective
    answers = f"labels {', '.join(objective.labels)}" if objective.labels else f"a {objective.answer}"
    log.say(f"{kind}, {answers}, on {finetuner.device}")
    for name, examples in (("training", finetuner.train), ("validation", finetuner.valid)):
        log.say(f"{name}: {plural(len(examples), 'example')}{_shortcomings(examples)}")


def _shortcomings(examples: Examples) -> str:
    parts = []
    if examples.truncated:
        parts.append(f"{examples.truncated} cut to the model's context")
    if examples.empty:
        parts.append(f"{plural(examples.empty, 'row')} with an empty text left out")
    return "".join(f", {part}" for part in parts)


def _run(finetuner: Finetuner, interruption: Interruption) -> bool:
    """Whether it came to its end."""
    from dupt_swarm.learning.interruptible import Abandoned

    stopped: list[bool] = []
    interruption.on_stop(lambda: stopped.append(True))
    with show_finetuning() as show:

        def on_moment(now: Moment) -> None:
            if stopped:
                raise Abandoned
            show(now)

        return finetuner.run(on_moment)


def _print(finetuner: Finetuner, out: Path, log: Log, as_json: bool) -> None:
    report = finetuner.report
    assert report is not None
    if as_json:
        click.echo(json.dumps(report))
    else:
        for line in table_of_epochs(report["epochs"], report["best_epoch"]):
            click.echo(line)
    log.say(f"wrote {out}, as it was after epoch {report['best_epoch']}")
