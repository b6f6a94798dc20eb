"""Labelled examples on the command line: the tasks, and what a column is called in the files."""

from __future__ import annotations

import click

TASKS = ("classification", "entailment", "similarity", "multiple-choice")


def parse_columns(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """``--column NAME=COLUMN``, repeated, as a dict."""
    del context, parameter
    columns: dict[str, str] = {}
    for value in values:
        name, equals, column = value.partition("=")
        if not (name and equals and column):
            raise click.BadParameter(f"{value!r} is not NAME=COLUMN, such as text=review")
        if name in columns:
            raise click.BadParameter(f"`{name}` is given twice")
        columns[name] = column
    return columns
