"""Rounds of a model as large as this machine bears: memory, waiting, and bytes per second.

Two oracles on loopback, real peers in processes of their own, train a preset's model from random weights. A
round is one step each of one short sequence; everything else is as large as the model: parameters, gradients,
contributions, states. The one that begins the swarm is an oracle too.

    digests    whether both hold the same state after each round
    round      seconds of a round's end: group, exchange, outer step, decision; median
    rate       bytes of the parameters ÷ those seconds, beside what one thread copies and hashes here
    node       the most memory that a node has had so far, bytes per weight; swapped out or not
    trainer    of a trainer, likewise: parameters, gradients, and what a round's end needs
    lag        by how much a node's event loop was late at worst, ms; in brackets what it computed of that
    restarts   nodes that were replaced, as they did not answer

    PYTHONPATH=. python benchmarks/large.py [--preset llama --size 1b] [--rounds 3] [--momentum 0]
        [--file PATH]

It takes some 40 bytes per weight and oracle, 30 without outer momentum; a swap file may have part of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import click
import numpy as np
import psutil
import torch
from _child import Child, orders, say
from _manifest import UNREAD, manifest_of
from _processes import lag_environment, lags_in, peak_bytes
from _runs import append, file_option

from dupt_swarm import CollaborativeOptimizer, Swarm
from dupt_swarm.learning.batches import Batches
from dupt_swarm.learning.inner.matrices import block_matrices
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.token_files import Split
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.manifest import Manifest
from dupt_swarm.presets import load_preset
from dupt_swarm.settings import NodeSettings
from peers.demo import LOOPBACK

CONTEXT = 16
LOOK_SECONDS, SAMPLE_SECONDS = 0.1, 5.0
PIECE = 1 << 28  # bytes that are copied and hashed to compare with


def large_manifest(preset: str, size: str | None, momentum: float) -> Manifest:
    """The preset's model, with short sequences, one step to a round, and time for swapping."""
    tables = load_preset(preset, size)
    tables["model"]["context_length"] = CONTEXT
    tables["inner"] |= {"optimizer": "sgd", "embedding_scale": "own", "learning_rate": 0.1}
    tables["outer"]["momentum"] = momentum
    tables["rounds"] |= {
        "tokens_per_step": CONTEXT,
        "tokens_per_round": CONTEXT,
        "growth": 1.0,
        "overlap": True,
        "max_round_seconds": 3600,
        "matchmaking_seconds": 120,
        "chunk_seconds": 300,
        "allreduce_seconds": 3600,
    }
    return manifest_of(tables)


class Peer(Child):
    """An oracle's process, as `main` sees it."""

    def __init__(self, folder: Path, **about: Any) -> None:
        self._folder = folder
        folder.mkdir()
        environment = os.environ | lag_environment(folder / "lags")
        about["folder"] = str(folder)
        super().__init__([sys.executable, __file__, "--peer", json.dumps(about)], environment)
        self._peaks = {"trainer": 0, "node": 0}
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample)
        self._sampler.start()

    @property
    def peaks(self) -> dict[str, int]:
        """Bytes that its processes have had at most."""
        self._look()
        return dict(self._peaks)

    @property
    def lag(self) -> tuple[float, float]:
        """Of its node's event loop, at worst: seconds, and what it computed of them."""
        return max((each.late, each.own) for each in lags_in(self._folder / "lags"))

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._sampler.join()
        super().__exit__()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        with suppress(OSError, psutil.Error):
            trainer = psutil.Process(self.process.pid)
            for kind, process in zip(("trainer", "node"), [trainer, *trainer.children()], strict=False):
                self._peaks[kind] = max(self._peaks[kind], memory_of(process.pid))


def memory_of(pid: int) -> int:
    """The most bytes that a process has had; where pages are swapped out, what it has now counts too."""
    most = peak_bytes(pid)
    if not psutil.swap_memory().used:
        return most
    rolled = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return max(
        most, 1024 * sum(int(rolled.partition(f"\n{name}:")[2].split()[0]) for name in ("Rss", "Swap"))
    )


def rate_of(act: Callable[[bytearray], object]) -> float:
    """Bytes per second of one thread that does so with new memory, once warm."""
    piece = bytearray(os.urandom(1 << 20) * (PIECE >> 20))
    act(piece)
    began = time.perf_counter()
    act(piece)
    return PIECE / (time.perf_counter() - began)


