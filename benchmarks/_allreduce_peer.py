"""One peer of `allreduce.py`, with a libp2p daemon; see `_child`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import uvloop
from _child import orders, say
from _manifest import manifest_of
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hivemind import DHT, DecentralizedAverager
from hivemind.averaging.control import AveragingStage, StepControl
from hivemind.compression import Float16Compression
from hivemind.p2p import P2P
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.reach.starting import start_daemon
from dupt_swarm.network.rounds.deciding import Deciding
from dupt_swarm.network.rounds.session import Session
from dupt_swarm.presets import load_preset
from dupt_swarm.replica.codec import build_codec, part_sizes
from dupt_swarm.replica.electorate import PROBATION_ROUNDS, Electorate
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.settings import NodeSettings
from peers.demo import LOOPBACK
from tests.support.deciders import Decider
from tests.support.vectors import encode_parts

SECONDS, CHUNK_SECONDS, LOOK_SECONDS = 120.0, 30.0, 1.0
TOKENS = 1000  # fewer than a contribution to any round may stand for
# Each a way to exchange contributions, and how they are encoded.
ARMS: dict[str, Mapping[str, Any]] = {
    "reduce fp16": {"contribution": "scaled_fp16", "average": "scaled_fp16", "feedback": 0.0},
    "reduce int8": {"contribution": "int8", "average": "int8", "feedback": 0.0},
    "share top-k": {"contribution": "top_k", "feedback": 0.95},
}


def arm_manifest(arm: str) -> Manifest:
    """The preset `tiny` with the arm's encoding and exchange, and time limits that no turn reaches."""
    tables = load_preset("tiny")
    limits = {"matchmaking_seconds": 30, "chunk_seconds": CHUNK_SECONDS, "allreduce_seconds": SECONDS}
    tables["rounds"] |= {**limits, "exchange": arm.split()[0]}
    tables |= {"encoding": ARMS[arm], "aggregation": {"rule": "mean"}}
    return manifest_of(tables, name=arm.replace(" ", "-"))


class Vector:
    """What one of ``count`` peers contributes: the same values as the others, times a factor of its own."""

    def __init__(self, values: int, number: int, count: int) -> None:
        self.mine = torch.randn(values, generator=torch.Generator().manual_seed(1)).mul_(1e-3 * (1 + number))
        self._mean = (1 + count) / 2 / (1 + number)

    def error(self, average: Tensor) -> float:
        """The norm of what ``average`` differs by from the mean of all ÷ the norm of that."""
        mean = self.mine * self._mean
        return float((average - mean).norm() / mean.norm())


class Stock:
    """hivemind as it is, with the codec fp16."""

    def __init__(self, vector: Vector, count: int, initial_peers: Sequence[str]) -> None:
        self._vector = vector
        self._dht = DHT(host_maddrs=(LOOPBACK,), initial_peers=initial_peers or None, start=True)
        self._averager = DecentralizedAverager(
            [vector.mine.clone()],
            self._dht,
            start=True,
            prefix="stock",
            target_group_size=count,
            min_matchmaking_time=30.0,
            request_timeout=15.0,
            next_chunk_timeout=CHUNK_SECONDS,
            allreduce_timeout=SECONDS,
            compression=Float16Compression(),
            allow_state_sharing=False,
        )
        self.address = str(self._dht.get_visible_maddrs()[0])

    def prepare(self) -> StepControl:
        """Put the vector into the averager's memory, and find the group."""
        with self._averager.get_tensors() as [held]:
            held.copy_(self._vector.mine)
        step = self._averager.step(wait=False, require_trigger=True, allow_retries=False, timeout=SECONDS)
        while step.stage is not AveragingStage.AWAITING_TRIGGER:
            time.sleep(0.005)
        return step

    def average(self, step: StepControl) -> dict[str, Any]:
        """Average in it."""
        began = time.monotonic()
        step.allow_allreduce()
        step.result(SECONDS)
        ended = time.monotonic()
        with self._averager.get_tensors() as [held]:
            return {"began": began, "ended": ended, "error": self._vector.error(held), "digest": ""}

    def close(self) -> None:
        """Leave the swarm."""
        self._averager.shutdown()
        self._dht.shutdown()


@dataclass(frozen=True)
class Station:
    """A daemon of ours, as `Decider` wants it."""

    p2p: GuardedP2P
    key: Ed25519PrivateKey
    folder: Path

    @property
    def peer_id(self) -> str:
        """Its peer id."""
        return str(self.p2p.peer_id)


class Average(NextState):
    """In place of the state that follows: takes the average, and does no outer step.

    Attributes:
        values: the average, once it is complete.
    """

    def __init__(self, manifest: Manifest, before: ReplicaState, values: int) -> None:
        """``before`` need not have so many."""
        super().__init__(build_outer(manifest), before)
        self.values = torch.empty(values)
        self._into = torch.split(self.values, part_sizes(values))
        self.ended = 0.0

    def take(self, number: int, average: Tensor) -> None:
        """See `NextState`."""
        self._into[number].copy_(average)

    def finish(
        self, tokens: int, members: Collection[str], left: Collection[str] = (), *, weak: bool = False
    ) -> ReplicaState:
        """A small state, which is another one each time."""
        before, self.ended = self.before, time.monotonic()
        electorate = before.electorate.after(members, left, weak=weak)
        after = replace(before, round=before.round + 1, electorate=electorate)
        return replace(after, swarm_tokens=before.swarm_tokens + tokens)


