"""Donors of text that the swarm offers who lie: nothing of theirs comes onto the disk."""

import asyncio
from pathlib import Path

import pytest

from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.p2p.rpc import CallError, Raw, Refusal
from dupt_swarm.network.states import download as download_module
from dupt_swarm.network.states import offered as offered_module
from dupt_swarm.network.states.exchange import CHUNK_BYTES_MAX, NOT_HELD, Exchange
from dupt_swarm.network.states.offered import OfferedFiles
from dupt_swarm.node.messages import OfferedMissing, OfferedName
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.offered import HEADER, offered_blob
from tests.support.fetching import fetching
from tests.support.hello import hello

SHARD = bytes(range(256)) * 6000
NAME = OfferedName(offered_blob(SHARD).digest, len(SHARD))
OTHER = bytes(range(1, 256)) * 6000
LARGE = offered_blob(bytes(NAME.most + 1))


class SilentDonor(Exchange):
    """Never sends anything."""

    @Exchange.rpc_chunks.override
    async def rpc_chunks(self, _request, _caller):
        await asyncio.Event().wait()
        yield b""


class ForgetfulDonor(Exchange):
    """Knows the blob's index, but not its chunks any more."""

    @Exchange.rpc_chunks.override
    async def rpc_chunks(self, _request, _caller):
        raise CallError(Refusal.NOT_HELD, NOT_HELD)
        yield b""


class OtherBytes(Exchange):
    """Has the right index, and sends bytes of its own."""

    @Exchange.rpc_chunks.override
    async def rpc_chunks(self, request, caller):
        async for chunk in super().rpc_chunks(request, caller):
            yield bytes(len(chunk))


class OtherLengths(Exchange):
    """Sends less than a chunk, then more than one."""

    @Exchange.rpc_chunks.override
    async def rpc_chunks(self, request, caller):
        async for chunk in super().rpc_chunks(request, caller):
            yield chunk[:100]
            yield bytes(CHUNK_BYTES_MAX)


class Endless(Exchange):
    """Goes on sending."""

    @Exchange.rpc_chunks.override
    async def rpc_chunks(self, _request, _caller):
        while True:
            yield bytes(CHUNK_BYTES_MAX)


class OtherFile(Exchange):
    """Answers with the index of another file of the same form."""

    @Exchange.rpc_index.override
    async def rpc_index(self, _request, _caller):
        return Raw(offered_blob(OTHER).index.data)


async def begin(kind: type[Exchange], station, folder: Path) -> None:
    exchange = kind(station.p2p)
    await station.p2p.serve(exchange)
    OfferedFiles(folder, exchange, lambda: [])


@pytest.mark.parametrize("kind", [OtherBytes, OtherLengths, Endless, SilentDonor, ForgetfulDonor, OtherFile])
async def test_a_donor_that_lies_is_left_out(stations, tmp_path, monkeypatch, kind) -> None:
    """Alone it gives nothing, not even half a file; an honest donor then gives all."""
    monkeypatch.setattr(download_module, "CHUNK_SECONDS", 2.0)
    monkeypatch.setattr(offered_module, "RETRY_SECONDS", (0.1,))
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    theirs.mkdir()
    (theirs / NAME.digest).write_bytes(SHARD)
    async with stations(3) as [liar, honest, joiner]:
        for donor in (liar, honest):
            await connect(joiner.p2p, [donor.address])
        await begin(kind, liar, theirs)
        await begin(Exchange, honest, theirs)
        donors = [str(liar.p2p.peer_id)]
        told: list[object] = []
        async with fetching(joiner, mine, donors, told.append) as files:
            files.want([NAME])
            while not told:
                await asyncio.sleep(0.05)
            assert isinstance(told[0], OfferedMissing)
            assert [*mine.iterdir()] == []
            donors.append(str(honest.p2p.peer_id))
            while not (mine / NAME.digest).exists():
                await asyncio.sleep(0.05)
        assert (mine / NAME.digest).read_bytes() == SHARD
        assert [path.name for path in mine.iterdir()] == [NAME.digest]
        assert (str(liar.p2p.peer_id) in files._exchange._avoided) == (kind is not ForgetfulDonor)


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        (LARGE, f"it has {NAME.most + 1:,} bytes, and not {NAME.most:,} at most"),
        (Blob.build({"kind": "tokenizer"}, [b"1"]), "it is no file of an offer"),
        (Blob.build(HEADER, [b"1", b"2"]), "it is no file of an offer"),
        (Blob.build(HEADER, []), "it is no file of an offer"),
    ],
    ids=["too large", "something else", "two sections", "no section"],
)
async def test_what_a_digest_names_may_be_no_shard(stations, tmp_path, monkeypatch, blob, reason) -> None:
    """An organiser can put any digest onto the list: it is not even fetched."""
    monkeypatch.setattr(offered_module, "RETRY_SECONDS", (0.1,))
    async with stations(2) as [donor, joiner]:
        await connect(joiner.p2p, [donor.address])

        serving = Exchange(donor.p2p)
        serving.publish(hello(), [blob])
        await donor.p2p.serve(serving)
        told: list[object] = []
        async with fetching(joiner, tmp_path / "mine", [str(donor.p2p.peer_id)], told.append) as files:
            files.want([OfferedName(blob.digest, NAME.most)])
            while not told:
                await asyncio.sleep(0.05)
        assert told[0] == OfferedMissing(reason)
        assert [*(tmp_path / "mine").iterdir()] == []
