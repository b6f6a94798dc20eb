"""One of the oracles of `gpu.py`: trains in the swarm or without it, as it is told (see `_child`).

    rounds     go on in the swarm until so many more rounds have ended
    seconds    so long the same model, trainer and batches without a swarm

It answers each order with its tokens and seconds.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from unittest.mock import patch

import torch
from _child import orders, say
from _gated import GatedOracle
from local_speed import plain_trainer

from dupt_swarm.learning.device import choose_device, wait_for
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.oracle import held_out
from dupt_swarm.oracle.oracle import Oracle
from dupt_swarm.settings import NodeSettings, OracleSettings
from dupt_swarm.swarm import Swarm
from peers.demo import LOOPBACK


def main() -> None:
    """``_gpu_peer.py ADDRESS FOLDER CORPUS DEVICE``."""
    address, folder, corpus, name = sys.argv[1:]
    device = choose_device(name)
    node = NodeSettings("oracle", host_maddrs=(LOOPBACK,))
    with (
        Swarm.join([address], Path(folder), node) as swarm,
        patch.object(held_out, "SECONDS", 0.0),  # as in the long run: only at first do evaluations get more
    ):
        oracle = GatedOracle(Oracle(swarm, OracleSettings(Path(corpus), device=name)), device)
        sequences = oracle.oracle.sequences
        plain = plain_loop(oracle.oracle, swarm, device)
        print(f"an oracle begins, {sequences} sequences at once", file=sys.stderr, flush=True)
        oracle.go_on(1)
        say(sequences=sequences)
        for order in orders():
            began = time.perf_counter()
            if "rounds" in order:
                tokens = oracle.go_on(order["rounds"])
                seconds = time.perf_counter() - began
                assert oracle.status is not None
                own = swarm.view.record(swarm.peer_id)
                say(
                    tokens=tokens,
                    seconds=seconds,
                    failed=oracle.status.failed_rounds,
                    utilization=own.utilization if own else None,
                    waited=own.round_waiting_seconds if own else None,
                )
            else:
                tokens = 0
                while time.perf_counter() - began < order["seconds"]:
                    tokens += plain.step().tokens
                wait_for(device)
                say(tokens=tokens, seconds=time.perf_counter() - began)
        oracle.end()


def plain_loop(oracle: Oracle, swarm: Swarm, device: torch.device) -> Trainer:
    """The oracle's model and batches without a swarm, warmed up."""
    batches = oracle.objective.batches(oracle.sequences, "plain")
    trainer = plain_trainer(build_model(swarm.manifest).to(device), swarm.manifest, batches, device)
    for _ in range(3):
        trainer.step()
    wait_for(device)
    return trainer


if __name__ == "__main__":
    main()
