"""Anchors from which less than a quorum went on."""

import asyncio
import logging
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from dupt_swarm.errors import CheckpointError
from dupt_swarm.network.rounds.origins import KEPT_MAX, Origins
from dupt_swarm.node.messages import Lost
from dupt_swarm.replica import storage
from dupt_swarm.replica.link import Acceptance, Brought, Choice, Link
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


def test_the_last_ones_are_kept_though_the_clock_was_set_back(tmp_path: Path) -> None:
    """Files of before seem to be newer than what is written now."""
    states = [state(number) for number in range(KEPT_MAX + 2)]
    origins = Origins(tmp_path)
    asyncio.run(keep(origins, *states[:KEPT_MAX]))
    for path in tmp_path.iterdir():
        os.utime(path, (4e9, 4e9))

    async def keep_both() -> None:
        origins.keep(*states[KEPT_MAX:])
        await next(iter(origins._writing))

    asyncio.run(keep_both())
    assert all(origins.find(each.digest) for each in states[KEPT_MAX:])
    assert len(list(tmp_path.iterdir())) == KEPT_MAX


def test_two_rounds_in_a_row_on_a_slow_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The state between them is kept with both, and they do not get in each other's way."""

    def slowly(*arguments: Any) -> None:
        save_file(*arguments)
        time.sleep(0.1)

    monkeypatch.setattr(storage, "save_file", slowly)
    origins, states = Origins(tmp_path), [state(number) for number in range(3)]

    async def keep_all() -> None:
        for pair in pairwise(states):
            origins.keep(*pair)
        await asyncio.gather(*origins._writing)

    asyncio.run(keep_all())
    assert all(origins.find(each.digest) for each in states)
    assert caplog.messages == []


def link(before: str, after: str, *brought: Brought, dropped: tuple[str, ...] = ()) -> Link:
    """Nobody has signed it."""
    choice = Choice(brought)
    return Link(before, 0, choice, after, (), (Acceptance("x", before, 0, choice.id, after, dropped),))


ONE, TWO, THREE = (Brought("me", digit * 64, 10 * int(digit)) for digit in "123")
OTHER = Brought("other", "4" * 64, 40)


@pytest.mark.parametrize(
    ("left", "ours", "found"),
    [
        ([], [[ONE]], None),
        ([[ONE], [TWO, OTHER]], [[OTHER]], (30, 0, 30, "a")),
        ([[ONE, OTHER], [TWO]], [[ONE], [THREE]], (30, 10, 20, "b")),
        ([[THREE], [ONE], [TWO]], [[ONE]], (60, 10, 20, "c")),
        ([[ONE]], [[ONE]], (10, 10, 0, "b")),
        ([[OTHER]], [[OTHER]], (0, 0, 0, "a")),
    ],
)
def test_what_was_lost(
    left: list[list[Brought]],
    ours: list[list[Brought]],
    found: tuple[int, int, int, str] | None,
    tmp_path: Path,
) -> None:
    """Both may have the round in which two branches part, and what came before it is in no difference."""
    links = [link(*pair, *brought) for pair, brought in zip(pairwise("abcd"), left, strict=False)]
    others = [link(*pair, *brought) for pair, brought in zip(pairwise("axyz"), ours, strict=False)]
    for name in "abcd":
        (tmp_path / f"1-{name}.safetensors").touch()
    lost = Origins(tmp_path).lost(links, others, "me")
    expected = found and Lost(*found[:3], tmp_path / f"1-{found[3]}.safetensors")
    assert lost == expected


def test_what_counted_for_nothing_is_in_neither(tmp_path: Path) -> None:
    """A contribution that was dropped in one branch may be in the other one."""
    left, ours = link("a", "b", ONE, OTHER), link("a", "x", ONE, OTHER, dropped=("me",))
    assert Origins(tmp_path).lost([left], [ours], "me") == Lost(10, 0, 10, None)
    assert Origins(tmp_path).lost([ours], [left], "me") == Lost(0, 0, 0, None)


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
