"""One of the oracles of `gpu.py`: trains in the swarm or without it, as it is told on its standard input.

    oracle ROUNDS     go on in the swarm until so many more rounds have ended
    plain SECONDS     the same model, trainer and batches without a swarm
    end

It answers each line with one of JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from local_speed import InnerOptimizer

from dupt_swarm.learning.device import choose_device, maybe_compile, wait_for
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.oracle.oracle import Oracle
from dupt_swarm.oracle.status import Status
from dupt_swarm.settings import NodeSettings, OracleSettings
from dupt_swarm.swarm import Swarm


class Gate:
    """Lets an oracle's thread train for some rounds at a time, and holds it where a round has ended."""

    def __init__(self) -> None:
        self._ended: object = None
        self._left, self._held, self._may = 0, threading.Event(), threading.Event()
        self.status: Status | None = None

    def pass_through(self, status: Status) -> None:
        """What the oracle reports to."""
        self.status = status
        if status.last_round is None or status.last_round is self._ended:
            return
        self._ended = status.last_round
        self._left -= status.last_round.state is not None
        if self._left <= 0:
            self._may.clear()
            self._held.set()
            self._may.wait()

    def let(self, rounds: int) -> None:
        """Let it train until so many more have ended."""
        self._left = rounds
        self._held.clear()
        self._may.set()
        while not self._held.wait(1.0):
            pass

    def open(self) -> None:
        """Never hold it again."""
        self._left = sys.maxsize
        self._may.set()


def main() -> None:
    """``_gpu_peer.py ADDRESS FOLDER CORPUS DEVICE``."""
    address, folder, corpus, name = sys.argv[1:]
    device = choose_device(name)
    node = NodeSettings("oracle", host_maddrs=("/ip4/127.0.0.1/tcp/0",))
    with Swarm.join([address], Path(folder), node) as swarm:
        oracle = Oracle(swarm, OracleSettings(Path(corpus), device=name))
        trained = 0

        def count(tokens: int, _: object) -> None:
            nonlocal trained
            trained += tokens

        oracle.observe(count)
        print("joined", file=sys.stderr, flush=True)
        plain = plain_loop(oracle, swarm, device)
        gate = Gate()
        thread = threading.Thread(target=oracle.run, args=(gate.pass_through,), daemon=True)
        thread.start()
        print(f"the oracle begins, {oracle.sequences} sequences at once", file=sys.stderr, flush=True)
        gate.let(1)
        say(sequences=oracle.sequences)
        for line in sys.stdin:
            order, _, number = line.strip().partition(" ")
            if order == "end":
                break
            wait_for(device)
            began, before = time.perf_counter(), trained
            if order == "oracle":
                gate.let(int(number))
                wait_for(device)
                assert gate.status is not None
                own = swarm.view.record(swarm.peer_id)
                say(
                    tokens=trained - before,
                    seconds=time.perf_counter() - began,
                    failed=gate.status.failed_rounds,
                    utilization=own.utilization if own else None,
                    waited=own.round_waiting_seconds if own else None,
                )
            else:
                tokens = 0
                while time.perf_counter() - began < float(number):
                    tokens += plain.step().tokens
                wait_for(device)
                say(tokens=tokens, seconds=time.perf_counter() - began)
        gate.open()
        oracle.stop()
        thread.join(60)


def plain_loop(oracle: Oracle, swarm: Swarm, device: torch.device) -> Trainer:
    """The oracle's model and batches without a swarm, warmed up."""
    model = build_model(swarm.manifest).to(device)
    optimizer = InnerOptimizer(model, swarm.manifest)  # type: ignore[arg-type]
    maybe_compile(model, device)
    batches, micro_batches = oracle.objective.batches(oracle.sequences, "plain")
    trainer = Trainer(model, optimizer, batches, device, micro_batches)
    for _ in range(3):
        trainer.step()
    wait_for(device)
    return trainer


def say(**facts: Any) -> None:
    """Answer."""
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
