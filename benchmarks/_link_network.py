"""The network of `link.py`: hosts with limited links, a round trip between any two, counts from outside."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _child import Child

from tests.support.namespaces import PUBLIC, QUEUE, Host, Net, burst_bytes, run

RELAY = Path(__file__).with_name("_link_relay.py")
FAST = "1gbit"


@dataclass(frozen=True)
class Link:
    """What lies between a home and all others.

    Attributes:
        rate: bits per second in each direction, in millions; every header counts.
        round_trip: seconds between any two hosts, without what queues add.
    """

    rate: int
    round_trip: float

    @property
    def bytes_per_second(self) -> float:
        """Of each direction."""
        return self.rate * 1e6 / 8


@dataclass(frozen=True)
class Counts:
    """Bytes that passed a host's link since it was made, as `tc -s` counts them."""

    sent: int
    received: int


class LinkedHosts:
    """Hosts with a link each, all alike. Use it in a ``with`` statement; nothing of it is left afterwards."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._stack = ExitStack()
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> LinkedHosts:
        with ExitStack() as stack:
            self._net = stack.enter_context(Net())
            self.hosts = {name: self._net.host(name, FAST) for name in self._names}
            for host in self.hosts.values():
                # What most home machines have; by itself a namespace has what this machine has.
                way = [f"{PUBLIC}.0/24", "dev", "eth0", "src", host.address, "congctl", "cubic"]
                run("ip", "-n", host.namespace, "route", "replace", *way)
                # The bridge hands nothing on between isolated ports; the relay does.
                bridge_port = ["dev", host.port, "type", "bridge_slave", "isolated", "on"]
                run("ip", "-n", self._net.switch, "link", "set", *bridge_port)
            self.relay = stack.enter_context(self._start_relay())
            self.relay.answer()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_relay(self) -> Child:
        ports = [host.port for host in self.hosts.values()]
        return Child(["ip", "netns", "exec", self._net.switch, sys.executable, str(RELAY), *ports])

    def set(self, link: Link) -> None:
        """Every link is like this from now on."""
        rate = f"{link.rate}mbit"
        limit = ["tbf", "rate", rate, "burst", str(burst_bytes(rate)), "latency", QUEUE]
        for host in self.hosts.values():
            for where, card in ((host.namespace, "eth0"), (self._net.switch, host.port)):
                run("tc", "-n", where, "qdisc", "change", "dev", card, "root", *limit)
        self.relay.tell(delay=link.round_trip / 2)

    def counts(self) -> dict[str, Counts]:
        """By host."""
        downs = {each["dev"]: each for each in self._queues(self._net.switch)}
        found = {}
        for name, host in self.hosts.items():
            [up], down = self._queues(host.namespace), downs[host.port]
            found[name] = Counts(up["bytes"], down["bytes"])
        return found

    def _queues(self, namespace: str) -> list[dict[str, Any]]:
        told = json.loads(run("tc", "-n", namespace, "-s", "-j", "qdisc", "show"))
        return [queue for queue in told if queue["kind"] == "tbf"]
