"""The progress of a download on stderr, for programs that show nothing else: a bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from peers.screen import words
from peers.screen.log import Log

if TYPE_CHECKING:
    from dupt_swarm.node.messages import Downloading


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
