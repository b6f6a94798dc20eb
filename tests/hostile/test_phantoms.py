"""Oracles that never come to a round, or come and bring nothing."""

import asyncio
import hashlib
import time
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hivemind.p2p import P2P

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.host import background
from dupt_swarm.network.members.attendance import TOLERATED
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.rpc import CallError
from dupt_swarm.network.rounds.deciding import COLLECTING_RATIO, Context, Deciding
from dupt_swarm.network.rounds.messages import ReportMessage
from dupt_swarm.network.rounds.pledges import Pledges
from dupt_swarm.network.rounds.reports import Report
from dupt_swarm.network.rounds.session import Ended, Session
from dupt_swarm.network.rounds.share import Share
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Brought, Promise
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.state import ReplicaState
from tests.support.contributions import encoded
from tests.support.deciders import first_state
from tests.support.signed_records import fresh_key, id_of, tell_record
from tests.support.stranger import stranger_beside
from tests.support.words import said

NUMEL, ROUNDS = 10, 6
PATIENCE, EXCHANGE = 4.0, 6.0


class Oracle:
    """What a node has for its rounds.

    Attributes:
        state: at which it is.
    """

    def __init__(self, manifest: Manifest, peer: Any, state: ReplicaState) -> None:
        self.manifest, self.peer, self.state = manifest, peer, state
        self.member = Membership(manifest, peer.p2p, peer.key)
        self.blobs = Exchange(peer.p2p)
        exchange = Share(manifest, NUMEL, self.blobs)
        context = Context(
            manifest, peer.p2p, peer.key, self.member, exchange, Pledges(peer.folder / "pledges.json")
        )
        self.deciding = Deciding(context, lambda before: NextState(build_outer(manifest), before))
        self.deciding.on_left = self._on_left

    def _on_left(self, session: Session, ended: Ended) -> None:
        """As a node does."""
        came = frozenset(ended.link.choice.makers) - {self.peer.peer_id}
        self.member.attendance.ended(session.companions, came)

    async def open(self) -> None:
        await self.peer.p2p.serve(self.member.gossip)
        await self.peer.p2p.serve(self.blobs)
        await self.deciding.open()

    async def publish(self) -> None:
        """Where it is, and take part there."""
        state = self.state
        self.member.electorate = state.electorate
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

    async def companions(self) -> None:
        """All three others, as soon as they are seen."""
        while True:
            view = await self.member.refresh()
            if len(view.companions(self.state.digest, self.member.peer_id)) == 3:
                return
            await asyncio.sleep(0.05)

    async def end_round(self) -> frozenset[str]:
        """End one; whose contributions were in it."""
        self.deciding.reach(self.state)
        ended = await self.deciding.end(encoded(torch.ones(NUMEL), self.manifest), 10)
        assert ended is not None and ended.computed is not None and not ended.link.choice.weak
        self.state = ended.computed.after
        return frozenset(ended.link.choice.makers)


async def end_round(
    oracles: list[Oracle], p2p: P2P, keys: list[Ed25519PrivateKey]
) -> tuple[float, set[frozenset[str]]]:
    """A round of two oracles, which see one another and two phantoms; its seconds, and who was in it."""
    digest, [one, two] = oracles[0].state.digest, oracles
    assert two.state.digest == digest
    for oracle in oracles:
        await oracle.publish()
    for key in keys:
        await tell_record(p2p, one.peer.address, one.manifest, key, state_digest=digest)
    for oracle in oracles:
        await oracle.companions()
    began = time.monotonic()
    ended = await asyncio.gather(one.end_round(), two.end_round())
    return time.monotonic() - began, set(ended)


def manifest_of(make_manifest: Any) -> Manifest:
    times = {"matchmaking_seconds": PATIENCE, "chunk_seconds": 2, "allreduce_seconds": EXCHANGE}
    return make_manifest(
        outer={"optimizer": "nesterov", "momentum": 0.9, "learning_rate": 0.7},
        rounds=times,
    )


async def open_oracles(manifest: Manifest, peers: list[Any]) -> list[Oracle]:
    """At one state, whose electorate they are."""
    electorate = Electorate().after([peer.peer_id for peer in peers], weak=True)
    state = first_state(manifest, NUMEL, electorate)
    oracles = [Oracle(manifest, peer, state) for peer in peers]
    for oracle in oracles:
        await oracle.open()
    return oracles


async def test_phantom_companions(stations, make_manifest) -> None:
    """Two phantoms with fresh records cost two oracles three rounds' patience, and no more than that."""
    manifest, keys = manifest_of(make_manifest), [fresh_key() for _ in range(2)]
    async with stations(2, manifest) as peers, stranger_beside(peers[0].address) as p2p:
        oracles = await open_oracles(manifest, peers)
        rounds = [await end_round(oracles, p2p, keys) for _ in range(ROUNDS)]
        assert all(ended == {frozenset(peer.peer_id for peer in peers)} for _, ended in rounds)
        seconds = [each for each, _ in rounds]
        assert {id_of(key) for key in keys} <= {peer.peer_id for peer in oracles[0].member.view.peers}
        assert all(each >= PATIENCE for each in seconds[:TOLERATED])
        assert all(each < PATIENCE for each in seconds[TOLERATED:])
        for each in peers:
            assert each.p2p.refused["absent"] == 2 * (ROUNDS - TOLERATED)


@pytest.mark.system
async def test_members_that_bring_nothing(stations, make_manifest, identities) -> None:
    """They come with promises, and give contributions to nobody: three rounds take longer, and no more."""
    manifest = manifest_of(make_manifest)
    keys = [load_identity(path) for path in identities[2:4]]

    async def come(p2p: GuardedP2P, key: Ed25519PrivateKey, oracles: list[Oracle]) -> None:
        """To every round, for ever."""
        me = id_of(key)
        while True:
            state = oracles[0].state.digest
            brought = Brought(me, hashlib.sha256(f"{me} {state}".encode()).hexdigest(), 10)
            promise = said(manifest.swarm_id, key, Promise(me, state, 0, brought, callable=False))
            report = ReportMessage.of(Report(promise))
            for oracle in oracles:
                with suppress(CallError):
                    await p2p.call(oracle.peer.peer_id, Deciding.rpc_report, report)
            await asyncio.sleep(0.05)

    async with AsyncExitStack() as stack:
        peers = await stack.enter_async_context(stations(2, manifest))
        addresses = [peer.address for peer in peers]
        oracles = await open_oracles(manifest, peers)
        for path, key in zip(identities[2:4], keys, strict=True):
            one_of_ours = stranger_beside(*addresses, identity=path, kind=GuardedP2P)
            p2p: Any = await stack.enter_async_context(one_of_ours)
            await stack.enter_async_context(background(come(p2p, key, oracles)))
        rounds = [await end_round(oracles, p2p, keys) for _ in range(TOLERATED + 3)]
        honest = frozenset(peer.peer_id for peer in peers)
        assert all(ended == {honest} for _, ended in rounds)
        patient = [seconds for seconds, _ in rounds if seconds >= COLLECTING_RATIO * EXCHANGE]
        assert 1 <= len(patient) <= TOLERATED
        assert all(seconds < COLLECTING_RATIO * EXCHANGE for seconds, _ in rounds[-2:])
