"""A first peer and three oracles in processes of their own, and beside them somebody who wishes them ill."""

import math
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.dialling import AGAIN_SECONDS, TOLERATED_AT_HOST
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.swarm import Swarm
from tests.hostile.test_bystanders import PORTS, bystander
from tests.support.contributions import put
from tests.support.driven_swarm import Cluster
from tests.support.publishing import Publishing
from tests.support.saved_models import small_manifest
from tests.support.signed_records import fresh_key, id_of
from tests.support.stranger import stranger_beside
from tests.support.waiting import wait_until

PATIENCE = 5.0
ORACLES = ("ada", "eve", "bob")
PHANTOMS, ROUNDS, SPOILT_MAX = 4, 5, 3


class Attacker(Publishing):
    """Publishes phantoms at whatever state the swarm is, with the addresses of a bystander.

    Attributes:
        digest: of that state.
        phantoms: their peer ids.
        calls: that the bystander got.
    """

    def __init__(self, manifest: Manifest, addresses: tuple[str, ...], digest: str) -> None:
        super().__init__(manifest, addresses, [fresh_key() for _ in range(PHANTOMS)])
        self.digest, self.calls = digest, 0
        self.phantoms = {id_of(key) for key in self.keys}

    async def attack(self) -> None:
        async with stranger_beside(*self.addresses) as p2p, bystander() as victim:
            while await self.publish(p2p, state_digest=self.digest, addresses=list(victim.addresses)):
                self.calls = victim.calls


def companions_of(oracle: Swarm) -> tuple[str, ...]:
    """As the optimizer chooses them."""
    return tuple(peer.peer_id for peer in oracle.view.companions(oracle.state.digest, oracle.peer_id))


def dials_max(seconds: float) -> int:
    """Of one peer, at one host, in so long: those tolerated, and at once, after 10, 30, 70, 150 s, …"""
    return TOLERATED_AT_HOST + 1 + int(math.log2(1 + seconds / AGAIN_SECONDS))


def sees(oracle: Swarm, expected: set[str]) -> bool:
    """Whether its companions are these."""
    return set(companions_of(oracle)) == expected


def end_round(oracles: list[Swarm], attacker: Attacker) -> float:
    """A round of the oracles, which see each other and all phantoms; the seconds that it took."""
    everybody = attacker.phantoms | {oracle.peer_id for oracle in oracles}
    for oracle in oracles:
        oracle.publish(RecordUpdate(state="training"), now=True)
    for oracle in oracles:
        expected = everybody - {oracle.peer_id}
        wait_until(partial(sees, oracle, expected))
    sizes = [put(each.contribution, torch.randn_like(each.anchor) * 1e-3, each.manifest) for each in oracles]
    began = time.monotonic()
    averaging = [oracle.average(size, 640) for oracle, size in zip(oracles, sizes, strict=True)]
    results = [one.result() for one in averaging]
    assert [result.reason for result in results] == [None] * len(oracles)
    assert len({result.state for result in results}) == 1
    for oracle, result in zip(oracles, results, strict=True):
        oracle.state = result.state or oracle.state
    assert all(bool(torch.isfinite(oracle.anchor).all()) for oracle in oracles)
    return time.monotonic() - began


@pytest.mark.system  # for its length; test_phantoms.py and test_bystanders.py show the parts
@pytest.mark.usefixtures("nothing_left")
def test_phantoms_at_a_bystanders_address(tmp_path: Path) -> None:
    """They cost three rounds their matchmaking, the bystander a few calls, and no round fails."""
    rounds = {"matchmaking_seconds": PATIENCE}
    manifest = small_manifest(rounds=rounds)
    with Cluster(tmp_path, manifest, names=ORACLES) as cluster:
        addresses = (*cluster.first.addresses, *(oracle.addresses[0] for oracle in cluster.oracles))
        attacker = Attacker(manifest, addresses, cluster.oracles[0].state.digest)
        began = time.monotonic()
        with attacker.at_work():
            seconds = []
            for _ in range(ROUNDS):
                seconds.append(end_round(cluster.oracles, attacker))
                attacker.digest = cluster.oracles[0].state.digest
            assert sum(each >= PATIENCE for each in seconds) == SPOILT_MAX, seconds
            assert all(each < PATIENCE for each in seconds[SPOILT_MAX:])
            # libp2p calls at each address that a peer has named so far, whichever of them is dialled.
            dials = len(addresses) * dials_max(time.monotonic() - began)
            assert 0 < attacker.calls <= dials * PORTS
