"""Peers die, freeze and come back, at any moment; the others go on, and whoever lives heals by itself."""

import signal
import time

import pytest

from tests.support.chaos.life import assert_gone, assert_others_go_on, processes_of
from tests.support.chaos.swarm import MANIFEST, ChaosSwarm
from tests.support.waiting import wait_until

FREEZE_SECONDS = 1.5 * MANIFEST.limits.record_seconds  # the others have given it up by then


@pytest.mark.parametrize("stage", ["bringing", "promising"])
def test_an_oracle_dies_before_a_round(swarm: ChaosSwarm, stage: str) -> None:
    """A power cut as it is about to take part: the others end that round or the next, with equal states."""
    assert_others_go_on(swarm, stage)


def test_an_oracle_is_killed_alone(swarm: ChaosSwarm) -> None:
    """Kill -9 of the trainer takes its node and its daemon with it; started again, it is in step."""
    victim = swarm.join("killed")
    family = processes_of(victim)
    victim.kill()
    assert_gone(family)
    swarm.expect_rounds(1)
    victim.start()
    victim.joined()
    swarm.expect_rounds(2, [*swarm.steady, victim])
    victim.kill()


@pytest.mark.parametrize("part", ["node", "daemon"])
def test_a_node_process_is_killed(swarm: ChaosSwarm, part: str) -> None:
    """Kill -9 of the node or of p2pd: it is replaced, and the trainer goes on meanwhile."""
    victim = swarm.steady[0]
    process, node = getattr(victim, part), victim.node
    steps, restarts = len(victim.events("step")), len(victim.events("restart"))
    process.kill()
    wait_until(lambda: len(victim.events("restart")) > restarts, "the node is replaced")
    assert len(victim.events("step")) > steps
    wait_until(lambda: victim.nodes not in ([], [node]), "there is another node")
    swarm.expect_rounds(2)


def test_a_frozen_node_is_replaced(swarm: ChaosSwarm) -> None:
    """A node that hangs is killed with its daemon, and replaced."""
    victim = swarm.steady[1]
    family = [victim.node, victim.daemon]
    restarts = len(victim.events("restart"))
    family[0].send_signal(signal.SIGSTOP)
    wait_until(lambda: len(victim.events("restart")) > restarts, "the node is replaced")
    assert_gone(family)
    swarm.expect_rounds(2)


def test_a_suspended_peer_comes_back(swarm: ChaosSwarm) -> None:
    """A laptop that sleeps: the others go on meanwhile, and it is in step again after it wakes."""
    sleeper, others = swarm.steady[2], swarm.steady[:2]
    sleeper.signal(signal.SIGSTOP)
    began = time.monotonic()
    swarm.expect_rounds(2, others)
    while time.monotonic() - began < FREEZE_SECONDS:
        time.sleep(0.5)
    sleeper.signal(signal.SIGCONT)
    swarm.expect_rounds(2)


def test_the_first_peer_dies_and_comes_back(swarm: ChaosSwarm) -> None:
    """Nobody needs the first peer; when it is back, it follows the swarm, and others can join through it."""
    family = processes_of(swarm.first)
    swarm.first.kill()
    assert_gone(family)
    swarm.expect_rounds(2)
    swarm.first.start()
    assert swarm.first.joined()["address"] == swarm.address
    joiner = swarm.join("after-the-first")
    swarm.expect_rounds(2, [*swarm.steady, joiner])
    joiner.kill()


def test_a_peer_that_comes_back_finds_peers_of_old(swarm: ChaosSwarm) -> None:
    """When every initial peer is gone, an oracle rejoins through peers that it met before."""
    comer = swarm.join("comer")
    book = comer.folder / "state" / MANIFEST.swarm_id / "peers.json"
    met = [oracle.joined()["peer_id"] for oracle in swarm.steady]
    wait_until(
        lambda: book.exists() and any(peer_id in book.read_text() for peer_id in met),
        "the address book names somebody else than the first peer",
    )
    comer.kill()
    swarm.first.kill()
    comer.start()
    comer.joined()
    swarm.expect_rounds(2, [*swarm.steady, comer])
    comer.kill()
    swarm.first.start()
    swarm.first.joined()
