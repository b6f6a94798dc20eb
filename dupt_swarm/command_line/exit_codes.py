"""How all commands turn an error or an interruption into a message and an exit code."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import click

from dupt_swarm.command_line.printable import printable
from dupt_swarm.errors import DuptError

INTERRUPTED = 130
# What helps where the system refuses something.
REMEDIES = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "check its permissions"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free space there"),
}

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def exit_codes() -> Iterator[None]:
    """Within it a `DuptError` ends the program with its exit code, Ctrl-C with 130.

    So does what the system refuses to do with a path, with 1: merely to ask whether it is there may fail. The
    message goes to stderr, after ``error:``. click's own usage errors pass, and exit with 2.
    """
    try:
        yield
    except DuptError as error:
        click.echo(f"error: {message(error)}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is None or error.errno == errno.EPIPE:
            raise
        click.echo(f"error: {message(error)}", err=True)
        sys.exit(DuptError.exit_code)
    except (KeyboardInterrupt, click.Abort):
        # click would say "Aborted!" and exit with 1, as for a failure.
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)


def message(error: DuptError | OSError) -> str:
    """What to tell the user of ``error``: fit for a terminal, with the options that its remedy is about."""
    if isinstance(error, OSError):
        remedy = REMEDIES.get(error.errno or 0, "check the path and the disk")
        return printable(f"{error.filename}: {error.strerror}; {remedy}")
    text, flags = printable(str(error)), ", ".join(_flags(error.settings))
    if not flags:
        return text
    sentence, colon, list_of_things = text.partition(":\n")
    return f"{sentence} ({flags}){colon}{list_of_things}"


def _flags(settings: Sequence[str]) -> list[str]:
    """The options of the command that runs for ``settings``; it may not have one for each."""
    context = click.get_current_context(silent=True)
    if context is None:
        return []
    options = {option.name: option.opts[0] for option in context.command.params}
    return [options[setting] for setting in settings if setting in options]


def command_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Decorate the function of a click command, below ``@click.command`` and its options.

    Example::

        @main.command()
        @click.option("--rounds", type=int)
        @command_errors
        def join(rounds: int | None) -> None: ...
    """

    @wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        with exit_codes():
            return command(*args, **kwargs)

    return guarded
