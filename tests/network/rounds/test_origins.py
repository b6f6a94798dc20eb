"""Anchors from which less than a quorum went on."""

import asyncio
import logging
from pathlib import Path

import pytest
import torch

from dupt_swarm.errors import CheckpointError
from dupt_swarm.network.rounds.origins import KEPT_MAX, Origins
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import load_anchor
from tests.support.waiting import wait_until


def state(number: int) -> ReplicaState:
    return ReplicaState(number, 0, ((5,),), torch.full((5,), float(number)), {})


async def keep(origins: Origins, *states: ReplicaState) -> None:
    """One after the other."""
    for each in states:
        origins.keep(each)
        while origins._writing:
            await next(iter(origins._writing))


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    """Also by the next process; others are not there."""
    states = [state(number) for number in range(KEPT_MAX + 1)]
    asyncio.run(keep(Origins(tmp_path / "origins"), *states))
    again = Origins(tmp_path / "origins")
    assert again.find(states[0].digest) is None
    for each in states[1:]:
        path = again.find(each.digest)
        assert path is not None
        assert torch.equal(load_anchor(path), each.anchor)


def test_without_a_folder(tmp_path: Path) -> None:
    """Nothing is kept."""
    origins = Origins()
    asyncio.run(keep(origins, state(1)))
    assert origins.find(state(1).digest) is None
    assert not any(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The round goes on; the log says what may be lost."""
    (tmp_path / "origins").write_text("")
    with caplog.at_level(logging.WARNING):
        asyncio.run(keep(Origins(tmp_path / "origins"), state(1)))
        wait_until(lambda: "may be lost" in caplog.text)


def test_a_damaged_file(tmp_path: Path) -> None:
    """It is no anchor."""
    (tmp_path / "one").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="not a valid anchor"):
        load_anchor(tmp_path / "one")
    with pytest.raises(CheckpointError, match="not a valid anchor"):
        load_anchor(tmp_path / "none")
