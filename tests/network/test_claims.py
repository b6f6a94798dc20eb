"""Records that claim a state which is not to be had, stored by plain hivemind with a key of its own."""

import asyncio
from dataclasses import dataclass

import pytest
import torch
from hivemind.dht.crypto import RSASignatureValidator
from hivemind.utils import get_dht_time

from dupt_swarm.network.joining.entry import find_state, get_first_state
from dupt_swarm.network.joining.handshake import Handshake
from dupt_swarm.network.members.identity import load_identity, owner_tag
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.members.validator import peers_key
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.network.states.replaying import Replaying
from dupt_swarm.network.states.round_log import RoundLog
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.network.states.sync import StateSync
from dupt_swarm.replica.state import ReplicaState
from tests.support.stranger import plain_node, stranger_beside

NUMEL = 100
NOWHERE = "f" * 64


@dataclass
class Peer:
    """What a node has of states, without rounds."""

    member: Membership
    exchange: Exchange
    store: StateStore

    async def hold(self, *states: ReplicaState) -> None:
        """Serve ``states``, the last of them the current one, and say so."""
        for state in states:
            self.store.replace(state)
        name = self.store.name
        self.exchange.publish(hello_of(name.digest), self.store.blobs)
        self.member.update(
            role="oracle",
            state="training",
            round=name.round,
            swarm_tokens=name.swarm_tokens,
            state_digest=name.digest,
        )
        await self.member.publish()


def hello_of(digest: str) -> Hello:
    return Hello("0", "swarm", "{}", "", digest)


def state_of(round: int) -> ReplicaState:
    anchor = torch.full((NUMEL,), float(round))
    return ReplicaState(round, 100 * round, ((NUMEL,),), anchor, {"velocity": anchor.clone()})


@pytest.fixture
def manifest(make_manifest):
    return make_manifest(outer={"optimizer": "nesterov", "momentum": 0.9, "learning_rate": 0.7})


@pytest.fixture
def make_peers(manifest, identities):
    async def make(stations) -> list[Peer]:
        peers = []
        for station, identity in zip(stations, identities, strict=False):
            exchange = Exchange(station.p2p)
            await exchange.start()
            member = Membership(manifest, station.dht, load_identity(identity))
            peers.append(Peer(member, exchange, StateStore(manifest, exchange)))
        return peers

    return make


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 120))


async def claim(node, manifest, key, digest: str, tokens: int) -> None:
    """Store a signed record of a peer that claims this state, as plain hivemind does it."""
    record = {
        "role": "oracle",
        "state": "training",
        "time": get_dht_time(),
        "round": 1,
        "state_digest": digest,
        "swarm_tokens": tokens,
    }
    assert await node.store(
        peers_key(manifest.swarm_id),
        subkey=owner_tag(key),
        value=record,
        expiration_time=get_dht_time() + manifest.limits.record_seconds,
    )


async def nothing_follows() -> None:
    """What a node does with a newer state, here."""


@pytest.mark.parametrize("kind", ["more tokens than its index has", "a digest that nobody serves"])
def test_an_empty_claim_blocks_no_rounds(stations, manifest, make_peers, identities, kind) -> None:
    """The node tries to fetch it once, and then is behind nobody."""
    old, now = state_of(1), state_of(2)
    digest = old.digest if "tokens" in kind else NOWHERE
    key = load_identity(identities[3])

    async def scenario() -> None:
        async with (
            stations(2, manifest) as started,
            stranger_beside(started[0].address, identity=identities[3]) as p2p,
        ):
            validator = RSASignatureValidator(key)
            async with plain_node(p2p, started[0].address, validator=validator) as node:
                mine, theirs = await make_peers(started)
                await theirs.hold(old, now)  # the old one can still be fetched
                mine.store.replace(now)
                await claim(node, manifest, key, digest, 1 << 40)
                view = await mine.member.refresh()
                assert view.best.record.swarm_tokens == 1 << 40
                assert mine.store.is_behind(view, mine.member.peer_id)
                replaying = Replaying(manifest, mine.exchange, RoundLog(1, 0), mine.store.empty, always=True)
                sync = StateSync(mine.store, mine.member, replaying, lambda _: None)
                sync.follow(view, nothing_follows)
                assert sync.task is not None
                await sync.task
                view = await mine.member.refresh()
                assert [peer.peer_id for peer in view.peers] == [theirs.member.peer_id]
                assert not mine.store.is_behind(view, mine.member.peer_id)
                assert mine.store.newer is None

    run(scenario)


@pytest.mark.parametrize("kind", ["more tokens than its index has", "a digest that nobody serves"])
def test_a_joiner_tries_the_next_candidate(stations, manifest, make_peers, identities, kind) -> None:
    """A newcomer whose initial peers told it nothing passes over the empty claim, and gets the real state."""
    old, now = state_of(1), state_of(2)
    digest = old.digest if "tokens" in kind else NOWHERE
    key = load_identity(identities[3])

    async def scenario() -> None:
        async with (
            stations(2, manifest) as started,
            stranger_beside(started[0].address, identity=identities[3]) as p2p,
        ):
            validator = RSASignatureValidator(key)
            async with plain_node(p2p, started[0].address, validator=validator) as node:
                mine, theirs = await make_peers(started)
                await theirs.hold(old, now)
                await claim(node, manifest, key, digest, 1 << 40)
                handshake = Handshake({theirs.member.peer_id: hello_of("")}, manifest)
                await get_first_state(mine.store, mine.member, handshake, None, None)
                assert mine.store.name.digest == now.digest

    run(scenario)


def test_a_joiner_trusts_the_peers_that_it_was_given(stations, manifest, make_peers, identities) -> None:
    """After one empty claim comes the state of the initial peers, however many others claim more."""
    now = state_of(2)

    async def scenario() -> None:
        async with (
            stations(2, manifest) as started,
            stranger_beside(started[0].address, identity=identities[3]) as p2p,
        ):
            keys = [load_identity(path) for path in identities[2:]]
            mine, theirs = await make_peers(started)
            await theirs.hold(now)
            for number, key in enumerate(keys):
                async with plain_node(p2p, started[0].address, validator=RSASignatureValidator(key)) as node:
                    await claim(node, manifest, key, f"{number:064x}", 1 << 40)
            handshake = Handshake({theirs.member.peer_id: hello_of(now.digest)}, manifest)
            await get_first_state(mine.store, mine.member, handshake, None, None)
            assert mine.store.name.digest == now.digest
            claims = [peer.record.swarm_tokens for peer in (await mine.member.refresh()).peers]
            assert sorted(claims) == [200, 1 << 40]  # one was tried, and the others were not

    run(scenario)


def test_whoever_pulls_believes_no_single_claim(stations, manifest, make_peers) -> None:
    """A state that one peer claims and really gives is not taken away, unless half of the oracles have it."""
    honest, lie = state_of(2), state_of(9)

    async def scenario() -> None:
        async with stations(4, manifest) as started:
            puller, *others = await make_peers(started)
            for peer, state in zip(others, (honest, honest, lie), strict=True):
                await peer.hold(state)
            handshake = Handshake({others[2].member.peer_id: hello_of(lie.digest)}, manifest)
            found = await find_state(puller.store, puller.member, handshake, lambda view: view.agreed)
            assert found.digest == honest.digest
            believing = await find_state(puller.store, puller.member, handshake, lambda view: view.best)
            assert believing.digest == lie.digest

    run(scenario)
