"""What was made is not forgotten."""

from collections import Counter
from pathlib import Path

import pytest

from dupt_swarm.errors import CheckpointError, FileError
from dupt_swarm.privacy.ledger import Ledger


def test_it_survives_a_restart(tmp_path: Path) -> None:
    """Each contribution is on disk as soon as it was added, whatever becomes of this process."""
    path = tmp_path / "privacy.json"
    ledger = Ledger(path)
    for noise in (10.0, 0.1, 10.0):
        ledger.add(noise)
        assert Ledger(path).made == ledger.made
    assert ledger.made == Counter({10.0: 2, 0.1: 1})


def test_what_cannot_be_written_is_not_counted_as_made(tmp_path: Path) -> None:
    """The caller hears of it, so that nothing leaves."""
    ledger = Ledger(tmp_path / "gone" / "privacy.json")
    with pytest.raises(FileError):
        ledger.add(1.0)
    assert ledger.made == Counter()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"contributions": 3}',
        '{"contributions": [{"noise": 1.0}]}',
        '{"contributions": [{"noise": 1.0, "made": -1}]}',
        '{"contributions": [{"noise": 0.0, "made": 1}]}',
        '{"contributions": [{"noise": NaN, "made": 1}]}',
        '{"contributions": [{"noise": 1.0, "made": 1}, {"noise": 1.0, "made": 2}]}',
        "\x00",
    ],
)
def test_a_damaged_one_is_no_empty_one(text: str, tmp_path: Path) -> None:
    """It is refused with its name: to begin at zero would be a false promise."""
    path = tmp_path / "privacy.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=r"privacy\.json: is damaged"):
        Ledger(path)
