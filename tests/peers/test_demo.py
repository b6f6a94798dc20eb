"""The demo, as `make demo` runs it but shorter."""

import pytest

from tests.support.programs import dupt_peer


@pytest.mark.usefixtures("nothing_left")
def test_the_demo_shows_three_oracles_learning_and_leaves_nothing() -> None:
    """It ends by itself with exit code 0 and a summary in which every oracle has learnt."""
    done = dupt_peer("demo", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    assert "the swarm's page: http://127.0.0.1:" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if "→" in line]
    assert sorted(row[0] for row in rows) == ["library", "manual", "packages"]
    assert all(float(row[5]) < float(row[3]) for row in rows), "the held-out loss fell"
    assert all(float(row[8]) < float(row[6]) for row in rows), "and so did the bits per byte"
