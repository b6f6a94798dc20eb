"""What rounds cost on home links: bytes, compute that is lost, and time, for each exchange.

A first peer, 4 or 8 oracles and an evaluator, each a real peer on a host of its own (a network namespace),
train one vector of --weights values. Every host has a link of so many Mbit/s each way (`tc tbf`, headers
included), and a round trip to any other (a relay hands packets on late, as a kernel may have no `netem`).
Inner steps are simulated: they sleep, as a processor does while a GPU computes; and the evaluator follows,
and measures nothing. All else is real: `CollaborativeOptimizer`, codecs, node, libp2p's daemon, exchange,
outer step, states for those who follow.

The model is a tenth of `gpt1`, and so is a round: 100 steps of 0.06 s instead of 0.6 s. Bytes, their time on
the wire, and the processor time of codecs and hashes shrink alike, so ratios are those of 117 M values and
rounds of a minute. What does not shrink is what a round costs whatever its size (finding the group, round
trips, TCP's slow start, a look at the records each second): it weighs ten times as much here.

How to read it, a row for an exchange on a kind of link (the round in which the link changes does not count):

    traffic    bytes that all hosts sent (`tc -s`) per token ÷ those of averaging fp16 gradients at every
               step, which are 4·(n − 1) per weight and step; in brackets without what the evaluator received
    follower   bytes that a follower received, per weight and round: first peer, evaluator
    H          inner steps of an oracle in a round ÷ those that the manifest asks for: more than 1 where an
               exchange takes longer than they do
    kept       inner steps that went into the state ÷ those that fit into the time: achieved ÷ set H, if H is
               what could be achieved in the time of a round
    round      time of a round's end (group, exchange, outer step; median) ÷ what its values, encoded, need on
               the wire. Headers are 0.05 of it
    group      seconds of that for finding the group
    busy       share of this machine's cores that were busy while rounds ended. All peers share them: at more
               than 0.9 a round waited for the processor, and its figures say nothing of links
    work       processor time of all peers and the relay in a round ÷ cores ÷ time on the wire
    processor  seconds that an oracle computes in a round: trainer + node + p2pd
    pause      time for which training waited for its optimizer ÷ all time; in brackets by the processor time
               of its thread, as it would be on a machine of its own
    lag        by how much a node's event loop was late at worst, ms; in brackets what it computed of that
    memory     the most that an oracle's node has had so far, bytes per weight

    sudo env PYTHONPATH=. python benchmarks/link.py [--quick] [--oracles 8] [--exchange NAME] [--rate 100]
        [--file PATH]
"""

from __future__ import annotations

import math
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import click
from _figures import head, row
from _link_network import Link, LinkedHosts
from _link_swarm import KINDS, LinkSwarm, Snapshot
from _manifest import manifest_of
from _runs import append, file_option

from dupt_swarm.manifest import Manifest
from dupt_swarm.presets import load_preset
from dupt_swarm.replica.codec import build_codec, encoded_size, part_sizes
from tests.support.namespaces import missing

WEIGHTS, STEPS, STEP_SECONDS, ROUNDS = 11_700_000, 100, 0.06, 3
QUICK = {"weights": 1_000_000, "step_seconds": 0.02, "rounds": 2}
RATES, ROUND_TRIPS, SIZES = (100, 20, 500), (20, 100), (4, 8)
TRANSPORTS = ("tcp/0", "udp/0/quic-v1")
PATIENCE_SECONDS = 900.0

EXCHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "reduce-fp16": ("reduce", {"contribution": "scaled_fp16", "average": "scaled_fp16", "feedback": 0.0}),
    "reduce-int4": ("reduce", {"contribution": "two_bit", "average": "int4", "feedback": 1.0}),
    "share-2bit": ("share", {"contribution": "two_bit", "feedback": 1.0}),
    "share-topk": ("share", {"contribution": "top_k", "feedback": 0.95, "kept": 64}),
}


@dataclass(frozen=True)
class Scene:
    """One swarm: what is trained, by how many, and how."""

    oracles: int
    exchange: str
    weights: int
    steps: int
    step_seconds: float
    listen: tuple[str, ...]

    @property
    def manifest(self) -> Manifest:
        """The preset `gpt1`, with this scene's rounds."""
        exchange, encoding = EXCHANGES[self.exchange]
        tables = load_preset("gpt1")
        tables["rounds"] |= {"exchange": exchange}
        tables["rounds"] |= {"tokens_per_round": self.steps * tables["rounds"]["tokens_per_step"]}
        # Rules have rows of their own, and the preset's needs whole contributions.
        return manifest_of(tables | {"encoding": encoding, "aggregation": {"rule": "mean"}})

    @property
    def bytes_of_round(self) -> float:
        """That the oracle with most to do must receive, or send, for a round to end; without headers."""
        encoding, others = self.manifest.encoding, self.oracles - 1
        names = (encoding.contribution, encoding.average)
        given, returned = (encoded_size(build_codec(name, encoding), self.weights) for name in names)
        if EXCHANGES[self.exchange][0] == "share":
            return given * others
        parts = len(part_sizes(self.weights))
        share = math.ceil(parts / self.oracles) / parts
        sent = given * (1 - share) + returned * share * others
        received = given * share * others + returned * (1 - share)
        return max(sent, received)

    def names(self, evaluators: int) -> list[str]:
        """Of the peers, each beginning with its role."""
        oracles = [f"oracle-{number}" for number in range(self.oracles)]
        return ["bootstrap", *oracles, *(f"evaluator-{number}" for number in range(evaluators))]


