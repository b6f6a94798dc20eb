"""Paths at which this user may not even look."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.imports import ROOT
from tests.support.lacking import skip
from tests.support.leftovers import nothing_new, short_folder

# What lets root look and write where it may not.
RIGHTS = "-dac_override,-dac_read_search"
ADDRESS = "/ip4/127.0.0.1/tcp/1/p2p/QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
# Runs the commands that it is given one after the other: importing PyTorch takes longer than all of them.
RUN_ALL = """
import json, sys
from click.testing import CliRunner
from tests.support.commands import PROGRAMS
for line in json.loads(sys.argv[1]):
    program, *arguments = line.split()
    done = CliRunner().invoke(PROGRAMS[program], arguments)
    left = None if isinstance(done.exception, SystemExit | None) else repr(done.exception)
    print(json.dumps([line, done.exit_code, done.stdout, done.stderr, left]))
"""
COMMANDS = (
    "dupt-peer new np/run.toml --corpus np/x",
    "dupt-peer new run.toml --corpus np/x",
    f"dupt-peer join --initial-peers {ADDRESS} --corpus np/x",
    f"dupt-peer join --initial-peers {ADDRESS} --state-dir np/x",
    f"dupt-peer evaluate --initial-peers {ADDRESS} --corpus np/x",
    "dupt-peer demo --model np/x",
    f"dupt-model pull np/x --initial-peers {ADDRESS}",
    "dupt-model inspect np/x",
    "dupt-model verify np/x",
    "dupt-model export model np/x",
    "dupt-model eval np/x --corpus np/x",
    "dupt-model generate np/x",
)


CHECK = "dupt-peer check --corpus np/x --state-dir np/y --host-maddrs /ip4/127.0.0.1/tcp/0 --json"


class Outcome(NamedTuple):
    """What became of a command; ``exception`` is one that it did not expect."""

    code: int
    output: str
    errors: str
    exception: str | None


def run_as_ordinary(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python as somebody whom permissions bind, which they do not do to root, to its end."""
    command = [sys.executable, *arguments]
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            skip("root needs setpriv to be bound by permissions")
        command = ["setpriv", f"--bounding-set={RIGHTS}", *command]
    paths = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, cwd=cwd, env=paths, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Of all commands in a folder with a folder np, which its owner has closed; they leave nothing behind."""
    folder = tmp_path_factory.mktemp("closed")
    (folder / "np").mkdir(mode=0)
    with short_folder() as short, nothing_new():
        lines = json.dumps([*COMMANDS, CHECK])
        done = run_as_ordinary("-c", RUN_ALL, lines, cwd=folder, TMPDIR=str(short))
    (folder / "np").chmod(0o700)
    assert done.returncode == 0, done.stderr
    told = map(json.loads, done.stdout.splitlines())
    return {line: Outcome(*outcome) for line, *outcome in told}


def test_a_command_says_where_it_may_not_look(outcomes: dict[str, Outcome]) -> None:
    """An error with a remedy, and no traceback, in each of them."""
    for line in COMMANDS:
        found = outcomes[line]
        last = found.errors.splitlines()[-1]
        assert (found.exception, found.code in (1, 2, 11)) == (None, True), line
        assert last.startswith(("error: ", "  /ip4/")), (line, found.errors)


@pytest.mark.parametrize("line", COMMANDS[-2:])
def test_a_model_that_may_not_be_read_is_there(outcomes: dict[str, Outcome], line: str) -> None:
    """Nobody looks for another path: it is said that permissions are what is wrong."""
    said = "error: np/x: cannot be read: Permission denied; check its permissions\n"
    assert (outcomes[line].code, outcomes[line].errors) == (1, said)


def test_check_reports_it(outcomes: dict[str, Outcome]) -> None:
    """As a finding among the others, of the corpus and of the state folder."""
    code, output, _, exception = outcomes[CHECK]
    found = {check["name"]: check for check in json.loads(output)["checks"]}
    assert (exception, code) == (None, 1)
    assert found["corpus"]["ok"] is False and "np/x" in found["corpus"]["detail"]
    assert found["disk"] == {
        "name": "disk",
        "ok": False,
        "detail": "np/y cannot be written",
        "remedy": "choose another --state-dir",
    }
