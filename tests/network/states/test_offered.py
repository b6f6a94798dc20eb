import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from dupt_swarm.errors import NodeError
from dupt_swarm.network.host import background
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.network.states import offered as offered_module
from dupt_swarm.network.states.exchange import ChunksMessage, Exchange
from dupt_swarm.network.states.offered import OfferedFiles
from dupt_swarm.node.messages import OfferedMissing, OfferedName
from dupt_swarm.replica.blob import CHUNK_BYTES, Index
from dupt_swarm.replica.offered import offered_blob
from tests.support.fetching import fetching

SHARDS = [os.urandom(3 * CHUNK_BYTES + 17), os.urandom(1000), os.urandom(CHUNK_BYTES)]
NAMES = [OfferedName(offered_blob(data).digest, len(data)) for data in SHARDS]


def fill(folder: Path, *numbers: int) -> Path:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        (folder / NAMES[number].digest).write_bytes(SHARDS[number])
    return folder


async def serve(station, folder: Path) -> OfferedFiles:
    """A peer that has what is in ``folder``, and wants nothing."""
    exchange = Exchange(station.p2p)
    await station.p2p.serve(exchange)
    return OfferedFiles(folder, exchange, lambda: [])


def noted(monkeypatch) -> list[str | int]:
    """What is read from now on: a whole file, or one of its chunks."""
    found: list[str | int] = []
    whole, part = OfferedFiles._hash, OfferedFiles._read

    def hash(files: OfferedFiles, digest: str) -> None:
        found.append(digest)
        whole(files, digest)

    def read(files: OfferedFiles, index: Index, number: int) -> memoryview | None:
        found.append(number)
        return part(files, index, number)

    monkeypatch.setattr(OfferedFiles, "_hash", hash)
    monkeypatch.setattr(OfferedFiles, "_read", read)
    return found


async def here(folder: Path, names: Sequence[OfferedName]) -> None:
    """Wait until all are in the folder."""
    while not all((folder / name.digest).exists() for name in names):
        await asyncio.sleep(0.02)


async def test_what_is_wanted_comes_from_whoever_has_it(stations, tmp_path) -> None:
    """Each file from a donor that has it, the first one first; others can then have it from us."""
    async with stations(3) as [first, second, joiner]:
        for number, donor in enumerate((first, second)):
            await connect(joiner.p2p, [donor.address])
            await serve(donor, fill(tmp_path / str(number), number))
        mine = tmp_path / "mine"
        exchange = Exchange(joiner.p2p)
        await joiner.p2p.serve(exchange)
        donors = [str(donor.p2p.peer_id) for donor in (first, second)]
        files = OfferedFiles(mine, exchange, lambda: donors)
        async with background(files.fetch_forever()):
            files.want(NAMES[:2])
            await here(mine, NAMES[:2])
        assert {path.name: path.read_bytes() for path in mine.iterdir()} == {
            name.digest: data for name, data in zip(NAMES[:2], SHARDS[:2], strict=True)
        }
        times = [(mine / name.digest).stat().st_mtime_ns for name in NAMES[:2]]
        assert times == sorted(times)
        again = Exchange(second.p2p)
        index = await again.fetch_index(NAMES[0].digest, [str(joiner.p2p.peer_id)])
        assert index.sizes == (len(SHARDS[0]),)


async def test_it_is_tried_again_until_somebody_has_it(stations, tmp_path, monkeypatch) -> None:
    """Whoever waits hears the reason; what can be had comes meanwhile."""
    monkeypatch.setattr(offered_module, "RETRY_SECONDS", (0.05,))
    async with stations(2) as [donor, joiner]:
        await connect(joiner.p2p, [donor.address])
        await serve(donor, fill(tmp_path / "theirs", 1))
        told: list[object] = []
        mine = tmp_path / "mine"
        async with fetching(joiner, mine, [str(donor.p2p.peer_id)], told.append) as files:
            files.want(NAMES[:2])
            await here(mine, NAMES[1:2])
            assert isinstance(told[0], OfferedMissing)
            assert "the donor does not hold this blob" in told[0].reason
            fill(tmp_path / "theirs", 0)
            await here(mine, NAMES[:1])


async def test_what_is_not_wanted_any_more_is_not_fetched(stations, tmp_path) -> None:
    """The last order counts."""
    async with stations(2) as [donor, joiner]:
        await connect(joiner.p2p, [donor.address])
        await serve(donor, fill(tmp_path / "theirs", 0, 1, 2))
        exchange, mine = Exchange(joiner.p2p), tmp_path / "mine"
        files = OfferedFiles(mine, exchange, lambda: [str(donor.p2p.peer_id)])
        files.want(NAMES)
        files.want(NAMES[1:2])
        async with background(files.fetch_forever()):
            await here(mine, NAMES[1:2])
            files.want(())
            await asyncio.sleep(0.3)
        assert [path.name for path in mine.iterdir()] == [NAMES[1].digest]


async def test_a_round_that_is_being_ended_comes_first(stations, tmp_path) -> None:
    """As long as one is, no chunk is asked for; a download that has begun goes on afterwards."""
    async with stations(2) as [donor, joiner]:
        await connect(joiner.p2p, [donor.address])
        await serve(donor, fill(tmp_path / "theirs", 0))
        exchange, mine = Exchange(joiner.p2p), tmp_path / "mine"
        ending = True
        joiner.p2p.bandwidth.download.is_reserved = lambda: ending
        files = OfferedFiles(mine, exchange, lambda: [str(donor.p2p.peer_id)])
        async with background(files.fetch_forever()):
            files.want(NAMES[:1])
            await asyncio.sleep(1)
            assert not (mine / NAMES[0].digest).exists()
            ending = False
            await here(mine, NAMES[:1])


