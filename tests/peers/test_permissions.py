"""Paths at which this user may not even look."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.imports import ROOT
from tests.support.lacking import skip

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


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder with a folder np, which its owner has closed."""
    (tmp_path / "np").mkdir(mode=0)
    yield tmp_path
    (tmp_path / "np").chmod(0o700)


def run_as_ordinary(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python as somebody whom permissions bind, which they do not do to root, to its end."""
    command = [sys.executable, *arguments]
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            skip("root needs setpriv to be bound by permissions")
        command = ["setpriv", f"--bounding-set={RIGHTS}", *command]
    paths = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, env=paths, capture_output=True, text=True, timeout=300)


def run_all(folder: Path, *lines: str) -> list[list[Any]]:
    """What becomes of commands in ``folder``: each line, exit code, stdout, stderr, and an exception."""
    done = run_as_ordinary("-c", RUN_ALL, json.dumps(lines), cwd=folder)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.usefixtures("nothing_left")
def test_a_command_says_where_it_may_not_look(closed: Path) -> None:
    """An error with a remedy, and no traceback, in each of them."""
    for line, code, _, errors, exception in run_all(closed, *COMMANDS):
        last = errors.splitlines()[-1]
        assert (exception, code in (1, 2, 11)) == (None, True), line
        assert last.startswith(("error: ", "  /ip4/")), (line, errors)


def test_a_model_that_may_not_be_read_is_there(closed: Path) -> None:
    """Nobody looks for another path: it is said that permissions are what is wrong."""
    for line, code, _, errors, _ in run_all(closed, *COMMANDS[-2:]):
        assert (code, errors) == (
            1,
            "error: np/x: cannot be read: Permission denied; check its permissions\n",
        ), line


@pytest.mark.usefixtures("nothing_left")
def test_check_reports_it(closed: Path) -> None:
    """As a finding among the others, of the corpus and of the state folder."""
    [[_, code, output, _, exception]] = run_all(
        closed, "dupt-peer check --corpus np/x --state-dir np/y --host-maddrs /ip4/127.0.0.1/tcp/0 --json"
    )
    found = {check["name"]: check for check in json.loads(output)["checks"]}
    assert (exception, code) == (None, 1)
    assert found["corpus"]["ok"] is False and "np/x" in found["corpus"]["detail"]
    assert found["disk"] == {
        "name": "disk",
        "ok": False,
        "detail": "np/y cannot be written",
        "remedy": "choose another --state-dir",
    }
