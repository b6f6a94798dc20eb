"""An oracle as somebody would write one with the library's public face; run by tests as a process.

Arguments: address, state folder, seed of its data, round to stop at, oracles to wait for, and
addresses to listen on if not on loopback only. An invitation is taken from where `dupt-peer join` finds it.
Prints a JSON line after each round that it took part in.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch

from dupt_swarm import GPT, CollaborativeOptimizer, Swarm
from dupt_swarm.settings import NodeSettings

SETTLE_SECONDS = 30.0
STEP_SECONDS = 0.05  # others need a processor too


def main() -> None:
    address, folder, seed, rounds, oracles, *listen = sys.argv[1:]
    torch.set_num_threads(1)  # as an oracle begins: several on one machine, and nodes beside them
    settings = NodeSettings(
        "oracle",
        name=seed,
        host_maddrs=tuple(listen) or ("/ip4/127.0.0.1/tcp/0",),
        invitation=os.environ.get("DUPT_PEER_JOIN_INVITATION", ""),
    )
    generator = torch.Generator().manual_seed(int(seed))
    with Swarm.join([address], Path(folder), settings) as swarm:
        model = GPT(swarm.manifest.model)
        optimizer = CollaborativeOptimizer(model.parameters(), swarm)
        while len(swarm.view.companions(swarm.state.digest, "")) < int(oracles):
            time.sleep(0.05)
        while swarm.state.round < int(rounds):
            shape = (4, swarm.manifest.model.context_length + 1)
            tokens = torch.randint(swarm.manifest.model.vocabulary_size, shape, generator=generator)
            before = optimizer.last_round
            model(tokens[:, :-1], tokens[:, 1:]).backward()
            optimizer.step(tokens=tokens[:, 1:].numel())
            optimizer.zero_grad()
            time.sleep(STEP_SECONDS)
            result = optimizer.last_round
            if result is not before and result is not None and result.state is not None:
                line = {
                    "round": result.state.round,
                    "digest": result.state.digest,
                    "tokens": result.state.swarm_tokens,
                    "mates": len(result.mates),
                }
                print(json.dumps(line), flush=True)
        optimizer.settle()
        left = time.monotonic() + SETTLE_SECONDS
        while not swarm.handed_over and time.monotonic() < left:  # as `Oracle` does
            time.sleep(STEP_SECONDS)


if __name__ == "__main__":
    main()
