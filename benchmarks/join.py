"""How long joining takes, as a multiple of the time that the link alone needs for the state.

Each peer is a real node process on a host of its own (a network namespace) with a link of 100 Mbit/s each
way (`tc tbf`, headers included). The arms are interleaved in one run:

    1 ← 1   one joiner, one donor (--arm 1-1)
    1 ← 4   one joiner, four donors (--arm 1-4)
    4 ← 4   four joiners at once, four donors (--arm 4-4)

What is timed is the call of `Swarm.join` in a process that has already imported it. When it returns, the
node has started, found the swarm, and fetched and verified manifest, tokenizer and state, and the trainer
has the anchor: the oracle is ready to contribute. When it does contribute depends only on the length of a
round, so nothing is trained. The state is random numbers with Nesterov's buffer: 8 bytes per weight.

How to read it: `join ÷ link` is that time ÷ (state bytes ÷ link rate), the median over all joiners of the
arm, with minimum and maximum; `download ÷ link` is the part in which the state travels, about 0.05 of it
TCP, IP and Ethernet headers. The rest is start-up: the node's imports, its libp2p daemon, and finding the
swarm, a few seconds that matter with a small state. Joiners that start at the same moment share this
machine's cores while they start, as they would not in reality; only the download shows what their number
really costs.

    sudo env PYTHONPATH=. python benchmarks/join.py [--weights N] [--repetitions 3] [--arm 1-4]
        [--file PATH]
"""

from __future__ import annotations

import contextlib
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import torch
from _child import Child, say
from _figures import rotated, spread
from _manifest import UNREAD, manifest_of
from _runs import append, file_option

from dupt_swarm.node.messages import Downloading
from dupt_swarm.node.node import Node
from dupt_swarm.presets import load_preset
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import save_state
from dupt_swarm.settings import NodeSettings
from dupt_swarm.swarm import Swarm
from tests.support.namespaces import Host, Net

RATE, BYTES_PER_SECOND = "100mbit", 12.5e6
ARMS = ("1-1", "1-4", "4-4")  # joiners-donors


@dataclass
class Arm:
    """A number of simultaneous joiners, and a number of donors in one swarm."""

    joiners: int
    donors: int
    reports: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """For the table, such as ``4 ← 4``."""
        return f"{self.joiners} ← {self.donors}"

    def ratios(self, ideal: float) -> tuple[list[float], list[float]]:
        """Ratios to ``ideal`` seconds, of the whole time and of the download."""
        whole = [report["seconds"] / ideal for report in self.reports]
        return whole, [(report["complete"] - report["began"]) / ideal for report in self.reports]


@click.command(help=(__doc__ or "").splitlines()[0])
@click.option("--weights", type=click.IntRange(1000), default=10_000_000, show_default=True)
@click.option("--repetitions", type=click.IntRange(1), default=3, show_default=True)
@click.option("--arm", "names", multiple=True, type=click.Choice(ARMS), help="Repeatable. [default: all]")
@click.option("--peer", "order", hidden=True, default=None)
@file_option
def main(
    weights: int, repetitions: int, names: tuple[str, ...], order: str | None, file: Path | None
) -> None:
    """Run the arms in turn, and print the table."""
    if order is not None:
        arguments = json.loads(order)
        if arguments.pop("do") == "give":
            give(**arguments)
        else:
            join(**arguments)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the hosts are removed then too
    arms = [Arm(int(name[0]), int(name[-1])) for name in names or ARMS]
    with tempfile.TemporaryDirectory() as folder, Net() as net, ExitStack() as stack:
        checkpoint = Path(folder) / "replica.safetensors"
        state = random_state(weights)
        save_state(state, checkpoint)
        digest, size = state.digest, sum(state.blob.index.sizes)
        del state
        asked = {"weights": weights, "state_bytes": size, "bytes_per_second": BYTES_PER_SECOND}
        counts = {arm.donors for arm in arms}
        swarms = {count: stack.enter_context(donors(net, count, checkpoint)) for count in counts}
        hosts = [net.host(f"join{number}", RATE) for number in range(4)]
        for turn in range(repetitions):
            for arm in rotated(arms, turn):
                reports = measure(hosts[: arm.joiners], swarms[arm.donors])
                assert all(report.pop("digest") == digest for report in reports)
                arm.reports += reports
                about = {"joiners": arm.joiners, "donors": arm.donors, "turn": turn}
                append(file, asked | about | {"reports": reports})
                click.echo(f"{arm.name}: {json.dumps(reports)}", err=True)
    print_table(arms, size)


