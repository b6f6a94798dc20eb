"""Initial peers that lie to whoever joins."""

import asyncio
import dataclasses
import hashlib
import logging
from collections.abc import Awaitable, Callable

import pytest
import torch
from hivemind.p2p import P2P, PeerID

from dupt_swarm import Swarm
from dupt_swarm.errors import ManifestError
from dupt_swarm.network.joining.handshake import get_tokenizer, introduce
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.p2p.rpc import ANSWERED
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.replica.blob import Blob
from dupt_swarm.settings import NodeSettings
from tests.support.hello import hello
from tests.support.saved_models import small_tokenizer
from tests.support.stranger import answer_raw, stranger_beside
from tests.support.tiny import settings, tiny_manifest

TOKENIZER = small_tokenizer().to_bytes()
MANIFEST = tiny_manifest(hashlib.sha256(TOKENIZER).hexdigest())
OTHER = MANIFEST.model_copy(update={"seed": MANIFEST.seed + 1})
BLOB = Blob.build({"kind": "tokenizer"}, [TOKENIZER])
HONEST = hello(
    "a" * 64,
    swarm_id=MANIFEST.swarm_id,
    manifest=MANIFEST.canonical_bytes().decode(),
    tokenizer_blob=BLOB.digest,
)
Answer = Callable[[], Awaitable[bytes]]


def saying(**changes: str) -> Answer:
    async def answer() -> bytes:
        return HONEST.model_copy(update=changes).pack()

    return answer


async def nothing() -> bytes:
    return b""


async def silence() -> bytes:
    await asyncio.Event().wait()
    raise AssertionError


async def nonsense() -> bytes:
    return b"\x1b[2J" + b"[" * 3000


# What one of the initial peers says instead of the truth.
LIES: dict[str, Answer] = {
    "another manifest": saying(manifest=OTHER.canonical_bytes().decode(), swarm_id=OTHER.swarm_id),
    "another manifest, as the swarm's": saying(manifest=OTHER.canonical_bytes().decode()),
    "no manifest": saying(manifest="{}"),
    "another tokenizer": saying(tokenizer_blob="b" * 64),
    "nothing": nothing,
    "silence": silence,
    "nonsense": nonsense,
}


async def lie(p2p: P2P, answer: Answer) -> str:
    """Let ``p2p`` say this to whoever asks who it is; its address."""

    async def hello(_request: bytes, _caller: PeerID) -> bytes:
        return ANSWERED + await answer()

    await answer_raw(p2p, "Exchange.rpc_hello", hello)
    return str((await p2p.get_visible_maddrs())[0])


@pytest.fixture(autouse=True)
def _soon(monkeypatch) -> None:
    method = Exchange.rpc_hello
    monkeypatch.setattr(method, "bounds", dataclasses.replace(method.bounds, seconds=1.0))


@pytest.mark.parametrize("kind", LIES)
@pytest.mark.parametrize("named", [True, False], ids=["the swarm is named", "it is not"])
async def test_one_initial_peer_lies(stations, caplog, kind: str, named: bool) -> None:
    """The first of three initial peers does; who joins gets manifest and tokenizer from the others."""
    caplog.set_level(logging.WARNING, "dupt_swarm")
    async with stations(3) as peers, stranger_beside(*(peer.address for peer in peers)) as liar:
        me, *honest = peers
        for peer in honest:
            exchange = Exchange(peer.p2p)
            exchange.publish(HONEST, [BLOB])
            await peer.p2p.serve(exchange)
        addresses = [await lie(liar, LIES[kind]), *(peer.address for peer in honest)]
        for address in addresses:
            await connect(me.p2p, [address])
        expected = NodeSettings("oracle", swarm_id=MANIFEST.swarm_id if named else "")
        exchange = Exchange(me.p2p)
        handshake = await introduce(exchange, expected, addresses)
        assert handshake.manifest == MANIFEST
        assert await get_tokenizer(exchange, expected, handshake) == TOKENIZER
        if "another manifest" in kind:
            assert handshake.share(addresses) == addresses[1:]
            assert f"{liar.peer_id} is left out" in caplog.text


async def test_one_of_two_lies(stations) -> None:
    """Nothing says which of the two is right: the error names both, and how to say it."""
    async with stations(2) as [me, honest], stranger_beside(me.address, honest.address) as liar:
        exchange = Exchange(honest.p2p)
        exchange.publish(HONEST, [BLOB])
        await honest.p2p.serve(exchange)
        addresses = [await lie(liar, LIES["another manifest"]), honest.address]
        await connect(me.p2p, addresses)
        with pytest.raises(ManifestError, match=r"different swarms.*say which one") as caught:
            await introduce(Exchange(me.p2p), NodeSettings("oracle"), addresses)
        assert str(liar.peer_id) in str(caught.value) and OTHER.swarm_id in str(caught.value)
        assert caught.value.settings == ("swarm_id", "initial_peers")
        named = NodeSettings("oracle", swarm_id=MANIFEST.swarm_id)
        assert (await introduce(Exchange(me.p2p), named, addresses)).manifest == MANIFEST


async def test_a_manifest_that_no_initial_peer_shares(stations) -> None:
    """A first peer with a run.toml of its own is told what differs, and that one of both has to give way."""
    async with stations(1) as [me], stranger_beside(me.address) as other:
        address = await lie(other, LIES["another manifest"])
        await connect(me.p2p, [address])
        own = NodeSettings("bootstrap", manifest=MANIFEST.canonical_bytes())
        with pytest.raises(ManifestError, match=r"is .* here and .* there; take their run\.toml") as caught:
            await introduce(Exchange(me.p2p), own, [address])
        assert caught.value.settings == ("initial_peers",)


@pytest.mark.usefixtures("nothing_left")
async def test_an_oracle_joins_beside_a_liar(tmp_path) -> None:
    """With a liar named first and the swarm's id given, an oracle joins the swarm that it wants."""
    parameters = [torch.zeros(20, 5)]
    with Swarm.create(MANIFEST, TOKENIZER, parameters, tmp_path / "f", settings("bootstrap")) as first:
        async with stranger_beside(*first.addresses) as p2p:
            initial = (await lie(p2p, LIES["another manifest"]), *first.addresses)
            named = dataclasses.replace(settings(), swarm_id=MANIFEST.swarm_id)
            with await asyncio.to_thread(Swarm.join, initial, tmp_path / "o", named) as oracle:
                assert oracle.state.digest == first.state.digest
