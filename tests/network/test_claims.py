"""What a joiner and a puller make of claims; rounds/test_follow.py shows what a member makes of them."""

import asyncio
import os
from dataclasses import dataclass

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.disk.anonymous import anonymous_file
from dupt_swarm.errors import CheckpointError, NodeError
from dupt_swarm.network.joining import entry
from dupt_swarm.network.joining.entry import find_state, get_first_state, newest_attestation
from dupt_swarm.network.joining.handshake import Handshake
from dupt_swarm.network.members.attendance import CLAIMS_MAX
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.node.memory import SharedMemory
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.organiser.attestation import Attestation
from dupt_swarm.organiser.key import public_hex
from dupt_swarm.replica.state import ReplicaState
from tests.support.hello import hello
from tests.support.signed_records import id_of, signed_record, tell
from tests.support.stranger import stranger_beside

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
        self.exchange.publish(hello(self.store.name.digest), self.store.blobs)
        await self.say(self.store.current)

    async def say(self, state: ReplicaState) -> None:
        """Say that ``state`` is the current one."""
        self.member.update(
            RecordUpdate(
                role="oracle",
                state="training",
                round=state.round,
                swarm_tokens=state.swarm_tokens,
                state_digest=state.digest,
            )
        )
        await self.member.publish()


def state_of(round: int) -> ReplicaState:
    anchor = torch.full((NUMEL,), float(round))
    return ReplicaState(round, 100 * round, ((NUMEL,),), anchor, {"velocity": anchor.clone()})


@pytest.fixture
def manifest(make_manifest):
    return make_manifest(outer={"optimizer": "nesterov", "momentum": 0.9, "learning_rate": 0.7})


@pytest.fixture
def make_peers(manifest, identities):
    async def make(stations, manifest=manifest) -> list[Peer]:
        peers = []
        for station, identity in zip(stations, identities, strict=False):
            exchange = Exchange(station.p2p)
            await station.p2p.serve(exchange)
            member = Membership(manifest, station.p2p, load_identity(identity))
            await station.p2p.serve(member.gossip)
            peers.append(Peer(member, exchange, StateStore(manifest, exchange)))
        return peers

    return make


async def claim(p2p, peer: Peer, manifest, key, digest: str, tokens: int) -> None:
    """Tell ``peer`` the record of one that claims this state."""
    await tell(
        p2p,
        f"/p2p/{peer.member.peer_id}",
        signed_record(manifest, key, 5.0, round=1, state_digest=digest, swarm_tokens=tokens),
    )


async def test_a_joiner_trusts_the_peers_that_it_was_given(
    stations, manifest, make_peers, identities
) -> None:
    """The first state is that of most of the initial peers, however many others claim more."""
    now = state_of(2)
    async with (
        stations(2, manifest) as started,
        stranger_beside(started[0].address, identity=identities[3]) as p2p,
    ):
        keys = [load_identity(path) for path in identities[2:4]]
        mine, theirs = await make_peers(started)
        await theirs.hold(now)
        for number, key in enumerate(keys):
            await claim(p2p, mine, manifest, key, f"{number:064x}", 1 << 40)
        handshake = Handshake({theirs.member.peer_id: hello(now.digest)}, manifest)
        await get_first_state(mine.store, mine.member, handshake, None, None)
        assert mine.store.name.digest == now.digest
        claims = [peer.record.swarm_tokens for peer in (await mine.member.refresh()).peers]
        assert sorted(claims) == [200, 1 << 40, 1 << 40]  # none of theirs was tried


async def test_a_node_that_takes_the_place_of_one_that_left_no_whole_state(
    stations, manifest, make_peers, tmp_path
) -> None:
    """The checkpoint with which that one began has made way for newer ones: it asks the swarm."""
    now, fd = state_of(2), anonymous_file()
    async with stations(2, manifest) as started:
        mine, theirs = await make_peers(started)
        await theirs.hold(now)
        handshake = Handshake({theirs.member.peer_id: hello(now.digest)}, manifest)
        memory = SharedMemory(fd, now.layout)
        await get_first_state(mine.store, mine.member, handshake, tmp_path / "gone", memory)
        assert mine.store.name.digest == now.digest
        with pytest.raises(CheckpointError, match="gone"):
            await get_first_state(mine.store, mine.member, handshake, tmp_path / "gone", None)
    os.close(fd)


