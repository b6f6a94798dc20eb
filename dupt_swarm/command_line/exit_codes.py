"""What all commands have in common: how an error or an interruption becomes a message and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import click

from dupt_swarm.errors import DuptError

INTERRUPTED = 130

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def exit_codes() -> Iterator[None]:
    """Within it a `DuptError` ends the program with its exit code, Ctrl-C with 130.

    The message goes to stderr, after ``error:``. click's own usage errors pass, and exit with 2.
    """
    try:
        yield
    except DuptError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        # click would say "Aborted!" and exit with 1, as for a failure.
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)


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
