"""A chaos swarm from its beginning to its end, and what it must not leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from dupt_swarm.manifest import Manifest
from tests.support.chaos.swarm import MANIFEST, ChaosSwarm, PeerProcess
from tests.support.leftovers import patiently, segments, sockets_folder
from tests.support.waiting import wait_until

# Within which a stage comes to an oracle: past probation it is one of four that reduce, or whose turn it is.
TURN_SECONDS = 300.0


@contextmanager
def chaos_swarm(folder: Path, manifest: Manifest = MANIFEST) -> Iterator[ChaosSwarm]:
    """A swarm that leaves no process, socket or segment behind; ``folder`` is for what its peers keep."""
    shared = segments()
    with sockets_folder() as sockets:
        with ChaosSwarm(folder, sockets, manifest) as swarm:
            yield swarm
            swarm.assert_tokens_count_once()
            families = [process for peer in swarm.peers if peer.alive for process in processes_of(peer)]
        assert_gone(families)
    assert not patiently(lambda: segments() - shared), "shared memory is left"


def processes_of(peer: PeerProcess) -> list[psutil.Process]:
    """The trainer, the node and the daemon."""
    assert peer.popen is not None
    trainer = psutil.Process(peer.popen.pid)
    return [trainer, *trainer.children(recursive=True)]


def assert_gone(processes: list[psutil.Process]) -> None:
    """Wait until none of them runs any more."""

    def runs(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    wait_until(lambda: not any(map(runs, processes)), "no orphan is left")


def assert_others_go_on(swarm: ChaosSwarm, stage: str) -> None:
    """An oracle dies at ``stage``: the others end that round or the next, and nothing is left of it."""
    victim = swarm.join(f"dies-in-{stage}", stage)
    family = processes_of(victim)
    wait_until(lambda: not victim.alive, f"it dies in {stage}", TURN_SECONDS)
    swarm.expect_rounds(1)
    assert_gone(family)
