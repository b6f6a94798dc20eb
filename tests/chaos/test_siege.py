"""A swarm of real processes that somebody attacks in all ways at once, while it trains."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest

from tests.support.chaos import besieger
from tests.support.chaos.life import chaos_swarm
from tests.support.chaos.swarm import MANIFEST, ChaosSwarm, PeerProcess
from tests.support.programs import dupt_peer
from tests.support.waiting import wait_until
from tests.support.warm import Program

TURNS = 3
GROWTH_BYTES_MAX = 200 << 20  # of a node, and of its daemon
PATIENCE_SECONDS = 240.0
# What there is to learn is which tokens occur at all: log(300 / 16) nats.
TOKENS, LEARNT_NATS_MIN, STEPS = 16, 1.0, 10
HARM_NATS_MAX = 0.2  # the mean of so few steps differs by less


@contextmanager
def besieged(swarm: ChaosSwarm, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Inside, a process attacks all peers of the swarm; a line for each turn is in the file ``turns``."""
    manifest = folder / "manifest"
    manifest.write_bytes(MANIFEST.canonical_bytes())
    addresses = [swarm.address, *(peer.joined()["address"] for peer in swarm.steady)]
    with (folder / "turns").open("w") as turns:
        program = Program(
            [sys.executable, besieger.__file__, str(manifest), *addresses], stdout=turns, text=True
        )
    try:
        yield program
    finally:
        program.terminate()
        program.communicate()


def memory_of(peer: PeerProcess) -> tuple[int, int]:
    return peer.node.memory_info().rss, peer.daemon.memory_info().rss


def refused(swarm: ChaosSwarm) -> dict[str, int]:
    """What the peers say that they have refused, by reason."""
    shown = json.loads(dupt_peer("status", "--initial-peers", swarm.address, "--json").stdout)
    found: dict[str, int] = shown["refused"].get("messages", {})
    return found


def stalls_of(peer: PeerProcess, since: float) -> list[float]:
    """Seconds from each state to the next that it had from then on."""
    times = [event["time"] for event in peer.events("state") if event["time"] >= since]
    return [after - before for before, after in pairwise(times)]


def losses_of(peer: PeerProcess, since: float) -> tuple[float, float, float]:
    """In its first steps, in the first ones from then on, and in the last ones."""
    steps = peer.events("step")
    before = [event["loss"] for event in steps if event["time"] < since]
    after = [event["loss"] for event in steps if event["time"] >= since]
    return fmean(before[:STEPS]), fmean(after[:STEPS]), fmean(after[-STEPS:])


@pytest.mark.system
def test_a_siege(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds as all presets have them go on with equal and finite states, none of which takes longer than a
    round may, the loss falls, no process is replaced, memory is bounded, and all can read of it."""
    monkeypatch.setenv("DUPT_CHAOS_TOKENS", str(TOKENS))
    with chaos_swarm(tmp_path) as swarm:
        peers = [swarm.first, *swarm.steady]
        processes = [(peer.node.pid, peer.daemon.pid) for peer in peers]
        before, failures, began = [memory_of(peer) for peer in peers], len(swarm.failures), swarm.round
        since = time.time()
        with besieged(swarm, tmp_path) as program:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len((tmp_path / "turns").read_text().splitlines()) < TURNS:
                assert program.poll() is None
                assert time.monotonic() < deadline
                swarm.expect_rounds(1)
            counts = wait_until(lambda: refused(swarm), "they tell what they refuse", pause=1.0)
        assert swarm.round - began >= TURNS
        swarm.expect_rounds(2)
        assert {"size", "form", "rate", "open"} <= counts.keys()
        assert len(swarm.failures) - failures <= len(swarm.steady)  # the round in flight
        for peer in swarm.steady:
            assert max(stalls_of(peer, since)) < MANIFEST.rounds.limit_seconds
            assert all(event["finite"] for event in peer.events("state"))
            first, then, now = losses_of(peer, since)
            assert first - now > LEARNT_NATS_MIN
            assert now - then < HARM_NATS_MAX
        assert all(peer.alive for peer in peers)
        assert [(peer.node.pid, peer.daemon.pid) for peer in peers] == processes
        assert [peer.events("restart") for peer in swarm.steady] == [[], [], []]
        grown = [
            after - size
            for peer, sizes in zip(peers, before, strict=True)
            for size, after in zip(sizes, memory_of(peer), strict=True)
        ]
        assert max(grown) < GROWTH_BYTES_MAX, [size >> 20 for size in grown]
