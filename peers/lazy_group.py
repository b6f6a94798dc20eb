"""A program whose commands are modules, imported when they run, so that --help is quick.

Each command has ``-v`` besides: what it and its node do, line by line on stderr.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from dupt_swarm.command_line.exit_codes import exit_codes
from dupt_swarm.command_line.streams import prepare_streams

FORMAT = "%(asctime)s %(message)s"
OURS = ("dupt_swarm", "peers", "monitor")


class LazyGroup(click.Group):
    """Knows its commands' names and first lines without importing them."""

    def __init__(
        self,
        *,
        package: str,
        commands: Mapping[str, str],
        together: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Nothing is imported yet.

        Args:
            package: has a module for each command, named like it, where it is called `command`.
            commands: names in the order of first use, and first lines.
            together: the modules of commands that share one, where each is called by its name.
            more: for click.
        """
        super().__init__(**more)
        self._package, self._first_lines, self._together = package, commands, together or {}

    def main(self, *args: Any, **more: Any) -> Any:
        """Run the program, as click does."""
        prepare_streams()
        return super().main(*args, **more)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of first use."""
        del ctx
        return list(self._first_lines)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, from its module."""
        if cmd_name not in self._first_lines:
            return None
        shared = self._together.get(cmd_name)
        with exit_codes():  # Ctrl-C may come now
            module = import_module(f"{self._package}.{shared or cmd_name}")
        command: click.Command = getattr(module, cmd_name if shared else "command")
        _name_variables(command, f"{ctx.auto_envvar_prefix}_{cmd_name.upper()}")
        return with_verbosity(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in ``--help``."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(self._first_lines.items()))


def _name_variables(command: click.Command, prefix: str) -> None:
    """Have each option set by a variable named like it: click names it like the parameter."""
    for name, sub in command.commands.items() if isinstance(command, click.Group) else ():
        _name_variables(sub, f"{prefix}_{name.upper()}")
    for option in command.params:
        flag = max(option.opts, key=len).lstrip("-").replace("-", "_")
        if isinstance(option, click.Option) and flag != option.name:
            option.envvar = f"{prefix}_{flag.upper()}"


def with_verbosity(command: click.Command) -> click.Command:
    """``command`` with the option ``-v``; without it, only warnings appear on stderr."""
    if _VERBOSE not in command.params:
        command.params.append(_VERBOSE)
    return command


class _StderrHandler(logging.Handler):
    """Writes to whatever `sys.stderr` is at that moment: a screen that redraws itself takes its place."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


def _configure(_context: click.Context, _parameter: click.Parameter, verbose: bool) -> None:
    if verbose:
        handler = _StderrHandler()
        handler.setFormatter(logging.Formatter(FORMAT, "%H:%M:%S"))
        logging.getLogger().addHandler(handler)
        for name in OURS:
            logging.getLogger(name).setLevel(logging.INFO)


_VERBOSE = click.Option(
    ["-v", "--verbose"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_configure,
    help="Say on stderr what this peer does, line by line.",
)
