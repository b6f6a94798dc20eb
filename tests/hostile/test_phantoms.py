"""Oracles that never come to a round, or come and bring nothing."""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest
import torch
from hivemind.p2p import P2P
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.exchange import RoundContext
from dupt_swarm.network.averaging.roll import Statement
from dupt_swarm.network.averaging.roll_call import RollCall
from dupt_swarm.network.averaging.rounds import Rounds, SwarmAverager
from dupt_swarm.network.host import background
from dupt_swarm.network.members.attendance import TOLERATED
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.replaying import RoundLog
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.state import ReplicaState
from tests.support.averages import Anybody
from tests.support.contributions import encoded
from tests.support.signed_records import fresh_key, id_of, tell_record
from tests.support.stranger import stranger_beside

NUMEL, ROUNDS = 10, 6
PATIENCE = 4.0


class Oracle:
    """What a node has for its rounds."""

    def __init__(self, manifest: Manifest, peer: Any) -> None:
        self.manifest, self.peer = manifest, peer
        self.member = Membership(manifest, peer.p2p, peer.key)
        self.store, self.blobs = StateStore(manifest, None), Exchange(peer.p2p)  # type: ignore[arg-type]
        anchor = torch.ones(NUMEL)
        self.store.replace(ReplicaState(1, 100, ((NUMEL,),), anchor, {"velocity": torch.zeros(NUMEL)}))
        self.averager = SwarmAverager(
            RoundContext(manifest, peer.p2p, peer.key, NUMEL, self.blobs), self.member
        )

    async def open(self) -> None:
        await self.member.gossip.start()
        await self.blobs.start()
        await self.averager.open()
        log, p2p = RoundLog(1, 0), self.peer.p2p
        self.rounds = Rounds(self.manifest, self.store, self.member, self.averager, log, lambda: p2p.counts)

    async def publish(self) -> None:
        name = self.store.name
        self.member.update(
            RecordUpdate(
                role="oracle",
                state="training",
                round=name.round,
                swarm_tokens=name.swarm_tokens,
                state_digest=name.digest,
            )
        )
        await self.member.publish()

    async def companions(self) -> tuple[str, ...]:
        """All three others, as soon as they are seen."""
        while True:
            view = await self.member.refresh()
            found = view.companions(self.store.name.digest, self.member.peer_id)
            if len(found) == 3:
                return tuple(peer.peer_id for peer in found)
            await asyncio.sleep(0.05)

    async def end_round(self, companions: tuple[str, ...]) -> str:
        """End one; who averaged with us, or why it failed."""
        contribution = encoded(torch.ones(NUMEL), self.manifest)
        state, average, _ = await self.rounds.end(contribution, 10, companions)
        if state is None:
            return str(average.reason)
        self.store.replace(state)
        return " ".join(average.mates)


async def end_round(oracles: list[Oracle], p2p: P2P, keys: list[RSAPrivateKey]) -> tuple[float, set[str]]:
    """A round of two oracles, which see one another and two phantoms; its seconds, and what came of it."""
    digest, [one, two] = oracles[0].store.name.digest, oracles
    for oracle in oracles:
        await oracle.publish()
    for key in keys:
        await tell_record(p2p, one.peer.address, one.manifest, key, state_digest=digest)
    seen = [await oracle.companions() for oracle in oracles]
    began = time.monotonic()
    ended = await asyncio.gather(one.end_round(seen[0]), two.end_round(seen[1]))
    seconds = time.monotonic() - began
    behind, ahead = sorted(oracles, key=lambda oracle: oracle.store.current.round)
    if behind.store.name != ahead.store.name:  # it follows, as nodes do
        behind.store.replace(ahead.store.current)
    return seconds, set(ended)


def manifest_of(make_manifest: Any) -> Manifest:
    times = {"matchmaking_seconds": PATIENCE, "chunk_seconds": 2, "allreduce_seconds": 6}
    return make_manifest(
        outer={"optimizer": "nesterov", "momentum": 0.9, "learning_rate": 0.7},
        rounds=times,
    )


def test_phantom_companions(stations, make_manifest) -> None:
    """Two phantoms with fresh records cost two oracles three rounds' matchmaking, and no more than that."""
    manifest, keys = manifest_of(make_manifest), [fresh_key() for _ in range(2)]

    async def scenario() -> None:
        async with stations(2, manifest) as peers, stranger_beside(peers[0].address) as p2p:
            oracles = [Oracle(manifest, peer) for peer in peers]
            for oracle in oracles:
                await oracle.open()
            rounds = [await end_round(oracles, p2p, keys) for _ in range(ROUNDS)]
            assert all(ended == {peer.peer_id for peer in peers} for _, ended in rounds)
            seconds = [each for each, _ in rounds]
            assert {id_of(key) for key in keys} <= {peer.peer_id for peer in oracles[0].member.view.peers}
            assert all(each >= PATIENCE for each in seconds[:TOLERATED])
            assert all(each < PATIENCE for each in seconds[TOLERATED:])
            assert peers[0].p2p.refused["absent"] == 2 * (ROUNDS - TOLERATED)

    asyncio.run(asyncio.wait_for(scenario(), 120))


@pytest.mark.system
def test_members_that_bring_nothing(stations, make_manifest, identities) -> None:
    """They come with statements, and give contributions to nobody: that costs three rounds, and no more."""
    manifest = manifest_of(make_manifest)
    keys = [load_identity(path) for path in identities[2:]]

    async def come(rolls: RollCall, key: RSAPrivateKey, oracles: list[Oracle]) -> None:
        """To every round, for ever."""
        while True:
            name = oracles[0].store.name
            claim = Claim(name.round, name.digest, 10, id_of(key))
            statement = Statement.make(manifest.swarm_id, claim, "0" * 64, key, callable=False)
            await rolls.assemble(statement, {oracle.peer.peer_id for oracle in oracles})
            await asyncio.sleep(0.05)

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            peers = await stack.enter_async_context(stations(2, manifest))
            addresses = [peer.address for peer in peers]
            oracles = [Oracle(manifest, peer) for peer in peers]
            for oracle in oracles:
                await oracle.open()
            for path, key in zip(identities[2:], keys, strict=True):
                one_of_ours = stranger_beside(*addresses, identity=path, kind=GuardedP2P)
                p2p = await stack.enter_async_context(one_of_ours)
                rolls = RollCall(RoundContext(manifest, p2p, key, NUMEL, callable=False), Anybody())
                await stack.enter_async_context(background(come(rolls, key, oracles)))
            rounds = [await end_round(oracles, p2p, keys) for _ in range(TOLERATED + 3)]
            honest = {peer.peer_id for peer in peers}
            # Half of four are not more than half: no round ends with both in it. (One may be late for one,
            # and of two that are not equally late one may end the round and the other be without its vote.)
            failed = [ended for _, ended in rounds if ended != honest]
            assert 1 <= len(failed) <= TOLERATED
            assert all(ended - honest <= {"timeout", "peer_lost", "no_quorum"} for ended in failed)
            assert [ended for _, ended in rounds[-2:]] == [honest] * 2
            assert all(seconds < PATIENCE for seconds, _ in rounds[-2:])

    asyncio.run(asyncio.wait_for(scenario(), 180))
