"""`benchmarks/gpu.py` in its small form, on a CPU: who has a card for ten minutes must not meet its bugs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import run_python

ROOT = Path(__file__).parent.parent


def run(part: str, file: Path) -> dict[str, Any]:
    """What it writes of a part."""
    options = ("--small", "--device", "cpu", "--seconds", "0.1", "--slices", "1", "--file", str(file))
    done = run_python(f"{ROOT}/benchmarks/gpu.py", "--parts", part, *options, seconds=600, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))[part]
    assert "error" not in found, found
    return found


def test_checks(tmp_path: Path) -> None:
    """Every one is well."""
    found = run("checks", tmp_path / "gpu.jsonl")
    checks = {name: said for name, said in found.items() if name != "took_seconds"}
    assert len(checks) == 5
    assert set(checks.values()) == {"ok"}


def test_loops(tmp_path: Path) -> None:
    """The loop has a speed."""
    assert run("loops", tmp_path / "gpu.jsonl")["tiny"]["tokens_per_second"] > 0


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
def test_items(tmp_path: Path) -> None:
    """Each is compared with the model as it ships."""
    items = run("items", tmp_path / "gpu.jsonl")["tiny"]
    assert "PyTorch's dropout" in items
    assert all("as it ships ÷ this" in item for item in items.values() if isinstance(item, dict))


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
def test_two_oracles(tmp_path: Path) -> None:
    """They train in a swarm and without, in turns, and no round fails."""
    found = run("swarm", tmp_path / "gpu.jsonl")
    [turn] = found["turns"]["oracle"]
    assert [oracle["failed"] for oracle in turn] == [0, 0]
    assert all(oracle["tokens"] > 0 for oracle in turn)