def random_state(weights: int) -> ReplicaState:
    """A state of one parameter, with incompressible values."""
    generator = torch.Generator().manual_seed(0)
    anchor, velocity = (torch.randn(weights, generator=generator) for _ in range(2))
    return ReplicaState(1, 1000, ((weights,),), anchor, {"velocity": velocity})


@contextlib.contextmanager
def donors(net: Net, count: int, checkpoint: Path) -> Iterator[list[str]]:
    """A swarm of ``count`` donors while the block lasts; yields the addresses to join it."""
    tables = load_preset("tiny")
    tables["outer"]["momentum"] = 0.5  # of which the state has the buffer
    manifest = manifest_of(tables, name=f"bench-{count}").canonical_bytes().decode()
    with ExitStack() as stack:

        def start(number: int, initial_peers: list[str]) -> Child:
            host = net.host(f"give{count}-{number}", RATE)
            about = {"manifest": manifest, "checkpoint": str(checkpoint)}
            return stack.enter_context(peer(host, do="give", initial_peers=initial_peers, **about))

        first: list[str] = start(0, []).answer()["addresses"][:1]
        for other in [start(number, first) for number in range(1, count)]:
            other.answer()
        yield first


def measure(hosts: list[Host], initial_peers: list[str]) -> list[dict[str, Any]]:
    """Have one peer on each host join, all at the same moment; return how long each took."""
    with ExitStack() as stack:
        joiners = [stack.enter_context(peer(host, do="join", initial_peers=initial_peers)) for host in hosts]
        for joiner in joiners:
            joiner.answer()
        for joiner in joiners:
            joiner.tell()
        return [joiner.answer() for joiner in joiners]


def peer(host: Host, **arguments: Any) -> Child:
    """A process on ``host`` that does one of the following."""
    order = json.dumps(arguments | {"address": host.address})
    return Child(host.command([sys.executable, __file__, "--peer", order]))


def give(address: str, manifest: str, checkpoint: str, initial_peers: list[str]) -> None:
    """Hold the state, as a bootstrap does, until stdin closes."""
    settings = NodeSettings(
        "bootstrap",
        host_maddrs=(f"/ip4/{address}/tcp/0",),
        initial_peers=tuple(initial_peers),
        manifest=manifest.encode(),
        tokenizer=UNREAD,
        checkpoint=Path(checkpoint),
    )
    with tempfile.TemporaryDirectory() as folder, Node() as node:
        settings = replace(settings, own_folder=Path(folder))
        say(addresses=node.join(settings).addresses)
        sys.stdin.read()


def join(address: str, initial_peers: list[str]) -> None:
    """Join as an oracle when stdin says so; report how long it took to be ready to contribute."""
    say(ready=True)
    sys.stdin.readline()
    started, told = time.monotonic(), []

    def hear(progress: Downloading) -> None:
        told.append((time.monotonic() - started, progress))

    settings = NodeSettings("oracle", host_maddrs=(f"/ip4/{address}/tcp/0",))
    with (
        tempfile.TemporaryDirectory() as folder,
        Swarm.join(initial_peers, Path(folder), settings, hear) as swarm,
    ):
        seconds = time.monotonic() - started
        digest = swarm.state.digest
    state = [(when, each) for when, each in told if each.bytes_total == told[-1][1].bytes_total]
    say(
        seconds=seconds,
        began=state[0][0],
        complete=state[-1][0],
        donors=max(each.donors for _, each in state),
        digest=digest,
    )


def print_table(arms: list[Arm], size: int) -> None:
    """Print ratios to the time that the link needs for ``size`` bytes."""
    ideal = size / BYTES_PER_SECOND
    click.echo(f"state {size / 1e6:.0f} MB, link {RATE}: {ideal:.1f} s")
    click.echo("joiners ← donors    join ÷ link             download ÷ link         start-up s   donors used")
    for arm in arms:
        whole, download = arm.ratios(ideal)
        began = statistics.median(report["began"] for report in arm.reports)
        used = max(report["donors"] for report in arm.reports)
        click.echo(f"{arm.name:18}  {spread(whole):20}    {spread(download):20}    {began:6.1f}       {used}")
    medians = {arm.name: [statistics.median(ratios) for ratios in arm.ratios(ideal)] for arm in arms}
    if "1 ← 4" in medians and "4 ← 4" in medians:
        join, load = (many / one for many, one in zip(medians["4 ← 4"], medians["1 ← 4"], strict=True))
        click.echo(f"four joiners at once ÷ one, from four donors: join {join:.2f}, download {load:.2f}")


if __name__ == "__main__":
    main()
