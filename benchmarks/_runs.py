"""Runs, each a line of JSON, and series of them that can be stopped and gone on with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

Run = dict[str, Any]
"""What makes a run another one, and what came of it."""

file_option = click.option("--file", type=click.Path(path_type=Path), help="Append raw results to it.")
"""For scripts that print a table of what they have just measured."""


def read(file: Path) -> list[Run]:
    """The runs in ``file``, which need not be there."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def by_seed(file: Path, *keys: str) -> dict[tuple[Any, ...], dict[int, Run]]:
    """The runs in ``file`` by what they say of ``keys``, and then by their seed; of equal ones the last."""
    runs: dict[tuple[Any, ...], dict[int, Run]] = {}
    for line in read(file):
        runs.setdefault(tuple(line[key] for key in keys), {})[line["seed"]] = line
    return runs


def append(file: Path | None, run: Run) -> None:
    """Add a line to ``file``, if there is one, with what is known of the machine."""
    if file is not None:
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(run | machine()) + "\n")


def machine() -> Run:
    """What figures depend on, and scripts do not ask for."""
    return {"torch": version("torch"), "cores": os.cpu_count()}


def run_once(file: Path, about: Run, make: Callable[[], Run]) -> None:
    """Add what ``make`` finds to ``file``, unless that has a run ``about`` the same."""
    if not any(about.items() <= line.items() for line in read(file)):
        append(file, about | make())
