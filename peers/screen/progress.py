"""Bars and tables of what takes long: a download, an evaluation, a fine-tuning."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dupt_swarm.node.messages import Downloading
from peers.screen import words
from peers.screen.log import Log
from peers.screen.words import number

if TYPE_CHECKING:
    from dupt_swarm.learning.finetuning.loop import Moment


@contextmanager
def show_download(what: str) -> Iterator[Callable[[Downloading], None]]:
    """Gives the function that hears how far the download of ``what`` is; off a terminal it writes lines."""
    if not sys.stderr.isatty():
        yield Log().downloading
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[about]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None, about="looking for peers that hold it")

        def show(now: Downloading) -> None:
            about = words.describe_download(now)
            progress.update(task, completed=now.bytes_done, total=now.bytes_total, about=about)

        yield show


@contextmanager
def show_finetuning() -> Iterator[Callable[[Moment], None]]:
    """Gives the function that hears how far it is."""
    if not sys.stderr.isatty():
        log = Log()
        yield lambda now: log.say_at_times(f"{_describe(now)}  {now.done} of {now.total}")
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks = {
            doing: progress.add_task(doing, total=None, visible=doing == "training")
            for doing in ("training", "validating")
        }

        def show(now: Moment) -> None:
            progress.update(tasks["validating"], visible=now.doing == "validating")
            progress.update(tasks[now.doing], completed=now.done, total=now.total, description=_describe(now))

        yield show


@contextmanager
def show_evaluation(total: int) -> Iterator[Callable[[float], None]]:
    """Gives the function that hears how many of ``total`` bytes are done; nothing is shown off a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console, hidden = Console(stderr=True), not sys.stderr.isatty()
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task("evaluating", total=total)
        yield lambda done: progress.update(task, completed=done)


def _describe(now: Moment) -> str:
    return f"epoch {now.epoch}  {now.doing}  loss {number(now.loss)}"


def table_of_epochs(epochs: Sequence[dict[str, Any]], best: int) -> list[str]:
    """A heading, and a line for each epoch; the best one has a star."""
    scores = list(epochs[0]["scores"])
    headings = ["epoch", "training loss", "validation loss", *scores]
    rows = [
        [
            f"{epoch['number']}{'*' if epoch['number'] == best else ' '}",
            *map(number, (epoch["train_loss"], epoch["loss"], *(epoch["scores"][name] for name in scores))),
        ]
        for epoch in epochs
    ]
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in (headings, *rows)
    ]
