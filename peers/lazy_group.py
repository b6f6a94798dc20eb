"""A program whose commands are modules, imported when they run, so that --help is quick."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from dupt_swarm.command_line.verbosity import with_verbosity


class LazyGroup(click.Group):
    """Knows its commands' names and first lines without importing them."""

    def __init__(self, *, package: str, commands: dict[str, str], **more: Any) -> None:
        """``commands``: names in the order of first use, and first lines; modules in ``package``."""
        super().__init__(**more)
        self._package, self._first_lines = package, commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of first use."""
        del ctx
        return list(self._first_lines)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, from the module of that name."""
        if cmd_name not in self._first_lines:
            return None
        command: click.Command = import_module(f"{self._package}.{cmd_name}").command
        _name_variables(command, f"{ctx.auto_envvar_prefix}_{cmd_name.upper()}")
        return with_verbosity(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in ``--help``."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(self._first_lines.items()))


def _name_variables(command: click.Command, prefix: str) -> None:
    """Have each option set by a variable named like it: click names it like the parameter."""
    for option in command.params:
        flag = max(option.opts, key=len).lstrip("-").replace("-", "_")
        if isinstance(option, click.Option) and flag != option.name:
            option.envvar = f"{prefix}_{flag.upper()}"
