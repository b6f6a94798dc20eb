"""Strangers who want a swarm at a state of their own: real nodes, and no trainers."""

import time
from pathlib import Path

import pytest
import torch

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.voters import Voters
from tests.support.driven_swarm import Cluster
from tests.support.publishing import Publishing
from tests.support.saved_models import small_tokenizer
from tests.support.signed_records import id_of, many_keys
from tests.support.stranger import stranger_beside
from tests.support.tiny import tiny_manifest
from tests.support.waiting import wait_until

KEYS, ROUNDS = 9, 4
ORACLES = ("ada", "eve", "bob")
LATER, LATEST = 1 << 50, (1 << 62) - 1  # rounds and tokens cost nothing to claim
STATE_OF_SECONDS = 6.0  # in 0.2 every peer had adopted it within four


class Liars(Publishing):
    """Many keys that claim one state, which one of them serves.

    Attributes:
        ids: their peer ids.
        state: what they claim: noise, in which they are the voters.
    """

    def __init__(
        self, manifest: Manifest, addresses: tuple[str, ...], identity: Path, claimed: int, served: int
    ) -> None:
        """They claim so many tokens in their records, and serve a state of so many."""
        keys = [load_identity(identity), *many_keys(KEYS - 1)]
        super().__init__(manifest, addresses, keys)
        self._identity = identity
        self.ids = {id_of(key) for key in self.keys}
        noise, buffers = torch.randn(100), {"velocity": torch.zeros(100)}
        self.state = ReplicaState(LATER, served, ((20, 5),), noise, buffers, Voters().after(1, self.ids))
        self._claimed = claimed

    async def attack(self) -> None:
        async with stranger_beside(*self.addresses, identity=self._identity) as p2p:
            exchange = Exchange(p2p)
            exchange.publish(
                Hello("0", self.manifest.swarm_id, "{}", "", self.state.digest), [self.state.blob]
            )
            await exchange.start()
            fields = {"state_digest": self.state.digest, "round": LATER, "swarm_tokens": self._claimed}
            while await self.publish(p2p, **fields):
                pass


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("claimed", "served"), [(LATER, LATER), (LATEST, LATEST), (LATER, 5)])
def test_many_strangers_claim_a_state_that_they_serve(tmp_path: Path, claimed: int, served: int) -> None:
    """They are three times as many as the oracles: no peer fetches it, nor who joins then, no round fails or
    waits, and all end in one state, which is finite."""
    tokenizer = small_tokenizer()
    manifest = tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size)
    with Cluster(tmp_path, manifest, [torch.zeros(20, 5)], ORACLES) as cluster:
        cluster.end_round()
        peers = (cluster.first, *cluster.oracles)
        addresses = tuple(peer.addresses[0] for peer in peers)
        liars = Liars(manifest, addresses, tmp_path / "liar", claimed, served)
        with liars.at_work():
            for peer in peers:
                wait_until(lambda peer=peer: {each.peer_id for each in peer.view.oracles} >= liars.ids)  # type: ignore[misc]
            time.sleep(STATE_OF_SECONDS)
            for _ in range(ROUNDS):
                cluster.end_round()
            assert {peer.catching_up.newer for peer in peers} == {None}
            assert not any(peer.catching_up.fetching for peer in peers)
            assert cluster.oracles[0].state.round == 1 + ROUNDS
            cluster.add("newcomer")
            cluster.meet()
            assert len({oracle.state for oracle in cluster.oracles}) == 1
            for anchor in (oracle.anchor for oracle in cluster.oracles):
                assert bool(torch.isfinite(anchor).all())
                assert float(anchor.abs().max()) < 1.0
        assert len({oracle.state for oracle in cluster.oracles}) == 1
