"""The demo, as `make demo` runs it but shorter."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.usefixtures("nothing_left")
def test_the_demo_shows_three_oracles_learning_and_leaves_nothing() -> None:
    """It ends by itself with exit code 0 and a summary in which every oracle has learnt."""
    command = [str(Path(sys.executable).with_name("dupt-peer")), "demo", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "the monitor serves http://127.0.0.1:" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if "→" in line]
    assert sorted(row[0] for row in rows) == ["library", "manual", "packages"]
    assert all(float(row[5]) < float(row[3]) for row in rows), "the held-out loss fell"
    assert all(float(row[8]) < float(row[6]) for row in rows), "and so did the bits per byte"
