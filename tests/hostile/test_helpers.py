"""Peers that are asked to dial back, and lie."""

import json
from pathlib import Path

import pytest
from hivemind.p2p import P2P, PeerID

from dupt_swarm.network.p2p.daemon import answering, dial_all
from dupt_swarm.network.p2p.rpc import ANSWERED
from dupt_swarm.network.reach.dialback import DialBack
from dupt_swarm.network.reach.reachability import Started, Verdict, is_outdated, probe
from dupt_swarm.network.reach.starting import start_daemon
from dupt_swarm.settings import NodeSettings
from tests.support.stranger import answer_raw, stranger_beside

EVERYWHERE = ("/ip4/0.0.0.0/tcp/0",)
VICTIM = "8.8.8.8"
DIALLED, UNDIALLED = "", "connection refused"


async def test_one_that_has_a_node_replaced(stations, tmp_path) -> None:
    """Neither a known peer that lies, nor one of two initial ones, makes anybody doubt what was found out."""
    async with stations(1) as [peer], stranger_beside(peer.address) as liar:
        helper = await answer_always(liar, UNDIALLED)
        await peer.p2p.serve(DialBack(peer.p2p, list))
        for initial, known in [((peer.address,), (helper,)), ((peer.address, helper), ())]:
            settings = NodeSettings("oracle", initial_peers=initial, host_maddrs=EVERYWHERE)
            p2p = await start_daemon(settings, tmp_path)
            try:
                assert await is_outdated(Started(p2p, "direct", {}), settings, known) is False
                assert await is_outdated(Started(p2p, "client", {}), settings, known) is False
            finally:
                await p2p.shutdown()


async def answer_always(p2p: P2P, reason: str) -> str:
    """``p2p`` says this of all that it is asked to dial, and that the caller comes from elsewhere.

    Returns:
        its address.
    """

    async def answer(data: bytes, _caller: PeerID) -> bytes:
        wanted = json.loads(data)["addresses"]
        answer = {"observed": VICTIM, "reasons": dict.fromkeys(wanted, reason), "relays": []}
        return ANSWERED + json.dumps(answer).encode()

    await answer_raw(p2p, "DialBack.rpc_dial_back", answer)
    return str((await p2p.get_visible_maddrs())[0])


async def verdict(folder: Path, *helpers: str, known: tuple[str, ...] = ()) -> Verdict:
    """What a peer that asks these helpers finds out."""
    settings = NodeSettings("oracle", initial_peers=helpers, host_maddrs=EVERYWHERE)
    p2p = await start_daemon(settings, folder)
    try:
        return await probe(p2p, settings, answering(await dial_all(p2p, helpers)), known)
    finally:
        await p2p.shutdown()


@pytest.mark.parametrize("known", [False, True], ids=["initial peers", "peers met before"])
async def test_one_that_says_nobody_can_dial(stations, tmp_path, known: bool) -> None:
    """A liar among three sends nobody to the relays; two of them may be peers met before."""
    async with stations(2) as peers, stranger_beside(peers[0].address) as p2p:
        for peer in peers:
            await peer.p2p.serve(DialBack(peer.p2p, list))
        liar, honest = await answer_always(p2p, UNDIALLED), tuple(peer.address for peer in peers)
        found = await (verdict(tmp_path, liar, known=honest) if known else verdict(tmp_path, liar, *honest))
        assert (found.kind, found.announced) == ("local", ())


async def test_one_that_says_everybody_can_dial(stations, tmp_path) -> None:
    """A liar among three makes nobody believe that it can be dialled, nor announce an address of another."""
    async with (
        stations(1) as [peer],
        stranger_beside(peer.address) as liar,
        stranger_beside(peer.address) as other,
    ):
        # Those two cannot dial: as when a router is between.
        helpers = [await answer_always(liar, DIALLED)]
        helpers += [await answer_always(other, UNDIALLED)]
        found = await verdict(tmp_path, *helpers)
        assert (found.kind, found.announced) == ("client", ())
        await peer.p2p.serve(DialBack(peer.p2p, list))
        found = await verdict(tmp_path, *helpers, peer.address)
        # Most could dial, and the address that the liar claims to have seen is announced by nobody.
        assert (found.kind, found.announced) == ("local", ())
