"""What does churn cost the oracles that stay?

A first peer and eight oracles train the tiny preset's model, each in a process of its own with its own
node. Calm periods alternate with periods of churn: every ten seconds, a random oracle is killed (kill -9)
or a new one joins. Oracles take inner steps at a fixed pace, below what the machine can do, so each has the
same compute in both.

How to read it:

    rounds     rounds per minute with churn ÷ rounds per minute without: 1 means that churn costs nothing
    stall      the longest time between two rounds; the limit is the manifest's for a round
    lost       tokens trained on that will never enter a state ÷ tokens trained on; and the same per kill,
               in contributions of one oracle

    PYTHONPATH=. python benchmarks/churn.py [--minutes 5] [--oracles 8] [--seed 0] [--file PATH]
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
from _runs import Run, append, file_option

from dupt_swarm.manifest import Manifest
from peers.demo import LOOPBACK
from tests.support.chaos.swarm import TOKENIZER, PeerProcess
from tests.support.tiny import tiny_manifest
from tests.support.waiting import wait_until

EVENT_SECONDS = 10.0
PERIODS = 4  # calm and churn alternate, each twice
STEP_SECONDS, STEPS_PER_ROUND, TOKENS_PER_STEP = 2.0, 6, 64


def manifest() -> Manifest:
    """A model of the tiny preset's size, with a short context: steps are cheap, and averaging is not."""
    return tiny_manifest(
        hashlib.sha256(TOKENIZER).hexdigest(),
        vocabulary_size=4096,
        model={"layers": 4, "heads": 4, "width": 256, "hidden_width": 1024},
        rounds={
            "tokens_per_step": TOKENS_PER_STEP,
            "tokens_per_round": TOKENS_PER_STEP * STEPS_PER_ROUND,
            "max_round_seconds": 60,
            "matchmaking_seconds": 6,
            "chunk_seconds": 5,
            "allreduce_seconds": 30,
        },
        # Muon would take more of the processor than there is: it is the network that is maltreated.
        inner={"optimizer": "adamw"},
        limits={"record_seconds": 12},
    )


@dataclass
class Tally:
    """Totals over the periods of one kind."""

    seconds: float = 0.0
    rounds: int = 0
    stall: float = 0.0
    kills: int = 0
    joins: int = 0


@dataclass
class Herd:
    """The swarm, and every oracle that was ever in it."""

    folder: Path
    size: int
    random: random.Random
    oracles: list[PeerProcess] = field(default_factory=list)

    def open(self) -> None:
        """Start the first peer and all oracles."""
        self.manifest = manifest()
        self.first = self._peer("first", "bootstrap", ())
        self.first.start()
        self.address = self.first.joined()["address"]
        self.fill()

    def fill(self) -> None:
        """Start oracles until there are enough, and wait until they are ready."""
        for peer in [self.add() for _ in range(self.size - len(self.living))]:
            peer.joined()

    @property
    def living(self) -> list[PeerProcess]:
        return [peer for peer in self.oracles if peer.alive]

    def add(self) -> PeerProcess:
        """Start one more oracle."""
        peer = self._peer(f"oracle-{len(self.oracles)}", "oracle", (self.address,))
        self.oracles.append(peer)
        peer.start()
        return peer

    def disturb(self, tally: Tally) -> None:
        """Kill an oracle, or start one."""
        living = self.living
        few, many = len(living) <= self.size // 2, len(living) >= self.size
        if not many and (few or self.random.random() < 0.5):
            self.add()
            tally.joins += 1
        else:
            self.random.choice(living).kill()
            tally.kills += 1

    def newest(self) -> int:
        """The newest round of any oracle."""
        return max((event["round"] for peer in self.oracles for event in peer.events("state")), default=0)

    def lost(self) -> tuple[int, int]:
        """Tokens that will never enter a state, and tokens trained on."""
        states = [event["tokens"] for peer in self.living for event in peer.events("state")]
        steps = [peer.events("step")[-1] for peer in self.living if peer.events("step")]
        pending = sum(step["made"] - step["contributed"] for step in steps)
        made = sum(peer.made for peer in self.oracles)
        return made - max(states) - pending, made

    def close(self) -> None:
        """Stop all peers."""
        for peer in (*self.living, self.first):
            assert peer.popen is not None
            peer.popen.terminate()
        for peer in (*self.living, self.first):
            assert peer.popen is not None
            peer.popen.wait()

    def _peer(self, name: str, role: str, initial_peers: tuple[str, ...]) -> PeerProcess:
        peer = PeerProcess(self.folder / name, role, LOOPBACK, initial_peers)
        peer.manifest, peer.start_program = self.manifest, subprocess.Popen
        peer.environment["DUPT_CHAOS_STEP_SECONDS"] = str(STEP_SECONDS)
        return peer


