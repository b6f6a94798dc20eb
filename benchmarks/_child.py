"""Processes that are told what to do, and answer: a line of JSON each, on their stdin and stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import click

END_SECONDS = 90.0


class Child:
    """Such a process, as its parent sees it. Use it in a ``with`` statement, whose end is the child's."""

    def __init__(
        self,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        messages: Path | None = None,
    ) -> None:
        """Start ``command``; what it writes to stderr goes to the file ``messages``, if one is given."""
        with ExitStack() as stack:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(messages.open("w")) if messages else None,
                text=True,
                env=environment,
            )

    def tell(self, **order: Any) -> None:
        """Give it an order; without arguments: to go on."""
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        """Wait for what it says next.

        Raises:
            ClickException: it has ended.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise click.ClickException("a child process has ended; see its messages above")
        said: dict[str, Any] = json.loads(line)
        return said

    def end(self) -> None:
        """Close its stdin, upon which it ends by itself; several that are to end at once are told first."""
        assert self.process.stdin is not None
        with suppress(OSError):  # it has ended already
            self.process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)
        self.process.kill()
        self.process.wait()


def say(**facts: Any) -> None:
    """In the child: answer."""
    print(json.dumps(facts), flush=True)


def orders() -> Iterator[dict[str, Any]]:
    """In the child: what it is told, until its stdin closes."""
    return map(json.loads, sys.stdin)
