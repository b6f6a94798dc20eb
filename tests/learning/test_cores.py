"""How many cores this process may use."""

from pathlib import Path

import pytest

from dupt_swarm.learning import cores


@pytest.mark.parametrize(
    ("limit", "most"), [("50000 100000", 1), ("250000 100000", 3), ("max 100000", 1 << 16)]
)
def test_a_container_limits_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    """A part of a core counts as one; outside of containers, and without a limit, all are there."""
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr(cores, "CGROUP_QUOTA", quota)
    everything = cores.usable_cores()
    assert everything >= 1
    quota.write_text(limit)
    assert cores.quota() == most
    assert cores.usable_cores() == min(everything, most)
