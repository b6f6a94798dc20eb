"""A real swarm of one oracle and its first peer on this machine, whose node processes can be paused."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
from _processes import cpu_seconds, with_descendants

from dupt_swarm.learning.objectives import build_model
from dupt_swarm.manifest import Manifest
from dupt_swarm.settings import NodeSettings
from dupt_swarm.swarm import Swarm
from peers.demo import LOOPBACK


class Pause:
    """Suspends and resumes process groups.

    A shell waits for the end of this process, whatever it dies of, and then lets them go on: a stopped node
    would not notice that its parent is gone, and stay.
    """

    def __init__(self, groups: list[int]) -> None:
        self._groups = groups
        names = " ".join(f"-{group}" for group in groups)
        self._guard = subprocess.Popen(
            ["sh", "-c", f"read line; kill -CONT -- {names}"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self) -> None:
        """Suspend them: no CPU time from here on."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Resume them."""
        self._signal(signal.SIGCONT)

    def cpu_seconds(self) -> list[float]:
        """CPU seconds that the processes of each group have used."""
        return [cpu_seconds(with_descendants(leader)) for leader in self._groups]

    def close(self) -> None:
        """Resume them for good."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()

    def _signal(self, number: signal.Signals) -> None:
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)


def first_peer(manifest: Manifest, tokenizer: bytes, folder: Path) -> Swarm:
    """The first peer of a new swarm, on this machine only."""
    settings = NodeSettings("bootstrap", host_maddrs=(LOOPBACK,))
    return Swarm.create(manifest, tokenizer, build_model(manifest).parameters(), folder, settings)


@contextlib.contextmanager
def solitary_swarm(manifest: Manifest, tokenizer: bytes, folder: Path) -> Iterator[tuple[Swarm, Pause]]:
    """A first peer, and membership in its swarm as an oracle; the state of both lies below ``folder``."""
    with ExitStack() as stack:
        first = stack.enter_context(first_peer(manifest, tokenizer, folder / "first"))
        swarm = stack.enter_context(
            Swarm.join(first.addresses, folder / "oracle", NodeSettings("oracle", host_maddrs=(LOOPBACK,)))
        )
        # Each node process leads a group of its own, and nothing else that runs here does. The first peer's
        # is the older one.
        children = sorted(psutil.Process().children(), key=psutil.Process.create_time)
        pause = Pause([child.pid for child in children if os.getpgid(child.pid) == child.pid])
        stack.callback(pause.close)
        yield swarm, pause
