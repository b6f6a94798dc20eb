"""Fuzzing of what parses bytes from the network.

    python -m tests.hostile.fuzz --examples 200          of each parser, always the same
    python -m tests.hostile.fuzz --minutes 10 [PARSER …]   new ones for as long

A line of JSON for each parser: its name, and what went wrong. A parser raises what its callers expect, within
`SECONDS` and little memory.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
from hypothesis import HealthCheck, given, settings

from tests.hostile.targets import TARGETS, Target

EXAMPLES_AT_ONCE = 2000
SECONDS = 2.0
STATUS, PEAK_RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
GROWTH_BYTES_MAX = 32 << 20
SAME = settings(
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)
LONG = settings(SAME, max_examples=EXAMPLES_AT_ONCE, derandomize=False)


class Hang(BaseException):
    """A parser took too long; no `Exception`, which it might catch itself."""


def fuzz(target: Target, profile: settings) -> None:
    """Raises what a parser should not have raised, or AssertionError."""

    @profile
    @given(target.inputs)
    def run(data: Any) -> None:
        grown = _growth(target, data)
        if grown >= GROWTH_BYTES_MAX:  # a library takes some for good, whatever the input; that once only
            grown = min(grown, _growth(target, data))
        assert grown < GROWTH_BYTES_MAX, f"it took {grown >> 20} MiB"

    run()


def _growth(target: Target, data: Any) -> int:
    """Parse ``data``; how many bytes of memory that took at its peak."""
    PEAK_RESET.write_text("5")
    before = _peak()
    try:
        with _time_limit():
            target.parse(data)
    except target.expected:
        pass
    except Hang:
        raise AssertionError(f"it took more than {SECONDS} s") from None
    return _peak() - before


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    gc.disable()  # hypothesis' garbage is not the parser's
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of processor time
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.enable()


def _hang(*_: object) -> NoReturn:
    raise Hang


def report(name: str, profile: settings) -> bool:
    """Fuzz one parser, and print the outcome; whether all was well."""
    problem = ""
    try:
        fuzz(TARGETS[name](), profile)
    except Exception:
        problem = traceback.format_exc()
    print(json.dumps({"parser": name, "problem": problem}), flush=True)
    return not problem


def _peak() -> int:
    """The most bytes that this process has had since that was reset."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main() -> None:
    """See above."""
    options = argparse.ArgumentParser()
    options.add_argument("parsers", nargs="*", metavar="PARSER")
    how_long = options.add_mutually_exclusive_group(required=True)
    how_long.add_argument("--examples", type=int)
    how_long.add_argument("--minutes", type=float)
    chosen = options.parse_args()
    signal.signal(signal.SIGPROF, _hang)
    torch.set_num_threads(1)
    gc.freeze()  # what was imported stays
    names = chosen.parsers or list(TARGETS)
    if chosen.examples:
        sys.exit(_any_tripped(names, settings(SAME, max_examples=chosen.examples)))
    deadline = time.process_time() + 60 * chosen.minutes
    while time.process_time() < deadline:
        if _any_tripped(names, LONG):
            sys.exit(1)


def _any_tripped(names: list[str], profile: settings) -> bool:
    outcomes = [report(name, profile) for name in names]
    return not all(outcomes)


if __name__ == "__main__":
    main()
