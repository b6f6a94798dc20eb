"""Strangers who want a swarm at a state of their own: real nodes, and no trainers."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Acceptance, Brought, Choice, Link
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.state import ReplicaState
from tests.support.driven_swarm import Cluster
from tests.support.hello import hello
from tests.support.publishing import Publishing
from tests.support.saved_models import small_manifest
from tests.support.signed_records import fresh_keys, id_of
from tests.support.stranger import stranger_beside
from tests.support.waiting import wait_until
from tests.support.words import said

KEYS, ROUNDS = 9, 4
ORACLES = ("ada", "eve", "bob")
LATER, LATEST = 1 << 50, (1 << 62) - 1  # rounds and tokens cost nothing to claim
STATE_OF_SECONDS = 6.0  # in 0.2 every peer had adopted it within four


class Liars(Publishing):
    """Many keys that claim one state, which one of them serves, and to which it tells links if it has any.

    Attributes:
        ids: their peer ids.
        state: what they claim: noise, in which they are the electorate.
    """

    def __init__(
        self,
        manifest: Manifest,
        addresses: tuple[str, ...],
        identity: Path,
        claimed: int,
        served: int,
        *,
        linked: bool,
    ) -> None:
        """They claim so many tokens, serve a state of so many, and tell links to it if ``linked``."""
        keys = [load_identity(identity), *fresh_keys(KEYS - 1)]
        super().__init__(manifest, addresses, keys)
        self._identity = identity
        self.ids = {id_of(key) for key in self.keys}
        noise = torch.randn(100)
        buffers = {name: torch.zeros(100) for name in sorted(build_outer(manifest).buffer_names)}
        electorate = Electorate(LATER - 1).after(self.ids, weak=True)
        self.state = ReplicaState(LATER, served, ((20, 5),), noise, buffers, electorate=electorate)
        self._claimed, self._linked = claimed, linked

    def links(self, known: Sequence[str]) -> list[Link]:
        """From where whoever asks is to their state, in one weak link, which they alone have made."""
        if not known or known[0] == self.state.digest:
            return []
        brought = tuple(Brought(peer, "0" * 64, 10) for peer in sorted(self.ids))
        choice, after = Choice(brought, weak=True), self.state.digest
        words = (Acceptance(id_of(key), known[0], 0, choice.id, after, weak=True) for key in self.keys)
        accepted = (said(self.manifest.swarm_id, *pair) for pair in zip(self.keys, words, strict=True))
        return [Link(known[0], 0, choice, after, (), tuple(accepted))]

    async def attack(self) -> None:
        async with stranger_beside(*self.addresses, identity=self._identity, kind=GuardedP2P) as p2p:
            exchange = Exchange(p2p)
            exchange.publish(hello(self.state.digest, swarm_id=self.manifest.swarm_id), [self.state.blob])
            if self._linked:
                exchange.tell_links(self.links)
            await p2p.serve(exchange)
            fields = {"state_digest": self.state.digest, "round": LATER, "swarm_tokens": self._claimed}
            while await self.publish(p2p, **fields):
                pass


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("linked", [False, True], ids=["no links", "weak links"])
@pytest.mark.parametrize(("claimed", "served"), [(LATER, LATER), (LATEST, LATEST), (LATER, 5)])
def test_many_strangers_claim_a_state_that_they_serve(
    tmp_path: Path, claimed: int, served: int, linked: bool
) -> None:
    """They are three times as many as the oracles: no peer fetches it, nor who joins then, no round fails or
    waits, and all end in one state, which is finite."""
    rounds = {"matchmaking_seconds": 2}  # soon it may seem that nobody ends a round: the others only train
    manifest = small_manifest(rounds=rounds)
    with Cluster(tmp_path, manifest, names=ORACLES) as cluster:
        cluster.end_round()
        peers = (cluster.first, *cluster.oracles)
        addresses = tuple(peer.addresses[0] for peer in peers)
        liars = Liars(manifest, addresses, tmp_path / "liar", claimed, served, linked=linked)
        with liars.at_work():
            for peer in peers:
                wait_until(lambda peer=peer: {each.peer_id for each in peer.view.oracles} >= liars.ids)  # type: ignore[misc]
            time.sleep(STATE_OF_SECONDS + 2 * manifest.rounds.searching_seconds)
            holders = {*cluster.oracles[0].view.holders(liars.state.digest)}
            assert holders <= liars.ids
            for _ in range(ROUNDS):
                cluster.end_round()
            wait_until(
                lambda: not any(peer.catching_up.fetching for peer in peers), "nobody goes on fetching"
            )
            assert {peer.catching_up.newer for peer in peers} == {None}
            assert cluster.oracles[0].state.round == 1 + ROUNDS
            cluster.add("newcomer")
            cluster.meet()
            assert len({oracle.state for oracle in cluster.oracles}) == 1
            for anchor in (oracle.anchor for oracle in cluster.oracles):
                assert bool(torch.isfinite(anchor).all())
                assert float(anchor.abs().max()) < 1.0
        assert len({oracle.state for oracle in cluster.oracles}) == 1
