"""Hosts on one switch, each with a limited link, as network namespaces; needs root and iproute2."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

NETWORK = "10.77.0"
BURST_BYTES = 1 << 16  # a virtual card's largest packet
QUEUE = "50ms"


def run(*command: str) -> str:
    """Stdout of a tool.

    Raises:
        RuntimeError: it failed; has what it said.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Host:
    """A machine of its own with one network card."""

    namespace: str
    address: str

    def command(self, argv: Sequence[str]) -> list[str]:
        """``argv``, to run on this host."""
        return ["ip", "netns", "exec", self.namespace, *argv]


class Net:
    """The switch and its hosts; nothing of them is left when the ``with`` statement ends."""

    def __init__(self) -> None:
        """Nothing is made before ``with``."""
        self._prefix = f"dupt-{uuid.uuid4().hex[:8]}"
        self._namespaces: list[str] = []

    def __enter__(self) -> Net:
        try:
            self._switch = self._namespace("switch")
            run("ip", "-n", self._switch, "link", "add", "switch", "type", "bridge")
            run("ip", "-n", self._switch, "link", "set", "switch", "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def host(self, name: str, rate: str) -> Host:
        """A new host; ``rate`` such as ``100mbit`` limits its link, each direction by itself."""
        number = len(self._namespaces)
        namespace, port = self._namespace(name), f"port{number}"
        pair = ["type", "veth", "peer", "name", port, "netns", self._switch]
        run("ip", "link", "add", "eth0", "netns", namespace, *pair)
        run("ip", "-n", self._switch, "link", "set", port, "master", "switch", "up")
        run("ip", "-n", namespace, "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
        run("ip", "-n", namespace, "link", "set", "eth0", "up")
        for where, card in ((namespace, "eth0"), (self._switch, port)):
            limit = ["tbf", "rate", rate, "burst", str(BURST_BYTES), "latency", QUEUE]
            run("tc", "-n", where, "qdisc", "add", "dev", card, "root", *limit)
        return Host(namespace, f"{NETWORK}.{number}")

    def close(self) -> None:
        """End what still runs on the hosts, and remove them all."""
        for namespace in self._namespaces:
            for pid in run("ip", "netns", "pids", namespace).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            run("ip", "netns", "delete", namespace)
        self._namespaces.clear()

    def _namespace(self, name: str) -> str:
        namespace = f"{self._prefix}-{name}"
        run("ip", "netns", "add", namespace)
        self._namespaces.append(namespace)
        run("ip", "-n", namespace, "link", "set", "lo", "up")
        return namespace