def be_a_peer(folder: str, manifest: str, initial_peers: list[str]) -> None:
    """Begin a swarm or join it, and take a step whenever stdin says so."""
    parsed = Manifest.from_bytes(manifest.encode())
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = build_model(parsed)
    settings = NodeSettings("oracle", host_maddrs=(LOOPBACK,))
    if initial_peers:
        swarm = Swarm.join(initial_peers, Path(folder), settings)
    else:
        swarm = Swarm.create(parsed, UNREAD, model.parameters(), Path(folder), settings)
    with swarm:
        optimizer = CollaborativeOptimizer(model.parameters(), swarm, block_matrices(model))
        rows = parsed.model.vocabulary_size
        tokens = np.random.default_rng(len(initial_peers)).integers(0, rows, 1 << 12, dtype=np.uint16)
        batches = Batches([Split([tokens])], CONTEXT, 1, 0, swarm.peer_id)
        trainer = Trainer(model, optimizer, batches, torch.device("cpu"))
        say(addresses=swarm.addresses, weights=swarm.anchor.numel())
        for _ in orders():
            before = optimizer.last_round
            trainer.step()
            while (ended := optimizer.last_round) is None or ended is before:
                time.sleep(LOOK_SECONDS)
                optimizer.attend()
            say(
                round=swarm.state.round,
                digest=swarm.state.digest,
                reason=str(ended.reason or ""),
                seconds=ended.seconds,
                restarts=sum(swarm.restarts.values()),
                peers=len(swarm.view.oracles),
            )


def run_rounds(
    manifest: Manifest, rounds: int, folder: Path | None
) -> tuple[int, list[list[dict[str, Any]]], list[tuple[float, float]]]:
    """The model's weights, what both peers said of each round, and the lag of each."""
    said: list[list[dict[str, Any]]] = []
    with tempfile.TemporaryDirectory(prefix="dupt-large-", dir=folder) as place, ExitStack() as stack:
        about = {"manifest": manifest.canonical_bytes().decode()}
        peers, addresses = list[Peer](), list[str]()
        for name in ("first", "second"):
            peers.append(stack.enter_context(Peer(Path(place) / name, **about, initial_peers=addresses)))
            joined = peers[-1].answer()
            addresses = addresses or joined["addresses"]
            click.echo(f"{name} is there: {joined['weights']:,} weights", err=True)
        while len(said) < rounds:
            for one in peers:
                one.tell()
            said.append([one.answer() | one.peaks for one in peers])
            click.echo(json.dumps(said[-1]), err=True)
        return joined["weights"], said, [one.lag for one in peers]


@click.command()
@click.option("--preset", default="llama", show_default=True)
@click.option("--size", default=None)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--momentum", type=float, default=0.5, show_default=True, help="Of the outer step; 0: no buffer."
)
@click.option("--folder", type=click.Path(path_type=Path), default=None, help="For what peers write.")
@click.option("--peer", hidden=True, default=None)
@file_option
def main(
    preset: str,
    size: str | None,
    rounds: int,
    momentum: float,
    folder: Path | None,
    peer: str | None,
    file: Path | None,
) -> None:
    """Rounds of a large model."""
    if peer is not None:
        be_a_peer(**json.loads(peer))
        return
    manifest = large_manifest(preset, size, momentum)
    weights, said, lags = run_rounds(manifest, rounds, folder)
    seconds = statistics.median(each["seconds"] for turn in said for each in turn)
    found = {
        "model": f"{preset} {size or ''}".strip(),
        "weights": weights,
        "momentum": momentum,
        "rounds": [turn[0]["round"] for turn in said],
        "digests_equal": all(len({each["digest"] for each in turn}) == 1 for turn in said),
        "round_seconds": round(seconds, 1),
        "bytes_per_second": round(4 * weights / seconds),
        "copied_per_second": round(rate_of(bytearray)),
        "hashed_per_second": round(rate_of(hashlib.sha256)),
        "node": [round(each["node"] / weights, 1) for each in said[-1]],
        "trainer": [round(each["trainer"] / weights, 1) for each in said[-1]],
        "lag_ms": [round(1000 * each) for each in max(lags)],
        "restarts": sum(each["restarts"] for each in said[-1]),
    }
    click.echo(json.dumps(found, indent=1))
    append(file, found)


if __name__ == "__main__":
    main()