def run_period(herd: Herd, seconds: float, churn: bool, tally: Tally) -> None:
    """Observe for one period; with ``churn``, kill or start an oracle every ten seconds."""
    start = last = time.monotonic()
    first = known = herd.newest()
    disturbed = start
    while (now := time.monotonic()) - start < seconds:
        if churn and now - disturbed >= EVENT_SECONDS:
            herd.disturb(tally)
            disturbed = now
        newest = herd.newest()
        if newest > known:
            known, last = newest, now
        tally.stall = max(tally.stall, now - last)
        time.sleep(0.2)
    tally.seconds += time.monotonic() - start
    tally.rounds += known - first


@click.command()
@click.option(
    "--minutes", type=click.FloatRange(0.5), default=5.0, show_default=True, help="Total duration of churn."
)
@click.option("--oracles", type=click.IntRange(2), default=8, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@file_option
def main(minutes: float, oracles: int, seed: int, file: Path | None) -> None:
    """Rounds, stalls and lost tokens under churn."""
    calm, churn = Tally(), Tally()
    with tempfile.TemporaryDirectory(prefix="dupt-churn-") as folder:
        herd = Herd(Path(folder), oracles, random.Random(seed))
        try:
            herd.open()
            start = herd.newest()
            wait_until(lambda: herd.newest() >= start + 2, "rounds begin", 300)
            for number in range(PERIODS):
                herd.fill()
                disturbed = bool(number % 2)
                seconds = 60 * minutes / (PERIODS / 2)
                run_period(herd, seconds, disturbed, churn if disturbed else calm)
            lost, made = herd.lost()
        finally:
            herd.close()
    rounds = herd.manifest.rounds
    limit = rounds.max_round_seconds + 2 * rounds.matchmaking_seconds + rounds.allreduce_seconds
    found: Run = {"minutes": minutes, "oracles": oracles, "seed": seed, "limit_seconds": limit}
    found |= {"calm": asdict(calm), "churn": asdict(churn), "lost_tokens": lost, "tokens": made}
    append(file, found)
    show(found)


def show(found: Run) -> None:
    """What came of it, line by line."""
    calm, churn, lost = Tally(**found["calm"]), Tally(**found["churn"]), found["lost_tokens"]
    ratio = (churn.rounds / churn.seconds) / (calm.rounds / calm.seconds)
    each = lost / max(churn.kills, 1) / (TOKENS_PER_STEP * STEPS_PER_ROUND)
    limit = found["limit_seconds"]
    click.echo(f"{churn.kills} kills and {churn.joins} joins in {churn.seconds:.0f} s, seed {found['seed']}")
    click.echo(f"rounds  {ratio:.2f}  ({churn.rounds} with churn, {calm.rounds} without, in equal time)")
    click.echo(f"stall   {churn.stall:.0f} s with churn, {calm.stall:.0f} s without; limit {limit:.0f} s")
    click.echo(f"lost    {lost / found['tokens']:.3f} of the tokens; {each:.2f} contributions per kill")


if __name__ == "__main__":
    main()