@pytest.mark.parametrize("fetchable", [True, False])
async def test_a_joiner_takes_no_state_from_a_few_of_the_peers_that_it_was_given(
    stations, manifest, make_peers, monkeypatch, fetchable
) -> None:
    """One of three serves a state of its own: not even if what the others hold cannot be had."""
    honest, lie = state_of(2), state_of(9)
    monkeypatch.setattr(entry, "STATE_SECONDS", 3.0)
    async with stations(4, manifest) as started:
        mine, *others = await make_peers(started)
        for peer, state in zip(others, (lie, honest, honest), strict=True):
            await peer.hold(state)
        if not fetchable:
            for peer in others[1:]:
                peer.exchange.publish(hello(honest.digest), [])
        hellos = {peer.member.peer_id: hello(peer.store.name.digest) for peer in others}
        joining = get_first_state(mine.store, mine.member, Handshake(hellos, manifest), None, None)
        if fetchable:
            assert await joining == "as most of the initial peers say"
            assert mine.store.name.digest == honest.digest
        else:
            with pytest.raises(NodeError, match="could not be fetched"):
                await joining


async def test_a_joiner_asks_for_others_where_the_peers_that_it_was_given_differ(
    stations, manifest, make_peers, monkeypatch
) -> None:
    """Of two, none is most: it waits for the one that may be behind, and then says what helps."""
    monkeypatch.setattr(entry, "STATE_SECONDS", 3.0)
    async with stations(3, manifest) as started:
        mine, *others = await make_peers(started)
        for peer, state in zip(others, (state_of(9), state_of(2)), strict=True):
            await peer.hold(state)
        hellos = {peer.member.peer_id: hello(peer.store.name.digest) for peer in others}
        handshake = Handshake(hellos, manifest)
        with pytest.raises(NodeError, match="name more of them, or only those that you trust"):
            await get_first_state(mine.store, mine.member, handshake, None, None)
        monkeypatch.setattr(entry, "STATE_SECONDS", 60.0)
        joining = asyncio.create_task(find_state(mine.store, mine.member, handshake))
        await others[1].hold(state_of(9))
        state, _ = await joining
        assert state.digest == state_of(9).digest


@pytest.mark.parametrize("kind", ["more tokens than its index has", "a digest that nobody serves"])
async def test_a_joiner_tries_what_an_initial_peer_had_before(
    stations, manifest, make_peers, identities, kind
) -> None:
    """What its record claims cannot be had; what it said when it was asked can."""
    old, now = state_of(1), state_of(2)
    digest = old.digest if "tokens" in kind else NOWHERE
    key = load_identity(identities[3])
    async with (
        stations(2, manifest) as started,
        stranger_beside(started[0].address, identity=identities[3]) as p2p,
    ):
        mine, theirs = await make_peers(started)
        await theirs.hold(old, now)
        await claim(p2p, mine, manifest, key, digest, 1 << 40)
        liar = id_of(key)
        handshake = Handshake({liar: hello(now.digest)}, manifest)
        await get_first_state(mine.store, mine.member, handshake, None, None)
        assert mine.store.name.digest == now.digest


async def test_a_joiner_does_not_believe_who_says_more_than_there_is(stations, manifest, make_peers) -> None:
    """The index that arrives has other tokens: whoever claimed them is left out of the view."""
    now = state_of(2)
    async with stations(2, manifest) as started:
        mine, theirs = await make_peers(started)
        await theirs.hold(now)
        theirs.member.update(RecordUpdate(swarm_tokens=1 << 40))
        await theirs.member.publish()
        handshake = Handshake({theirs.member.peer_id: hello(now.digest)}, manifest)
        state, _ = await find_state(mine.store, mine.member, handshake)
        assert state.digest == now.digest
        assert [peer.peer_id for peer in mine.member.living] == [theirs.member.peer_id]
        assert mine.member.view.peers == ()


async def test_a_joiner_that_gets_nothing_believes_the_next_claim(
    stations, manifest, make_peers, monkeypatch
) -> None:
    """Donors may be silent, or the swarm move on faster than it fetches: that is no lie."""
    *gone, now = (state_of(number) for number in range(1, CLAIMS_MAX + 2))
    failed: set[str] = set()
    fetch = StateStore.fetch

    async def noting(store: StateStore, digest: str, *rest):
        try:
            return await fetch(store, digest, *rest)
        except NodeError:
            failed.add(digest)
            raise

    monkeypatch.setattr(StateStore, "fetch", noting)
    async with stations(2, manifest) as started:
        mine, theirs = await make_peers(started)
        await theirs.say(gone[0])
        handshake = Handshake({theirs.member.peer_id: hello("")}, manifest)
        joining = asyncio.create_task(find_state(mine.store, mine.member, handshake))
        for state in gone:
            await theirs.say(state)
            while state.digest not in failed:
                await asyncio.sleep(0.05)
        assert theirs.member.peer_id in [peer.peer_id for peer in mine.member.view.peers]
        await theirs.hold(now)
        state, _ = await joining
        assert state.digest == now.digest


