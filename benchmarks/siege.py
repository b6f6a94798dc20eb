"""What a stranger that attacks all peers at once costs a swarm that trains: loss, and time.

`dupt-peer demo` runs alone, and again with a process beside it that tries all that a stranger can, turn by
turn, on the first peer and each of the three oracles (`tests/support/chaos/besieger.py`). Runs alternate.
Each draws identities and batches of its own, as volunteers do, so runs without the attacker differ as well:
that is the noise to compare with. The attacker would have a machine of its own: here it has the lowest
priority. Oracles train on while a round ends, so slow rounds have more tokens, which lower the loss.

How to read it, a line for each run and one for all:

    loss       held-out loss of the three oracles at the end, mean
    tokens     that each trained on, mean
    seconds    of the demo ÷ those of the first calm run
    turns      how often it tried everything, on every peer
    besieged ÷ calm    mean loss ÷ mean loss; beside it the calm runs' standard deviation ÷ their mean

    PYTHONPATH=. python benchmarks/siege.py [--runs 3] [--rounds 16] [--file PATH]
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from _runs import append, file_option

from dupt_swarm.discovery import observe
from tests.support.chaos import besieger

DUPT_PEER = Path(sys.executable).with_name("dupt-peer")
ORACLES, LOOK_SECONDS = 3, 1.0
ADDRESS = re.compile(r"listens on (\S+)")
RESULT = re.compile(r"^\w+ +\d+ +([\d,]+) +[\d.]+ → ([\d.]+)", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """What came of one run; of losses and tokens one for each oracle."""

    losses: list[float]
    tokens: list[int]
    seconds: float
    turns: int

    @property
    def loss(self) -> float:
        """The mean."""
        return statistics.mean(self.losses)


def run_demo(rounds: int, folder: Path, *, attacked: bool) -> Run:
    """One run; its files are in ``folder``."""
    began, turns = time.monotonic(), folder / "turns"
    command = [str(DUPT_PEER), "demo", "--rounds", str(rounds), "--model", str(folder / "model")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        address = next(found[1] for line in demo.stdout if (found := ADDRESS.search(line)))
        if attacked:
            with besieged(address, folder, turns):
                shown = demo.stdout.read()
        else:
            shown = demo.stdout.read()
    results = RESULT.findall(shown)
    assert len(results) == ORACLES, shown
    return Run(
        losses=[float(loss) for _, loss in results],
        tokens=[int(tokens.replace(",", "")) for tokens, _ in results],
        seconds=time.monotonic() - began,
        turns=len(turns.read_text().splitlines()) if attacked else 0,
    )


@contextmanager
def besieged(address: str, folder: Path, turns: Path) -> Iterator[None]:
    """Inside, all peers of the swarm are attacked."""
    node, manifest = observe([address])
    with node:
        while len(oracles := node.refresh().oracles) < ORACLES:
            time.sleep(LOOK_SECONDS)
    (folder / "manifest").write_bytes(manifest.canonical_bytes())
    addresses = [address, *(f"{peer.record.addresses[0]}/p2p/{peer.peer_id}" for peer in oracles)]
    with turns.open("w") as out:
        program = [sys.executable, besieger.__file__, str(folder / "manifest"), *addresses]
        attacker = subprocess.Popen(["nice", "-n", "19", *program], stdout=out)
    try:
        yield
    finally:
        attacker.terminate()
        attacker.wait()


@click.command()
@click.option("--runs", type=click.IntRange(2), default=3, show_default=True, help="Of each kind.")
@click.option("--rounds", type=click.IntRange(1), default=16, show_default=True)
@file_option
def main(runs: int, rounds: int, file: Path | None) -> None:
    """Losses of a swarm that somebody attacks ÷ those of one that is left alone."""
    found: dict[bool, list[Run]] = {False: [], True: []}
    for number in range(2 * runs):
        attacked = bool(number % 2)
        with tempfile.TemporaryDirectory(prefix="dupt-siege-") as folder:
            run = run_demo(rounds, Path(folder), attacked=attacked)
        found[attacked].append(run)
        append(file, {"rounds": rounds, "attacked": attacked} | asdict(run))
        kind = f"besieged, {run.turns} turns" if attacked else "calm"
        ratio = run.seconds / found[False][0].seconds
        tokens = statistics.mean(run.tokens)
        click.echo(f"{kind}: loss {run.loss:.3f}, tokens {tokens:.0f}, seconds {ratio:.2f}")
    losses = {attacked: [run.loss for run in some] for attacked, some in found.items()}
    calm = statistics.mean(losses[False])
    noise = statistics.stdev(losses[False]) / calm
    click.echo(f"besieged ÷ calm {statistics.mean(losses[True]) / calm:.3f}; calm runs differ by {noise:.3f}")


if __name__ == "__main__":
    main()
