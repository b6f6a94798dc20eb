"""Whatever bytes come from the network: a parser reads them, or refuses them as its callers expect.

`make test-system` looks further, and `make fuzz` with other examples each time.
"""

import json

import pytest

from tests.hostile.targets import TARGETS
from tests.support.programs import run_python


@pytest.fixture(scope="module", params=[50, pytest.param(200, marks=pytest.mark.system)])
def problems(request: pytest.FixtureRequest) -> dict[str, str]:
    """Of each parser, in so many examples, found in a process of its own: a parser may take that with it."""
    done = run_python("-m", "tests.hostile.fuzz", "--examples", str(request.param), seconds=240)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    ended = f"the process ended with {done.returncode} before: {done.stderr[-3000:]}"
    return dict.fromkeys(TARGETS, ended) | {each["parser"]: each["problem"] for each in found}


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_is_not_tripped(problems: dict[str, str], name: str) -> None:
    """It neither crashes, hangs nor grows, and raises nothing else than what its callers expect."""
    assert problems[name] == ""
