"""Paths as options and arguments."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import click

from dupt_swarm.disk.home import expanded

SEPARATOR = ";"  # of several in an environment variable, since paths have spaces and weights colons


class UserPath(click.Path):
    """A path that may begin with a `~`, which shells leave in ``--state-dir=~/peer``."""

    envvar_list_splitter: ClassVar[str] = SEPARATOR

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """The path, with the home folder in place of it."""
        path = os.fspath(value)
        return super().convert(expanded(path) if path.startswith("~") else path, param, ctx)