async def test_it_serves_nothing_but_what_a_digest_names(stations, tmp_path) -> None:
    """A path is no digest, and a file with another content than its name says is not served."""
    folder = fill(tmp_path / "offer", 0, 1)
    (tmp_path / "secret").write_text("private")
    (folder / "note").write_text("private")
    (folder / NAMES[1].digest).write_bytes(SHARDS[1][:-1] + b"x")
    async with stations(1) as [donor]:
        files = OfferedFiles(folder, Exchange(donor.p2p), lambda: [])
        index = await files.index(NAMES[0].digest)
        assert index is not None
        assert index.digest == NAMES[0].digest
        chunks = [await files.chunk(NAMES[0].digest, number) or b"" for number in range(4)]
        assert b"".join(chunks) == SHARDS[0]
        for name in ("../secret", "note", str(folder / "note"), NAMES[1].digest, NAMES[2].digest, ""):
            assert await files.chunk(name, 0) is None
            assert await files.index(name) is None
        assert await files.index(NAMES[0].digest) == index
        (folder / NAMES[0].digest).write_bytes(SHARDS[0][:-1])
        assert await files.chunk(NAMES[0].digest, 3) is None
        (folder / NAMES[0].digest).unlink()  # it made room for another
        assert await files.chunk(NAMES[0].digest, 0) is None
        assert await files.index(NAMES[0].digest) is None


async def test_without_a_folder_nothing_is_served(stations) -> None:
    """As in a program that keeps what it needs in its own way."""
    async with stations(2) as [donor, joiner]:
        await connect(joiner.p2p, [donor.address])
        exchange = Exchange(donor.p2p)
        await donor.p2p.serve(exchange)
        OfferedFiles(None, exchange, lambda: [])
        with pytest.raises(NodeError, match="does not hold"):
            await Exchange(joiner.p2p).fetch_index(NAMES[0].digest, [str(donor.p2p.peer_id)])


async def test_nothing_is_fetched_onto_a_full_disk(stations, tmp_path, monkeypatch) -> None:
    """Others would send it for nothing, again and again."""
    monkeypatch.setattr(offered_module, "free_bytes", lambda _: NAMES[1].most - 1)
    async with stations(2) as [donor, joiner]:
        await connect(joiner.p2p, [donor.address])
        await serve(donor, fill(tmp_path / "theirs", 1))
        told: list[object] = []
        mine = tmp_path / "mine"
        async with fetching(joiner, mine, [str(donor.p2p.peer_id)], told.append) as files:
            files.want(NAMES[1:2])
            while not told:
                await asyncio.sleep(0.02)
        assert told == [OfferedMissing(f"{mine}: the disk is full")]
        assert [*mine.iterdir()] == []


async def test_what_a_killed_node_left_half_written_is_removed(stations, tmp_path) -> None:
    """Nobody else would, and it is no part of what is counted."""
    folder = fill(tmp_path / "offer", 1)
    (folder / f".{NAMES[0].digest}.1.tmp").write_bytes(b"half")
    async with stations(1) as [donor]:
        OfferedFiles(folder, Exchange(donor.p2p), lambda: [])
        assert [path.name for path in folder.iterdir()] == [NAMES[1].digest]


async def test_a_file_is_read_when_there_is_a_place_for_who_asks(stations, tmp_path, monkeypatch) -> None:
    """Who only asks for its index, again and again, or finds no place, makes nobody read it."""
    async with stations(2) as [donor, joiner]:
        await connect(joiner.p2p, [donor.address])
        serving = Exchange(donor.p2p)
        await donor.p2p.serve(serving)
        OfferedFiles(fill(tmp_path / "theirs", 0), serving, lambda: [])
        reads = noted(monkeypatch)
        peer = str(donor.p2p.peer_id)
        for _ in range(3):
            await Exchange(joiner.p2p).fetch_index(NAMES[0].digest, [peer])
        assert reads == [NAMES[0].digest]
        request = ChunksMessage(digest=NAMES[0].digest, numbers=(0,))
        with serving._file_slots.taken_by("a"), serving._file_slots.taken_by("b", stranger=True):
            monkeypatch.setattr(serving._file_slots, "_count", 2)
            with pytest.raises(CallError, match="no slot is free"):
                await anext(joiner.p2p.stream(peer, Exchange.rpc_chunks, request))
        assert reads == [NAMES[0].digest]


async def test_of_a_file_no_more_is_read_than_is_sent(stations, tmp_path, monkeypatch) -> None:
    """Who asks for no chunk, or for one that there is not, has nothing read again, and pays for nothing."""
    async with stations(2) as [donor, joiner]:
        await connect(joiner.p2p, [donor.address])
        await serve(donor, fill(tmp_path / "theirs", 0))
        read, peer = noted(monkeypatch), str(donor.p2p.peer_id)

        async def ask(*numbers: int) -> list[bytes]:
            # Made by hand, as others may.
            request = ChunksMessage.model_construct(digest=NAMES[0].digest, numbers=numbers)
            return [bytes(each) async for each in joiner.p2p.stream(peer, Exchange.rpc_chunks, request)]

        assert await ask(3) == [SHARDS[0][3 * CHUNK_BYTES :]]
        assert read == [NAMES[0].digest, 3]  # it is hashed once
        for numbers in ((4,), (0, 1 << 30), ()):
            with pytest.raises(CallError) as caught:
                await ask(*numbers)
            assert caught.value.refusal is Refusal.MALFORMED
        assert read == [NAMES[0].digest, 3]
