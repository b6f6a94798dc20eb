"""``-v``: what a program and its node do, line by line on stderr."""

from __future__ import annotations

import logging
import sys

import click

FORMAT = "%(asctime)s %(message)s"
OURS = ("dupt_swarm", "peers", "monitor")


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
