"""A peer for the chaos tests, as somebody would write one with the library's public face.

Arguments: role, manifest (a file), state folder, address to listen on, initial peers (none for the first).
Prints a JSON line for each event, and goes on until SIGTERM.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

from dupt_swarm import GPT, CollaborativeOptimizer, Swarm
from dupt_swarm.errors import CheckpointError
from dupt_swarm.manifest import Manifest
from dupt_swarm.settings import NodeSettings

TOKENIZER = b"not used by these tests"
# The machine has other things to do, and rounds should last a moment.
STEP_SECONDS = float(os.environ.get("DUPT_CHAOS_STEP_SECONDS", "0.1"))
# So many different tokens are in its data: the fewer, the more there is to learn.
TOKENS_MAX = int(os.environ.get("DUPT_CHAOS_TOKENS", str(1 << 30)))
stopped = threading.Event()


def tell(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, "time": time.time(), **fields}), flush=True)


def main() -> None:
    role: Any
    role, manifest, folder, listen, *initial_peers = sys.argv[1:]
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    run = Manifest.from_bytes(Path(manifest).read_bytes())
    settings = NodeSettings(role, name=Path(folder).name, host_maddrs=(listen,))
    if role == "bootstrap":
        model = GPT(run.model)
        model.init_weights(run.seed)
        swarm = Swarm.create(run, TOKENIZER, model.parameters(), Path(folder), settings)
    else:
        swarm = Swarm.join(initial_peers, Path(folder), settings)
    with swarm:
        tell(
            "joined",
            peer_id=swarm.peer_id,
            address=swarm.addresses[0],
            addresses=swarm.addresses,
            round=swarm.state.round,
        )
        if role == "bootstrap":
            keep(swarm)
        else:
            train(swarm)


def keep(swarm: Swarm) -> None:
    while not stopped.wait(2.0):
        try:
            with swarm.folder.new_checkpoint() as path:
                swarm.save_replica(path)
            tell("saved", voters=len(swarm.view.voters))
        except CheckpointError as error:
            print(error, file=sys.stderr, flush=True)


def train(swarm: Swarm) -> None:
    generator = torch.Generator().manual_seed(int.from_bytes(swarm.peer_id.encode()) % 2**63)
    model = GPT(swarm.manifest.model)
    optimizer = CollaborativeOptimizer(model.parameters(), swarm)
    made, restarts = 0, 0
    while not stopped.wait(STEP_SECONDS):
        shape = (4, swarm.manifest.model.context_length + 1)
        different = min(TOKENS_MAX, swarm.manifest.model.vocabulary_size)
        tokens = torch.randint(different, shape, generator=generator)
        before, state = optimizer.last_round, swarm.state
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        made += tokens[:, 1:].numel()
        optimizer.step(tokens=tokens[:, 1:].numel())
        optimizer.zero_grad()
        tell("step", made=made, contributed=optimizer.contributed_tokens, loss=loss.item())
        if swarm.state != state:
            tell(
                "state",
                round=swarm.state.round,
                digest=swarm.state.digest,
                tokens=swarm.state.swarm_tokens,
                contributed=optimizer.contributed_tokens,
                finite=all(bool(each.isfinite().all()) for each in model.parameters()),
            )
        result = optimizer.last_round
        if result is not before and result is not None:
            tell("round", failed=result.reason, mates=len(result.mates))
        if sum(swarm.restarts.values()) != restarts:
            restarts = sum(swarm.restarts.values())
            tell("restart", reasons=dict(swarm.restarts))
    optimizer.settle()


if __name__ == "__main__":
    main()
