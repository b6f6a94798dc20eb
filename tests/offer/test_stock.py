"""The shards on this machine are checked before they are used, and stay within their room."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from dupt_swarm.disk import folders
from dupt_swarm.disk.folders import SwarmFolder
from dupt_swarm.disk.offered import OfferedFolder
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.messages import OfferedName
from dupt_swarm.offer.shard_list import Shard, ShardList, missing_in
from dupt_swarm.offer.stock import Stock, _read_usable, read_shard
from dupt_swarm.replica.offered import offered_blob
from tests.support.tiny import tiny_manifest

TOKENS = 500
BYTES = 2 * TOKENS
HELD_OUT = np.arange(TOKENS, dtype="<u2") % 7


def shard_data(number: int) -> bytes:
    tokens = (np.arange(TOKENS) * (number + 1)) % 300
    return tokens.astype("<u2").tobytes()


def shard_of(data: bytes, tokens: int | None = None) -> Shard:
    return Shard(digest=offered_blob(data).digest, tokens=len(data) // 2 if tokens is None else tokens)


LISTED = ShardList(
    held_out=shard_of(HELD_OUT.tobytes()), shards=tuple(shard_of(shard_data(number)) for number in range(6))
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[SwarmFolder]:
    found = SwarmFolder(tmp_path, "test-0")
    found.offered.path.mkdir()
    yield found
    found.close()


@pytest.fixture
def manifest() -> Manifest:
    return tiny_manifest(offer={"digest": LISTED.digest})


class Wanted:
    """What the stock asks its node for."""

    def __init__(self) -> None:
        self.last: Sequence[OfferedName] = ()

    def __call__(self, names: Sequence[OfferedName]) -> None:
        self.last = names


def put(folder: SwarmFolder, number: int, age: float = 0.0, data: bytes | None = None) -> Path:
    path = folder.offered.path / LISTED.shards[number].digest
    path.write_bytes(shard_data(number) if data is None else data)
    os.utime(path, (1e9 - age, 1e9 - age))
    return path


def test_reads_what_the_list_names(folder: SwarmFolder, manifest: Manifest) -> None:
    """The tokens of a shard that is here; nothing of one that is not. What is read is used last."""
    stock = Stock(LISTED, HELD_OUT, folder, manifest, Wanted())
    put(folder, 3, age=10)
    put(folder, 1, age=5)
    (folder.offered.path / LISTED.digest).write_bytes(LISTED.data)
    assert stock.shards == [TOKENS] * 6
    assert stock.here == [3, 1]
    tokens = stock.read(3)
    assert tokens is not None
    assert tokens.tobytes() == shard_data(3)
    assert stock.here == [1, 3]
    assert stock.read(2) is None


def test_a_damaged_file_is_removed(folder: SwarmFolder, manifest: Manifest) -> None:
    """Whatever a disk or somebody has made of it, it is not trained on: it is fetched again."""
    damaged = bytearray(shard_data(2))
    damaged[7] ^= 1
    path = put(folder, 2, data=bytes(damaged))
    assert Stock(LISTED, HELD_OUT, folder, manifest, Wanted()).read(2) is None
    assert not path.exists()


@pytest.mark.parametrize(
    ("data", "tokens"),
    [
        (np.array([1, 2, 300], "<u2").tobytes(), 3),  # the vocabulary has 300 ids
        (np.array([1, 2, 65535], "<u2").tobytes(), 3),
        (b"\x01\x00\x02", 1),
        (np.array([1, 2], "<u2").tobytes(), 3),
    ],
    ids=["id too large", "largest id", "odd length", "too short"],
)
def test_what_the_organiser_made_wrong_is_left_out(
    folder: SwarmFolder, manifest: Manifest, data: bytes, tokens: int
) -> None:
    """It has its digest, so nobody lied; an id beyond the vocabulary would end the training."""
    shard = shard_of(data, tokens)
    (folder.offered.path / shard.digest).write_bytes(data)
    found = read_shard(shard, folder, manifest)
    assert found is not None
    assert len(found) == 0


def test_a_shard_without_a_block_is_of_no_use(folder: SwarmFolder, manifest: Manifest) -> None:
    """A block is the context and one token more."""
    for tokens in (manifest.model.context_length, manifest.model.context_length + 1):
        shard = shard_of(HELD_OUT[:tokens].tobytes())
        (folder.offered.path / shard.digest).write_bytes(HELD_OUT[:tokens].tobytes())
        usable = _read_usable(shard, folder, manifest)
        assert (usable is not None) == (tokens > manifest.model.context_length)


def test_what_a_copy_lacks_is_said(folder: SwarmFolder, manifest: Manifest) -> None:
    """Judged by the list's digest, and by the names and sizes of the others."""
    path = folder.offered.path
    for data in (None, LISTED.data[:-1], LISTED.data):
        if data is not None:
            (path / LISTED.digest).write_bytes(data)
        assert missing_in(path, manifest) == ("7 of its 7 shards" if data == LISTED.data else "its list")
    (path / LISTED.held_out.digest).write_bytes(HELD_OUT.tobytes())
    for number in range(6):
        put(folder, number)
    assert missing_in(path, manifest) == ""
    put(folder, 3, data=shard_data(3)[:-2])
    assert missing_in(path, manifest) == "1 of its 7 shards"


