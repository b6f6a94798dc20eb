"""How fast a round averages, as ratios to hivemind's own averager.

Peers are processes on loopback: as many with hivemind's `DecentralizedAverager` and fp16 (`stock`) as with
ours, each of which takes part in all other arms. For each arm a peer has a libp2p daemon (p2pd). All are
alive all the time, and the arms take turns:

    stock         hivemind as it is: fp16, returns differences
    reduce fp16   our butterfly with the codec scaled_fp16 both ways
    reduce int8   the same with int8 both ways
    share top-k   everybody fetches all contributions, 64 of each 4,096 values kept

A turn of an arm lasts from the moment at which its peers are a group to that at which the last of them has
the average; ours has hashed it by then, too. Each turn's result is checked: the norm of its error ÷ that of
the mean, and that ours are the same bits everywhere. In ours a trainer has encoded the contribution before,
in stock the averager encodes it within its time, so there are two ratios.

How to read it: ``÷ stock`` is the seconds of stock ÷ those of the arm, of the same turn: above 1 means
faster; median, minimum and maximum over the turns. ``with encoding`` adds the time of encoding to the arm's.
Nanoseconds are CPU time of all peers ÷ peers ÷ values, medians: of the peer's processes without p2pd, of the
encoding, and of p2pd. On a machine with fewer cores than peers, time is CPU time of all of them.

    PYTHONPATH=. python benchmarks/allreduce.py [--values 10000000] [--peers 2 --peers 4] [--turns 5]
        [--file PATH]
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import click
from _child import Child
from _figures import head, ratio, rotated, row
from _processes import cpu_seconds, with_descendants
from _runs import Run, append, file_option

PEER = Path(__file__).with_name("_allreduce_peer.py")
STOCK, OURS = "stock", "ours"
ENVIRONMENT = {
    "HIVEMIND_LOGLEVEL": "ERROR",
    "GOLOG_LOG_LEVEL": "fatal",
    "HIVEMIND_MEMORY_SHARING_STRATEGY": "file_descriptor",  # nothing is left in /dev/shm
}
# The largest error of each arm, relative to the mean; what top-k loses comes again in the next contribution.
ARMS = {"stock": 2e-3, "reduce fp16": 2e-3, "reduce int8": 3e-2, "share top-k": 1.0}
HEADER = ["values", "peers", "arm", "÷ stock", "with encoding", "ns per value", "encoding", "p2pd"]


class Peer(Child):
    """A process of `_allreduce_peer.py`."""

    def __init__(self, folder: str, **order: Any) -> None:
        """It keeps its files in ``folder``."""
        command = [sys.executable, str(PEER), json.dumps(order | {"folder": folder})]
        super().__init__(command, os.environ | ENVIRONMENT | {"TMPDIR": folder})
        self.peer_id = ""

    def cpu_seconds(self) -> tuple[float, float]:
        """CPU time so far: of its processes but for p2pd, and of that."""
        processes = with_descendants(self.process.pid)
        daemons = [process for process in processes if process.name() == "p2pd"]
        return cpu_seconds(each for each in processes if each not in daemons), cpu_seconds(daemons)


@click.command()
@click.option("--values", "sizes", type=click.IntRange(1), multiple=True, default=(10_000_000,))
@click.option("--peers", "counts", type=click.IntRange(2), multiple=True, default=(2, 4))
@click.option("--turns", type=click.IntRange(1), default=5, show_default=True, help="Of each arm.")
@file_option
def main(sizes: Sequence[int], counts: Sequence[int], turns: int, file: Path | None) -> None:
    """Measure all arms for each number of values and of peers."""
    click.echo(head(HEADER))
    for size, count in product(sizes, counts):
        for cells in _rows(_measure(size, count, turns, file)):
            click.echo(row([f"{size:,}", str(count), *cells]))


def _measure(size: int, count: int, turns: int, file: Path | None) -> list[Run]:
    """Every arm's turns; a first turn of all warms up and does not count."""
    measured: list[Run] = []
    with ExitStack() as stack:
        peers = {kind: _start(kind, size, count, stack) for kind in (STOCK, OURS)}
        for turn in range(turns + 1):
            for arm in rotated(ARMS, turn):
                found = _take_turn(arm, peers[STOCK if arm == STOCK else OURS], turn)
                if turn:
                    measured.append({"values": size, "peers": count, "arm": arm, "turn": turn} | found)
                    append(file, measured[-1])
    return measured


def _start(kind: str, size: int, count: int, stack: ExitStack) -> list[Peer]:
    """So many peers that know one another."""
    peers: list[Peer] = []
    addresses: list[dict[str, str]] = []
    for number in range(count):
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dupt-"))
        order = {"kind": kind, "number": number, "count": count, "values": size}
        peers.append(stack.enter_context(Peer(folder, initial_peers=addresses, **order)))
        addresses.append(peers[-1].answer()["addresses"])
        peers[-1].peer_id = next(iter(addresses[-1].values())).rpartition("/")[2]
    return peers


def _take_turn(arm: str, peers: Sequence[Peer], turn: int) -> Run:
    """Seconds by the clock, and seconds of CPU time of all peers."""
    prepared = _ask(peers, "prepare", arm, turn)
    before = [peer.cpu_seconds() for peer in peers]
    averaged = _ask(peers, "average", arm, turn)
    after = [peer.cpu_seconds() for peer in peers]
    if len({answer["digest"] for answer in averaged}) != 1:
        raise RuntimeError(f"{arm}: not all have the same average")
    if (error := max(answer["error"] for answer in averaged)) > ARMS[arm]:
        raise RuntimeError(f"{arm}: the average is wrong by {error}")
    own, daemon = (
        sum(end[kind] - start[kind] for start, end in zip(before, after, strict=True)) for kind in (0, 1)
    )
    encoding = sum(answer["used"] for answer in prepared)
    return {
        "seconds": _duration(averaged),
        "encoding_seconds": _duration(prepared),
        "cpu_seconds": {"own": own, "encoding": encoding, "p2pd": daemon},
        "error": error,
    }


def _ask(peers: Sequence[Peer], what: str, arm: str, turn: int) -> list[dict[str, Any]]:
    members = [peer.peer_id for peer in peers]
    for peer in peers:
        peer.tell(do=what, arm=arm, turn=turn, members=members)
    return [peer.answer() for peer in peers]


def _duration(answers: Sequence[dict[str, Any]]) -> float:
    return float(max(answer["ended"] for answer in answers) - min(answer["began"] for answer in answers))


def _rows(measured: Sequence[Run]) -> list[list[str]]:
    seconds = {arm: [turn["seconds"] for turn in measured if turn["arm"] == arm] for arm in ARMS}
    rows = []
    for arm, averaging in seconds.items():
        turns = [turn for turn in measured if turn["arm"] == arm]
        whole = [turn["seconds"] + turn["encoding_seconds"] for turn in turns]
        used = {
            kind: [1e9 * turn["cpu_seconds"][kind] / turn["peers"] / turn["values"] for turn in turns]
            for kind in ("own", "encoding", "p2pd")
        }
        nanoseconds = [f"{statistics.median(each):.1f}" for each in used.values()]
        rows.append([arm, ratio(seconds[STOCK], averaging), ratio(seconds[STOCK], whole), *nanoseconds])
    return rows


if __name__ == "__main__":
    main()
