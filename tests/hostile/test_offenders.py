"""A voter of a running swarm denies what it has accepted; somebody who has both words goes to one peer."""

import asyncio
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from dupt_swarm import Swarm
from dupt_swarm.disk.folders import OFFENCES_FILE
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.p2p.rpc import ANSWERED
from dupt_swarm.network.rounds.offences import ProofsMessage
from tests.support.driven_swarm import Cluster
from tests.support.lies import denied
from tests.support.saved_models import small_manifest
from tests.support.stranger import call_raw, stranger_beside
from tests.support.waiting import wait_until


def proof_against(liar: Swarm, manifest: Manifest) -> bytes:
    """What its owner can make of the identity in its folder."""
    return denied(manifest.swarm_id, load_identity(liar.folder.identity)).data


def has_exposed_one(peer: Swarm) -> bool:
    return peer.traffic.refused.get("contradiction") == 1


async def bring(address: str, proof: bytes) -> None:
    """As a stranger, to the peer at this address."""
    async with stranger_beside(address) as p2p:
        request = ProofsMessage(proofs=(proof,)).pack()
        reply = await call_raw(p2p, address, "Accusing.rpc_proofs", request)
        assert reply[:1] == ANSWERED


@pytest.mark.usefixtures("nothing_left", "quick_daemons")
def test_evidence_lasts(tmp_path: Path) -> None:
    """All leave the liar out, whoever was told first, and so does a node that was started again."""
    manifest = small_manifest()
    with Cluster(tmp_path, manifest) as cluster:
        honest, liar = cluster.oracles
        cluster.end_round()  # from now on both vote
        asyncio.run(bring(honest.addresses[0], proof_against(liar, manifest)))
        for each in (honest, cluster.first):
            wait_until(partial(has_exposed_one, each), "it is told")
            assert (each.folder.path / OFFENCES_FILE).exists()
        # Whoever looks at the swarm can read it.
        told = {"contradiction": 2}
        wait_until(lambda: told.items() <= cluster.first.view.refusals.get("messages", {}).items())
        wait_until(lambda: cluster.first.view.exposed == {liar.peer_id: 2}, "and whom they leave out")
        os.kill(honest._node._link._process.pid, signal.SIGKILL)
        wait_until(lambda: honest.restarts, "its node is replaced")
        wait_until(lambda: "and left out: 1" in honest.folder.log.read_text(), "it has not forgotten")
        wait_until(partial(has_exposed_one, honest), "nor counts twice")
        wait_until(lambda: "others leave it out for good" in liar.folder.log.read_text(), "the liar knows")
