"""`benchmarks/gpu.py` in its small form, on a CPU: who has a card for ten minutes must not meet its bugs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def run(parts: str, output: Path) -> dict[str, Any]:
    """What it writes."""
    options = ("--small", "--device", "cpu", "--seconds", "0.1", "--slices", "1", "--output", str(output))
    script = [sys.executable, f"{ROOT}/benchmarks/gpu.py", "--parts", parts, *options]
    subprocess.run(script, cwd=ROOT, check=True, capture_output=True, timeout=600)
    found: dict[str, Any] = json.loads(output.read_text("utf-8"))
    return found


def test_checks_and_loops(tmp_path: Path) -> None:
    """Every check is well, and the loop has a speed."""
    found = run("checks,loops", tmp_path / "gpu.json")
    checks = {name: said for name, said in found["checks"].items() if name != "took_seconds"}
    assert len(checks) == 5
    assert set(checks.values()) == {"ok"}
    assert found["loops"]["tiny"]["own"]["tokens_per_second"] > 0


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
def test_two_oracles(tmp_path: Path) -> None:
    """They train in a swarm and without, in turns, and no round fails."""
    found = run("swarm", tmp_path / "gpu.json")["swarm"]
    assert "error" not in found, found
    [turn] = found["turns"]["oracle"]
    assert [oracle["failed"] for oracle in turn] == [0, 0]
    assert all(oracle["tokens"] > 0 for oracle in turn)
