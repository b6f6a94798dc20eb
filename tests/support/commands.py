"""The programs, and each of their commands as one types it."""

from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

import monitor.cli
import peers.cli
import peers.model.cli

PROGRAMS: dict[str, click.Command] = {
    "dupt-peer": peers.cli.main,
    "dupt-model": peers.model.cli.main,
    "dupt-monitor": monitor.cli.main,
}


def new(run: Path, *arguments: str) -> str:
    """`dupt-peer new` in this process: its exit code, and what it says on stderr."""
    done = CliRunner().invoke(peers.cli.main, ["new", str(run), *arguments])
    return f"{done.exit_code}: {done.stderr}"


def commands_of(program: str) -> Iterator[click.Context]:
    """A program and all commands below it; `command_path` is what one types."""
    prefix = program.replace("-", "_").upper()
    yield from _below(click.Context(PROGRAMS[program], info_name=program, auto_envvar_prefix=prefix))


def _below(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(group := context.command, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None, name
            yield from _below(click.Context(command, context, info_name=name))
