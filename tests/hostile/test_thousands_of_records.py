"""More long records than there are places, in the names of many keys, beside real nodes."""

import asyncio
import contextlib
from pathlib import Path

import psutil
import pytest
from hivemind.p2p import P2P, P2PHandlerError

from dupt_swarm.network.members.records import RECORDS_MAX
from dupt_swarm.swarm import Swarm
from tests.support.driven_swarm import Cluster
from tests.support.publishing import Publishing
from tests.support.saved_models import small_manifest
from tests.support.signed_records import fresh_keys, signed_record, tell
from tests.support.stranger import stranger_beside
from tests.support.waiting import wait_until

RECORDS, AT_ONCE = 2700, 64
RECORD_SECONDS = 120.0  # a busy machine, too, has time to store them all before the first ones expire
GROWTH_BYTES_MAX = 128 << 20  # of a node, and of its daemon
PATIENCE_SECONDS = 240.0
# 1.6 KB each, with the signature.
LONG = {
    "role": "bootstrap",
    "state": "serving",
    "credential": "A" * 400,
    "evaluation": {
        "dataset": "text",
        "loss_nats": 1.0,
        "round": 0,
        "time": 1.0,
        "sample": {"prompt": "x" * 300, "text": "y" * 300},
    },
}


class Crowd(Publishing):
    """Tells all peers a long record of each key, again and again."""

    async def attack(self) -> None:
        async with stranger_beside(*self.addresses) as p2p:
            while not self._stop.is_set():
                for first in range(0, len(self.keys), AT_ONCE):
                    some = self.keys[first : first + AT_ONCE]
                    told = [signed_record(self.manifest, key, RECORD_SECONDS, **LONG) for key in some]
                    await asyncio.gather(*(self._tell(p2p, each, told) for each in self.addresses))

    async def _tell(self, p2p: P2P, address: str, told: list[bytes]) -> None:
        for data in told:
            with contextlib.suppress(P2PHandlerError):  # too many calls, as it says
                await tell(p2p, address, data, urgent=True)


def memory_of_nodes() -> dict[int, int]:
    """Of each node that is a child of this process, and of its daemon, by their pids."""
    nodes = [process for process in psutil.Process().children() if process.children()]
    families = [process for node in nodes for process in (node, *node.children())]
    return {process.pid: process.memory_info().rss for process in families}


def is_crowded(peer: Swarm) -> bool:
    return len(peer.view.peers) == RECORDS_MAX


def refused_by_all(peer: Swarm) -> int:
    """Entries for which there was no place, as ``peer`` reads it in all records."""
    return peer.view.refusals.get("messages", {}).get("full", 0)


@pytest.mark.system  # for its length; test_eclipse.py shows it with few places
@pytest.mark.usefixtures("nothing_left")
def test_thousands_of_long_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All places that are free are taken, and no more: honest peers still see one another and end rounds,
    memory is bounded, no node is replaced, and their records say that they have refused the rest."""
    monkeypatch.setenv("GOGC", "100")  # as users have it
    manifest = small_manifest(limits={"record_seconds": RECORD_SECONDS})
    with Cluster(tmp_path, manifest, names=("ada", "eve", "bob")) as cluster:
        cluster.end_round()
        peers, before = (cluster.first, *cluster.oracles), memory_of_nodes()
        addresses, honest = [peer.addresses[0] for peer in peers], {peer.peer_id for peer in peers}
        with Crowd(manifest, addresses, fresh_keys(RECORDS)).at_work():
            wait_until(lambda: all(map(is_crowded, peers)), "all places are taken", PATIENCE_SECONDS)
            assert all(honest <= {peer.peer_id for peer in each.view.peers} for each in peers)
            cluster.end_round()
            wait_until(lambda: refused_by_all(cluster.first) > RECORDS - RECORDS_MAX, "they say so")
        after = memory_of_nodes()
        assert after.keys() == before.keys()
        grown = [after[pid] - before[pid] for pid in before]
        assert max(grown) < GROWTH_BYTES_MAX, [size >> 20 for size in grown]
