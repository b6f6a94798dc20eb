"""Records of oracles that publish again and again, and never come to a round."""

import asyncio
import time

import torch

from dupt_swarm.network.averaging.average import Means
from dupt_swarm.network.averaging.averager import SwarmAverager
from dupt_swarm.network.averaging.rounds import Rounds
from dupt_swarm.network.members.attendance import TOLERATED
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.states.round_log import RoundLog
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.replica.state import ReplicaState
from tests.support.contributions import encoded
from tests.support.signed_records import fresh_key, id_of, store_record
from tests.support.stranger import stranger_beside

NUMEL, ROUNDS = 10, 6
PATIENCE = 4.0


def test_phantom_companions(stations, make_manifest, identities) -> None:
    """Two phantoms with fresh records cost two oracles three rounds' matchmaking, and no more than that."""
    manifest = make_manifest(
        outer={"optimizer": "nesterov", "momentum": 0.9, "learning_rate": 0.7},
        rounds={"matchmaking_seconds": PATIENCE, "chunk_seconds": 2, "allreduce_seconds": 15},
    )
    keys = [fresh_key() for _ in range(2)]

    class Oracle:
        """What a node has for its rounds."""

        def __init__(self, peer, key) -> None:
            self.peer, self.member = peer, Membership(manifest, peer.dht, key)
            self.store = StateStore(manifest, None)  # type: ignore[arg-type]
            anchor = torch.ones(NUMEL)
            self.store.replace(ReplicaState(1, 100, ((NUMEL,),), anchor, {"velocity": torch.zeros(NUMEL)}))
            means = Means(manifest, peer.p2p, key, NUMEL)
            self.averager = SwarmAverager(means, present=self.member.expected_at)

        async def open(self) -> None:
            await self.averager.open()
            traffic = self.peer.p2p.traffic.read
            self.rounds = Rounds(manifest, self.store, self.member, self.averager, RoundLog(1, 0), traffic)

        async def publish(self) -> None:
            name = self.store.name
            self.member.update(
                role="oracle",
                state="training",
                round=name.round,
                swarm_tokens=name.swarm_tokens,
                state_digest=name.digest,
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

        async def end_round(self, companions: tuple[str, ...]) -> None:
            state, average, _ = await self.rounds.end(encoded(torch.ones(NUMEL), manifest), 10, companions)
            assert (average.reason, len(average.mates)) == ("", 1) and state is not None
            self.store.replace(state)

    async def scenario() -> None:
        async with stations(2, manifest) as peers, stranger_beside(peers[0].address) as p2p:
            oracles = [
                Oracle(peer, load_identity(path)) for peer, path in zip(peers, identities, strict=False)
            ]
            for oracle in oracles:
                await oracle.open()
            seconds = []
            for _ in range(ROUNDS):
                digest = oracles[0].store.name.digest
                for oracle in oracles:
                    await oracle.publish()
                for key in keys:
                    assert await store_record(p2p, peers[0].address, manifest, key, state_digest=digest)
                seen = [await oracle.companions() for oracle in oracles]
                began = time.monotonic()
                await asyncio.gather(
                    *(oracle.end_round(others) for oracle, others in zip(oracles, seen, strict=True))
                )
                seconds.append(time.monotonic() - began)
            assert {id_of(key) for key in keys} <= {peer.peer_id for peer in oracles[0].member.view.peers}
            assert all(each >= PATIENCE for each in seconds[:TOLERATED])
            assert all(each < PATIENCE for each in seconds[TOLERATED:])
            assert peers[0].p2p.refused["absent"] == 2 * (ROUNDS - TOLERATED)

    asyncio.run(asyncio.wait_for(scenario(), 120))