async def test_a_joiner_trusts_the_organiser_before_the_peers_that_it_was_given(
    stations, make_manifest, make_peers
) -> None:
    """It takes the state of the voters that the organiser has named, if more than half of them are there."""
    key = Ed25519PrivateKey.generate()
    manifest = make_manifest(
        outer={"optimizer": "nesterov", "momentum": 0.9, "learning_rate": 0.7},
        admission={"kind": "open", "organiser": public_hex(key)},
    )
    then, now, lie = state_of(2), state_of(3), state_of(9)
    async with stations(4, manifest) as started:
        mine, *others = await make_peers(started, manifest)
        for peer, state in zip(others, (now, now, lie), strict=True):
            await peer.hold(state)
        voters = [*(each.member.peer_id for each in others[:2]), "QmGone"]
        said = Attestation(manifest.swarm_id, then.round, then.digest, tuple(sorted(voters))).signed(key)
        liar = hello(lie.digest, attestation=said)
        handshake = Handshake({others[2].member.peer_id: liar}, manifest)
        word = await get_first_state(mine.store, mine.member, handshake, None, None)
        assert (mine.store.name.digest, word) == (now.digest, "as its organiser attests")


def test_what_the_organiser_has_said_last_counts(make_manifest) -> None:
    """Of what the initial peers pass on; what another has signed is nothing."""
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    manifest = make_manifest(admission={"kind": "open", "organiser": public_hex(key)})
    said = [Attestation(manifest.swarm_id, round, NOWHERE, ()) for round in (2, 7, 4, 9)]
    texts = [each.signed(key if each.round < 9 else other) for each in said]
    hellos = {text[:8]: hello(attestation=text) for text in texts}
    assert newest_attestation(Handshake(hellos, manifest)) == (said[1], texts[1])
    assert newest_attestation(Handshake({"a": hello()}, manifest)) is None


async def test_where_the_organisers_word_helps_no_more_others_are_believed_later(
    stations, make_manifest, make_peers, monkeypatch
) -> None:
    """Those that it has named differ, and nobody has the state that it has named."""
    key = Ed25519PrivateKey.generate()
    manifest = make_manifest(
        outer={"optimizer": "nesterov", "momentum": 0.9, "learning_rate": 0.7},
        admission={"kind": "open", "organiser": public_hex(key)},
    )
    now, lie = state_of(3), state_of(9)
    monkeypatch.setattr(entry, "STATE_SECONDS", 0.5)
    async with stations(4, manifest) as started:
        mine, *others = await make_peers(started, manifest)
        for peer, state in zip(others, (now, lie, lie), strict=True):
            await peer.hold(state)
        voters = sorted(each.member.peer_id for each in others[:2])
        said = Attestation(manifest.swarm_id, 2, NOWHERE, tuple(voters)).signed(key)
        handshake = Handshake({others[2].member.peer_id: hello(lie.digest, attestation=said)}, manifest)
        with pytest.raises(NodeError, match="could not be fetched"):
            await find_state(mine.store, mine.member, handshake)
        monkeypatch.setattr(entry, "STATE_SECONDS", 60.0)
        monkeypatch.setattr(entry, "ATTESTED_SECONDS", 0.0)
        _, word = await find_state(mine.store, mine.member, handshake)
        assert word == "as the initial peer says"


async def test_a_peer_that_pulls_believes_no_single_claim(stations, manifest, make_peers) -> None:
    """Where no initial peer tells what it has, only what half of the oracles have is taken away."""
    honest, lie = state_of(2), state_of(9)
    async with stations(4, manifest) as started:
        puller, *others = await make_peers(started)
        for peer, state in zip(others, (honest, honest, lie), strict=True):
            await peer.hold(state)
        handshake = Handshake({"QmGone": hello("")}, manifest)
        found, word = await find_state(puller.store, puller.member, handshake)
        assert (found.digest, word) == (honest.digest, "as half of the oracles at work say")
