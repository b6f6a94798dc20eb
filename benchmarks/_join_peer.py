"""One peer of `join.py`: a process on its own host. Its argument is JSON; see `_child`, too."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from _child import say
from _manifest import UNREAD

from dupt_swarm.node.messages import Downloading
from dupt_swarm.node.node import Node
from dupt_swarm.settings import NodeSettings
from dupt_swarm.swarm import Swarm


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
    with Node() as node:
        joined = node.join(settings)
        say(addresses=joined.addresses)
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


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    if arguments.pop("do") == "give":
        give(**arguments)
    else:
        join(**arguments)