def test_wants_what_is_not_here(folder: SwarmFolder, manifest: Manifest) -> None:
    """In the order of reading, each with the bytes that it may have at most."""
    wanted = Wanted()
    put(folder, 4)
    Stock(LISTED, HELD_OUT, folder, manifest, wanted).want([4, 0, 5])
    assert wanted.last == [OfferedName(LISTED.shards[number].digest, BYTES) for number in (0, 5)]


def names_of(*numbers: int) -> set[str]:
    return {LISTED.shards[number].digest for number in numbers}


def test_makes_room_by_removing_what_was_used_longest_ago(folder: SwarmFolder, manifest: Manifest) -> None:
    """Not what is read or comes next, whatever its age; nor what is pinned."""
    folder.offered = OfferedFolder(folder.offered.path, most=4 * BYTES)
    others = {LISTED.digest, LISTED.held_out.digest}
    folder.offered.pinned = frozenset(others)
    for name in others:
        (folder.offered.path / name).write_bytes(bytes(BYTES // 2))
        os.utime(folder.offered.path / name, (1, 1))
    for number, age in ((0, 30), (1, 20), (2, 10)):
        put(folder, number, age=age)
    stock = Stock(LISTED, HELD_OUT, folder, manifest, Wanted())
    stock.want([0, 3])
    assert {*folder.offered.sizes} == others | names_of(0, 2)


def test_fewer_come_where_there_is_no_room(
    folder: SwarmFolder, manifest: Manifest, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the folder's limit or the text's own: the next one, in place of the one that is read if need be."""
    wanted = Wanted()
    stock = Stock(LISTED, HELD_OUT, folder, manifest, wanted)
    put(folder, 0)
    folder.offered = OfferedFolder(folder.offered.path, most=2 * BYTES)
    for _ in range(3):
        stock.want([0, 1, 2])
    assert {name.digest for name in wanted.last} == names_of(1)
    assert {*folder.offered.sizes} == names_of(0)
    assert len(caplog.records) == 1
    folder.limit(BYTES + 100)
    folder.offered = OfferedFolder(folder.offered.path)
    stock.want([0, 1, 2])
    assert {name.digest for name in wanted.last} == names_of(1)
    assert folder.offered.sizes == {}


def test_nothing_is_removed_where_that_would_not_suffice(folder: SwarmFolder, manifest: Manifest) -> None:
    """Then the shards that are here are all that there is to train on."""
    wanted = Wanted()
    for number in range(3):
        put(folder, number)
    (folder.path / "tokens").write_bytes(bytes(10 * BYTES))
    folder.limit(13 * BYTES + 100)
    folder.limit(13 * BYTES + 100)
    (folder.path / "tokens").write_bytes(bytes(14 * BYTES))
    Stock(LISTED, HELD_OUT, folder, manifest, wanted).want([0, 4, 5])
    assert wanted.last == []
    assert {*folder.offered.sizes} == names_of(0, 1, 2)
    (folder.path / "tokens").write_bytes(bytes(12 * BYTES))
    folder.offered.pinned = frozenset(names_of(1))  # all three would do
    Stock(LISTED, HELD_OUT, folder, manifest, wanted).want([0, 4, 5])
    assert {*folder.offered.sizes} == names_of(0, 1, 2)


def test_text_leaves_room_for_the_second_checkpoint(folder: SwarmFolder, manifest: Manifest) -> None:
    """It has as much as the first one took; two that are there are enough. One that needs more removes text,
    but not what a restart needs first."""
    with folder.new_checkpoint() as path:
        (path / "state").write_bytes(bytes(10 * BYTES))
    folder.limit(23 * BYTES + 100)
    wanted = Wanted()
    stock = Stock(LISTED, HELD_OUT, folder, manifest, wanted)
    for number in (0, 1, 2):
        put(folder, number)
    stock.want([0, 1, 3])
    assert {name.digest for name in wanted.last} == names_of(3)
    assert {*folder.offered.sizes} == names_of(0, 1)
    put(folder, 3)
    with folder.new_checkpoint() as path:
        (path / "state").write_bytes(bytes(10 * BYTES))
    stock.want([0, 1, 3])
    assert {*folder.offered.sizes} == names_of(0, 1, 3)
    folder.offered.pinned = frozenset(names_of(0))
    with folder.new_checkpoint() as path:
        (path / "state").write_bytes(bytes(12 * BYTES))
    assert {*folder.offered.sizes} == names_of(0)


def test_a_full_disk_takes_from_the_text(
    folder: SwarmFolder, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any limit, too: no more text comes, and a checkpoint has its room first."""
    with folder.new_checkpoint() as path:
        (path / "state").write_bytes(bytes(10 * BYTES))
    for number in (0, 1, 2):
        put(folder, number)

    def free(_: Path) -> int:
        return (12 - len(folder.offered.sizes)) * BYTES

    monkeypatch.setattr(folders, "free_bytes", free)
    wanted = Wanted()
    Stock(LISTED, HELD_OUT, folder, manifest, wanted).want([0, 1, 3])
    assert {name.digest for name in wanted.last} == names_of(3)
    assert len(folder.offered.sizes) == 1
    monkeypatch.setattr(folders, "free_bytes", lambda _: 0)
    with folder.new_checkpoint() as path:
        (path / "state").write_bytes(bytes(BYTES))
    assert folder.offered.sizes == {}
