"""Whatever bytes come from the network: a parser reads them, or refuses them as its callers expect.

`make test-system` looks further, and `make fuzz` with other examples each time.
"""

import json
import subprocess
import sys

import pytest

from tests.hostile.targets import TARGETS
from tests.support.warm import Program


@pytest.fixture(scope="module", params=[50, pytest.param(200, marks=pytest.mark.system)])
def problems(request: pytest.FixtureRequest) -> dict[str, str]:
    """Of each parser, in so many examples, found in a process of its own: a parser may take that with it."""
    command = [sys.executable, "-m", "tests.hostile.fuzz", "--examples", str(request.param)]
    with Program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            output, errors = process.communicate(timeout=240)
        finally:
            process.kill()
    found = [json.loads(line) for line in output.splitlines()]
    ended = f"the process ended with {process.returncode} before: {errors[-3000:]}"
    return dict.fromkeys(TARGETS, ended) | {each["parser"]: each["problem"] for each in found}


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_is_not_tripped(problems: dict[str, str], name: str) -> None:
    """It neither crashes, hangs nor grows, and raises nothing else than what its callers expect."""
    assert problems[name] == ""
