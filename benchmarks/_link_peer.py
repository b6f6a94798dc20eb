"""One peer of `link.py`: a process on its own host. Arguments come as JSON, answers go out as JSON lines.

It ends when stdin closes. An oracle takes its first step when stdin says so. Its inner steps are simulated:
they take time and no processor, as on a machine with a GPU. Whatever comes between them is real.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from _child import say
from _manifest import UNREAD
from torch import nn

from dupt_swarm import CollaborativeOptimizer, Swarm
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.messages import GroupFormed, RoundResult
from dupt_swarm.settings import NodeSettings, Role

LOOK_SECONDS = 0.2
MOVES_PER_ROUND = 4  # the weights change that often; each time costs what a copy of them costs
MOVE_SIZE = 1e-4


class Orders:
    """What stdin says."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for _ in sys.stdin:
            self.begun.set()
        self.ended.set()
        self.begun.set()


class Stopwatch:
    """Adds up what the training loop waits for: seconds, and seconds in which its thread computed."""

    def __init__(self) -> None:
        self.seconds = self.processor = 0.0

    def __enter__(self) -> None:
        self._began = time.monotonic(), time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.monotonic() - self._began[0]
        self.processor += time.thread_time() - self._began[1]


class GroupClock:
    """How long this oracle's groups take to form."""

    def __init__(self) -> None:
        self._averaging, self._began, self._formed = False, 0.0, 0.0

    def hear(self, event: object) -> None:
        """An event of the node's."""
        if isinstance(event, GroupFormed):
            self._formed = time.monotonic()

    def look(self, averaging: bool) -> None:
        """After each step: whether the end of a round is under way now."""
        if averaging and not self._averaging:
            self._began = time.monotonic()
        self._averaging = averaging

    @property
    def seconds(self) -> float:
        """For the last group."""
        return max(0.0, self._formed - self._began)


class SimulatedCompute:
    """Inner steps that take ``seconds`` each; a step that ends late makes the next one shorter."""

    def __init__(self, weights: nn.Parameter, seconds: float, steps_per_round: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._weights, self._seconds = weights, seconds
        self._noise = torch.randn(weights.shape, generator=generator)
        self._moves_each = max(1, steps_per_round // MOVES_PER_ROUND)
        self._late, self._steps = 0.0, 0

    def step(self) -> None:
        """Take one."""
        ends = time.monotonic() + self._seconds - self._late
        if self._steps % self._moves_each == 0:
            self._weights.data.add_(self._noise, alpha=MOVE_SIZE * (1 + self._steps % 7))
        self._steps += 1
        time.sleep(max(0.0, ends - time.monotonic()))
        self._late = min(time.monotonic() - ends, self._seconds)


def tell(**fields: Any) -> None:
    """Print what has happened."""
    say(time=time.monotonic(), **fields)


def train(swarm: Swarm, orders: Orders, numel: int, step_seconds: float, seed: int) -> None:
    """Take simulated steps, and tell of each round."""
    rounds, weights, pauses = swarm.manifest.rounds, nn.Parameter(torch.empty(numel)), Stopwatch()
    optimizer, groups = CollaborativeOptimizer([weights], swarm), GroupClock()
    swarm.listen(groups.hear)
    steps_per_round = rounds.tokens_per_round // rounds.tokens_per_step
    compute = SimulatedCompute(weights, step_seconds, steps_per_round, seed)
    orders.begun.wait()
    while not orders.ended.is_set():
        state, result = swarm.state, optimizer.last_round
        compute.step()
        with pauses:  # there is no gradient, so the inner optimizer has nothing to do
            optimizer.step(tokens=rounds.tokens_per_step)
        groups.look(optimizer.averaging)
        ended = optimizer.last_round if optimizer.last_round is not result else None
        if ended or swarm.state != state:
            tell_round(swarm, ended, pauses, groups)


def tell_round(swarm: Swarm, ended: RoundResult | None, pauses: Stopwatch, groups: GroupClock) -> None:
    """Tell where the state is, how the round ended if we took part, and how long training waited so far."""
    tell(
        round=swarm.state.round,
        digest=swarm.state.digest,
        tokens=swarm.state.swarm_tokens,
        ended=dataclasses.asdict(ended) if ended else None,
        restarts=sum(swarm.restarts.values()),
        groups=groups.seconds,
        paused=pauses.seconds,
        paused_processor=pauses.processor,
    )


def follow(swarm: Swarm, orders: Orders) -> None:
    """Adopt each newer state, as an evaluator does, without measuring it."""
    while not orders.ended.wait(LOOK_SECONDS):
        if swarm.catching_up.newer is not None:
            swarm.adopt()
            tell(round=swarm.state.round, digest=swarm.state.digest)


def open_swarm(role: Role, folder: Path, settings: NodeSettings, arguments: dict[str, Any]) -> Swarm:
    """Begin a swarm as its first peer, or join it."""
    if role != "bootstrap":
        return Swarm.join(arguments["initial_peers"], folder, settings)
    manifest = Manifest.from_bytes(arguments["manifest"].encode())
    weights = torch.randn(arguments["numel"], generator=torch.Generator().manual_seed(0))
    return Swarm.create(manifest, UNREAD, [nn.Parameter(weights)], folder, settings)


def main() -> None:
    """Be a peer until stdin closes."""
    arguments = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    role, orders = arguments["role"], Orders()
    settings = NodeSettings(role, name=arguments["name"], host_maddrs=tuple(arguments["listen"]))
    with open_swarm(role, Path(arguments["folder"]), settings, arguments) as swarm:
        tell(joined=swarm.peer_id, addresses=swarm.addresses)
        if role == "oracle":
            train(swarm, orders, arguments["numel"], arguments["step_seconds"], arguments["seed"])
        elif role == "evaluator":
            follow(swarm, orders)
        else:
            orders.ended.wait()


if __name__ == "__main__":
    main()