def measure(swarm: LinkSwarm, scene: Scene, link: Link, rounds: int) -> dict[str, Any]:
    """Train ``rounds`` rounds with links like this; what they cost."""
    swarm.net.set(link)
    swarm.reach(swarm.round + 1, PATIENCE_SECONDS)  # it has begun with other links
    before = swarm.snapshot()
    swarm.reach(before.round + rounds, PATIENCE_SECONDS)
    after = swarm.snapshot()
    swarm.check_digests()
    return (
        {"oracles": scene.oracles, "exchange": scene.exchange, "rate": link.rate}
        | {"weights": scene.weights, "steps_asked": scene.steps, "step_seconds": scene.step_seconds}
        | {"round_trip": link.round_trip, "listen": scene.listen, "rounds": after.round - before.round}
        | bytes_used(swarm, scene, before, after)
        | compute_kept(swarm, scene, before, after)
        | time_taken(swarm, scene, link, before, after)
    )


def bytes_used(swarm: LinkSwarm, scene: Scene, before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """What all hosts sent, and what each follower received."""
    sent = sum(after.counts[name].sent - before.counts[name].sent for name in swarm.peers)
    received = {name: after.counts[name].received - before.counts[name].received for name in swarm.followers}
    evaluators = sum(size for name, size in received.items() if name != "bootstrap")
    tokens = swarm.tokens(after.round) - swarm.tokens(before.round)
    steps = tokens / swarm.manifest.rounds.tokens_per_step / scene.oracles
    every_step = 4 * (scene.oracles - 1) * scene.weights * steps
    of_round = scene.weights * (after.round - before.round)
    return {
        "traffic": sent / every_step,
        "traffic_one_follower": (sent - evaluators) / every_step,
        "followers": {name: size / of_round for name, size in received.items()},
        "sent_per_host_and_second": sent / len(swarm.peers) / (after.time - before.time),
    }


def compute_kept(swarm: LinkSwarm, scene: Scene, before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """What became of the oracles' time, and how late their nodes' loops were."""
    tokens = swarm.tokens(after.round) - swarm.tokens(before.round)
    steps = tokens / swarm.manifest.rounds.tokens_per_step / scene.oracles
    pairs = [(late, early) for late, early in zip(after.last, before.last, strict=True)]
    time = sum(late["time"] - early["time"] for late, early in pairs)
    lags = [each for peer in swarm.oracles for each in peer.lags(before.time, after.time)]
    return {
        "steps": steps / (after.round - before.round) / scene.steps,
        "kept": steps * scene.step_seconds / (after.time - before.time),
        "pause": sum(late["paused"] - early["paused"] for late, early in pairs) / time,
        "pause_processor": sum(late["paused_processor"] - early["paused_processor"] for late, early in pairs)
        / time,
        "lag": max(each.late for each in lags),
        "lag_own": max(each.own for each in lags),
        "restarts": sum(late["restarts"] for late in after.last),
        "node_memory": max(peer.node_peak() for peer in swarm.oracles) / scene.weights,
    }


def time_taken(
    swarm: LinkSwarm, scene: Scene, link: Link, before: Snapshot, after: Snapshot
) -> dict[str, Any]:
    """How long rounds' ends took, beside what wire and processor need for them."""
    endings = list(swarm.endings(before, after))
    good = [each for each in endings if each["state"] and len(each["mates"]) == scene.oracles - 1]
    wire, cores, rounds = scene.bytes_of_round / link.bytes_per_second, os.cpu_count() or 1, after.round
    rounds -= before.round
    used = {kind: after.processor[kind] - before.processor[kind] for kind in after.processor}
    busy = [swarm.load.cores(each["time"] - each["seconds"], each["time"]) for each in good]
    return {
        "wire": wire,
        "ending": statistics.median(each["seconds"] for each in good) if good else math.nan,
        "group": statistics.median(each["group"] for each in good) if good else math.nan,
        "round_seconds": (after.time - before.time) / rounds,
        "failed": [each["reason"] for each in endings if not each["state"]],
        "smaller_groups": sum(bool(each["state"]) for each in endings) - len(good),
        "busy": statistics.mean(busy) / cores if busy else math.nan,
        "processor": {kind: seconds / rounds for kind, seconds in used.items()},
        "work": (used["all"] + used["relay"]) / rounds / cores,
    }


def line(found: dict[str, Any]) -> str:
    """A row of the table."""
    followers = ", ".join(f"{size:.2f}" for size in found["followers"].values())
    cells = [
        f"{found['oracles']}",
        found["exchange"],
        f"{found['rate']}",
        f"{found['round_trip'] * 1000:.0f}",
        f"1/{1 / found['traffic']:.0f} (1/{1 / found['traffic_one_follower']:.0f})",
        followers,
        f"{found['steps']:.2f}",
        f"{found['kept']:.3f}",
        f"{found['ending'] / found['wire']:.2f} ({found['ending']:.1f} ÷ {found['wire']:.1f} s)",
        f"{found['group']:.1f}",
        f"{found['busy']:.2f}",
        f"{found['work'] / found['wire']:.2f}",
        " + ".join(f"{found['processor'][kind] / found['oracles']:.2f}" for kind in KINDS),
        f"{found['pause']:.2%} ({found['pause_processor']:.2%})",
        f"{found['lag'] * 1000:.0f} ({found['lag_own'] * 1000:.0f})",
        f"{found['node_memory']:.1f}",
    ]
    remarks = [f"{len(found['failed'])} failed"] if found["failed"] else []
    remarks += [f"{found['restarts']} restarts"] if found["restarts"] else []
    remarks += [f"{found['smaller_groups']} in smaller groups"] if found["smaller_groups"] else []
    return row([*cells, ", ".join(remarks)])


COLUMNS = (
    *("n", "exchange", "Mbit/s", "round trip ms", "traffic", "follower", "H", "kept", "round", "group s"),
    *("busy", "work", "processor s", "pause", "lag ms", "memory", ""),
)


def run_scene(scene: Scene, links: Sequence[Link], rounds: int, evaluators: int) -> Iterator[dict[str, Any]]:
    """One swarm from its beginning to its end; yields what it costs on each link."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dupt-link-")))
        net = stack.enter_context(LinkedHosts(scene.names(evaluators)))
        about = {"numel": scene.weights, "step_seconds": scene.step_seconds, "listen": scene.listen}
        swarm = stack.enter_context(LinkSwarm(net, scene.manifest, folder, **about))
        for link in links:
            try:
                yield measure(swarm, scene, link, rounds)
            except TimeoutError as error:
                click.echo(f"{scene} {link}: {error}", err=True)


def stop(*_: object) -> None:
    """End in an orderly way, so that the hosts are removed then too; who says it twice has to wait."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


@click.command(help=(__doc__ or "").splitlines()[0])
@click.option("--oracles", type=click.IntRange(2), multiple=True, help="Repeatable. [default: 4 and 8]")
@click.option("--exchange", "exchanges", type=click.Choice(list(EXCHANGES)), multiple=True, help="[all]")
@click.option("--rate", "rates", type=click.IntRange(1), multiple=True, help="Mbit/s. [100, 20 and 500]")
@click.option("--round-trip", "trips", type=click.IntRange(0), multiple=True, help="ms. [20 and 100]")
@click.option("--transport", "transports", type=click.Choice(TRANSPORTS), multiple=True, help="[both]")
@click.option("--weights", type=click.IntRange(1000), default=WEIGHTS, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=STEPS, show_default=True, help="H, of a round.")
@click.option("--step-seconds", type=click.FloatRange(0.001), default=STEP_SECONDS, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=ROUNDS, show_default=True, help="For each row.")
@click.option("--evaluators", type=click.IntRange(0), default=1, show_default=True)
@file_option
@click.option("--quick", is_flag=True, help="Two oracles with a small vector, on one kind of link.")
def main(quick: bool, file: Path | None, evaluators: int, **choice: Any) -> None:
    """Measure all that is chosen, and print a row for each as soon as it is there."""
    if reason := missing():
        raise SystemExit(f"this needs hosts of its own: {reason}")
    signal.signal(signal.SIGTERM, stop)
    if quick:
        choice |= QUICK | {"oracles": (2,), "rates": (100,), "trips": (20,)}
    links = [
        Link(rate, trip / 1000)
        for trip, rate in product(choice["trips"] or ROUND_TRIPS, choice["rates"] or RATES)
    ]
    transports = tuple(choice["transports"]) or TRANSPORTS
    click.echo(head(COLUMNS))
    for size, exchange in product(choice["oracles"] or SIZES, choice["exchanges"] or EXCHANGES):
        scene = Scene(size, exchange, choice["weights"], choice["steps"], choice["step_seconds"], transports)
        for found in run_scene(scene, links, choice["rounds"], evaluators):
            append(file, found)
            click.echo(line(found))


if __name__ == "__main__":
    main()
