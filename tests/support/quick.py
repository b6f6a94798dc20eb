"""Which tests start no process, as imports and fixtures say: `make check` runs those."""

from functools import cache
from pathlib import Path

import pytest

from tests.support.imports import ROOT, imports_in

# Packages and modules of ours that start processes, and fixtures of tests that do.
STARTERS = {
    *("subprocess", "multiprocessing", "hivemind", "dupt_swarm.swarm", "dupt_swarm.discovery"),
    *("dupt_swarm.node.node", "dupt_swarm.node.link", "dupt_swarm.network.p2p.daemon"),
}
FIXTURES = {"nothing_left", "net", "stations", "bootstrap"}


def is_quick(test: pytest.Item) -> bool:
    """Whether neither the test's file nor a fixture that it asks for starts processes."""
    asked = set(getattr(test, "fixturenames", ()))
    marked = test.get_closest_marker("system") is not None
    return not (marked or asked & FIXTURES or starts_processes(test.path.relative_to(ROOT)))


@cache
def starts_processes(path: Path) -> bool:
    """Whether a file of tests imports what starts processes, itself or by what it shares with others."""
    for name in {one.name for one in imports_in(path)}:
        if name in STARTERS or name.partition(".")[0] in STARTERS:
            return True
        shared = Path(*name.split(".")).with_suffix(".py")
        if name.startswith("tests.") and (ROOT / shared).exists() and starts_processes(shared):
            return True
    return False