class Ours:
    """The node of an oracle, as far as it averages; it takes part in all arms of ours.

    Each arm has a daemon: a peer answers a method in one way.
    """

    def __init__(self, vector: Vector, count: int) -> None:
        self._vector, self._count = vector, count
        self._contribution = b""
        self._manifests = {arm: arm_manifest(arm) for arm in ARMS}
        self._deciders: dict[str, Decider] = {}
        self._averages: dict[str, Average] = {}  # the last one of each arm

    async def open(
        self, folder: Path, initial_peers: Sequence[dict[str, str]], stack: AsyncExitStack
    ) -> dict[str, str]:
        """Start what there is to start, and return the own address in each arm."""
        identity = folder / "identity"
        settings = NodeSettings("oracle", host_maddrs=(LOOPBACK,), identity_path=identity)
        key, addresses = load_identity(identity), {}
        for arm, manifest in self._manifests.items():
            (folder / arm).mkdir()
            p2p = await start_daemon(settings, folder)
            stack.push_async_callback(p2p.shutdown)
            if initial_peers:
                await connect(p2p, [each[arm] for each in initial_peers])
            decider = Decider(manifest, Station(p2p, key, folder / arm), self._vector.mine.numel())
            decider.deciding = Deciding(decider.context, partial(self._begin, arm))
            await decider.open()
            stack.push_async_callback(decider.close)
            self._deciders[arm] = decider
            addresses[arm] = str((await p2p.get_visible_maddrs())[0])
        return addresses

    def _begin(self, arm: str, before: ReplicaState) -> NextState:
        self._averages[arm] = Average(self._manifests[arm], before, self._vector.mine.numel())
        return self._averages[arm]

    async def prepare(self, arm: str) -> dict[str, Any]:
        """Encode the vector, as a trainer does."""
        encoding = self._manifests[arm].encoding
        codec = build_codec(encoding.contribution, encoding)
        began, used = time.monotonic(), time.process_time()
        self._contribution = await asyncio.to_thread(encode_parts, codec, self._vector.mine)
        return {"began": began, "ended": time.monotonic(), "used": time.process_time() - used}

    async def average(self, arm: str, turn: int, members: Sequence[str]) -> dict[str, Any]:
        """Leave a state with ``members``; its time begins when another's contribution is known here."""
        decider = self._deciders[arm]
        decider.reach(_state(self._manifests[arm], turn, members), members)
        assert decider.deciding.present is not None
        meeting = asyncio.create_task(_others_come(decider.deciding.present))
        ended = await decider.deciding.end(self._contribution, TOKENS)
        if ended is None or ended.computed is None or len(ended.link.counted) != self._count:
            meeting.cancel()
            raise RuntimeError(f"{arm}: the round failed, or somebody is missing")
        average = self._averages[arm]
        error = await asyncio.to_thread(self._vector.error, average.values)
        digest = " ".join(ended.computed.averaged.blobs)
        return {"began": await meeting, "ended": average.ended, "error": error, "digest": digest}


def _state(manifest: Manifest, turn: int, members: Collection[str]) -> ReplicaState:
    """A small one, at which these decide; another one in each turn."""
    electorate = Electorate(PROBATION_ROUNDS + turn).after(members, weak=True)
    empty = {name: torch.zeros(1) for name in sorted(build_outer(manifest).buffer_names)}
    return ReplicaState(electorate.round, 0, ((1,),), torch.zeros(1), empty, electorate=electorate)


async def _others_come(session: Session) -> float:
    """When that is."""
    while not session.wanted and session.roll is None:
        await session.change(LOOK_SECONDS)
    return time.monotonic()


def run_stock(vector: Vector, count: int, initial_peers: Sequence[dict[str, str]]) -> None:
    """Obey until stdin closes."""
    peer = Stock(vector, count, [each["stock"] for each in initial_peers])
    say(addresses={"stock": peer.address})
    try:
        for order in orders():
            if order["do"] == "prepare":
                step = peer.prepare()
                say(began=0.0, ended=0.0, used=0.0)
            else:
                say(**peer.average(step))
    finally:
        peer.close()


async def run_ours(vector: Vector, count: int, initial_peers: Sequence[dict[str, str]], folder: Path) -> None:
    """Obey until stdin closes."""
    async with AsyncExitStack() as stack:
        peer = Ours(vector, count)
        say(addresses=await peer.open(folder, initial_peers, stack))
        told = orders()
        while order := await asyncio.to_thread(next, told, None):
            if order["do"] == "prepare":
                say(**await peer.prepare(order["arm"]))
            else:
                say(**await peer.average(order["arm"], order["turn"], order["members"]))


def main() -> None:
    """Take part; the argument is JSON."""
    order = json.loads(sys.argv[1])
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))  # as a node has it
    vector = Vector(order["values"], order["number"], order["count"])
    P2P._UNIX_SOCKET_PREFIX = f"/unix{order['folder']}/"  # stock leaves its sockets behind
    if order["kind"] == "stock":
        run_stock(vector, order["count"], order["initial_peers"])
    else:
        uvloop.run(run_ours(vector, order["count"], order["initial_peers"], Path(order["folder"])))


if __name__ == "__main__":
    main()
