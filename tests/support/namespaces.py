"""Networks of network namespaces: hosts, routers with NAT, limited links, cuts.

Needs root, iproute2 and nftables.

::

    with Net() as net:
        server = net.host("server", rate="100mbit")
        laptop = net.nat("home").host("laptop")
        subprocess.run(laptop.command(["ping", "-c1", server.address]))
        net.cut([server], [laptop])
        net.heal()

Nothing of it is visible outside, and nothing is left when the ``with`` statement ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# libp2p tells public addresses from private ones, so these have to look public. No packet leaves.
PUBLIC = "5.5.5"
PRIVATE = "192.168.1"
BURST_SECONDS = 0.004  # what a limited link may send at once, in time at its rate
QUEUE = "50ms"
TOOLS = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables"}

MASQUERADE = """
table ip router {
    chain out { type nat hook postrouting priority srcnat; oifname "eth0" masquerade; }
    chain through {
        type filter hook forward priority filter; policy drop;
        iifname "inside" accept
        ct state established,related accept
    }
    chain in { type filter hook input priority filter; iifname "eth0" ct state new drop; }
}
"""


def missing() -> str:
    """Why no network can be built here; empty if it can."""
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            return f"{tool} is not installed (Debian package {package})"
    return "" if os.geteuid() == 0 else "network namespaces need root"


def run(*command: str, stdin: str | None = None) -> str:
    """Stdout of a tool.

    Raises:
        RuntimeError: it failed; has what it said.
    """
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Host:
    """A machine of its own: one network card ``eth0`` with ``address``.

    Attributes:
        namespace: name of its network namespace.
        address: IPv4, behind a router a private one.
        port: of the public switch, by which all that it sends to others goes.
    """

    namespace: str
    address: str
    port: str

    def command(self, argv: Sequence[str]) -> list[str]:
        """``argv``, to run on this host."""
        return ["ip", "netns", "exec", self.namespace, *argv]


class Router:
    """A home router: its hosts share one public address, and nobody outside can call them."""

    def __init__(self, net: Net, outside: Host) -> None:
        """Use `Net.nat`."""
        self.address = outside.address
        self._net, self._outside, self._hosts = net, outside, 0
        run(*outside.command(["ip", "link", "add", "inside", "type", "bridge"]))
        run(*outside.command(["ip", "address", "add", f"{PRIVATE}.1/24", "dev", "inside"]))
        run(*outside.command(["ip", "link", "set", "inside", "up"]))
        run(*outside.command(["sysctl", "-qw", "net.ipv4.ip_forward=1"]))
        run(*outside.command(["nft", "-f", "-"]), stdin=MASQUERADE)

    def host(self, name: str, rate: str | None = None) -> Host:
        """A new host behind this router; ``rate`` as in `Net.host`."""
        self._hosts += 1
        namespace = self._net.namespace(name)
        address = f"{PRIVATE}.{self._hosts + 1}"
        plug(namespace, address, self._outside.namespace, "inside", f"in{self._hosts}", rate)
        run("ip", "-n", namespace, "route", "add", "default", "via", f"{PRIVATE}.1")
        return Host(namespace, address, self._outside.port)


class Net:
    """A public network, which is one switch. Use it in a ``with`` statement.

    Attributes:
        switch: name of the switch's namespace.
    """

    def __init__(self) -> None:
        """Nothing is made before ``with``."""
        self._prefix = f"dupt-{uuid.uuid4().hex[:8]}"
        self._namespaces: list[str] = []
        self._hosts = 0

    def __enter__(self) -> Net:
        try:
            self.switch = self.namespace("switch")
            run("ip", "-n", self.switch, "link", "add", "switch", "type", "bridge")
            run("ip", "-n", self.switch, "link", "set", "switch", "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def host(self, name: str, rate: str | None = None) -> Host:
        """A new host with a public address; ``rate`` such as ``100mbit`` limits its link, each direction."""
        self._hosts += 1
        namespace, address, port = self.namespace(name), f"{PUBLIC}.{self._hosts}", f"port{self._hosts}"
        plug(namespace, address, self.switch, "switch", port, rate)
        return Host(namespace, address, port)

    def nat(self, name: str, rate: str | None = None) -> Router:
        """A new router with a public address; ``rate`` limits its link to the public network."""
        return Router(self, self.host(name, rate))

    def cut(self, one: Iterable[Host], other: Iterable[Host]) -> None:
        """From now on nothing gets from ``one`` group to the ``other`` or back; nobody is told so."""
        left, right = (f"{{ {', '.join(sorted({host.port for host in group}))} }}" for group in (one, other))
        rules = f"""
            table bridge cuts {{
                chain forward {{
                    type filter hook forward priority filter;
                    ether type ip iifname {left} oifname {right} drop
                    ether type ip iifname {right} oifname {left} drop
                }}
            }}
        """
        run("ip", "netns", "exec", self.switch, "nft", "-f", "-", stdin=rules)

    def heal(self) -> None:
        """All cuts are undone."""
        run("ip", "netns", "exec", self.switch, "nft", "flush", "ruleset")

    def namespace(self, name: str) -> str:
        """A new namespace of this network, with loopback only."""
        namespace = f"{self._prefix}-{name}"
        run("ip", "netns", "add", namespace)
        self._namespaces.append(namespace)
        run("ip", "-n", namespace, "link", "set", "lo", "up")
        return namespace

    def close(self) -> None:
        """End what still runs on the hosts, and remove them all."""
        for namespace in self._namespaces:
            for pid in run("ip", "netns", "pids", namespace).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            run("ip", "netns", "delete", namespace)
        self._namespaces.clear()


def plug(namespace: str, address: str, hub: str, bridge: str, port: str, rate: str | None) -> None:
    """Connect ``namespace`` by a cable to ``bridge`` of the namespace ``hub``, where it gets ``port``."""
    pair = ["type", "veth", "peer", "name", port, "netns", hub]
    run("ip", "link", "add", "eth0", "netns", namespace, *pair)
    run("ip", "-n", hub, "link", "set", port, "master", bridge, "up")
    run("ip", "-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
    run("ip", "-n", namespace, "link", "set", "eth0", "up")
    if rate is not None:
        for where, card in ((namespace, "eth0"), (hub, port)):
            limit = ["tbf", "rate", rate, "burst", str(burst_bytes(rate)), "latency", QUEUE]
            run("tc", "-n", where, "qdisc", "add", "dev", card, "root", *limit)


def burst_bytes(rate: str) -> int:
    """How much a link of ``rate`` sends at once: at least a large packet of a virtual card, 64 KiB.

    Raises:
        ValueError: not a rate such as ``100mbit``.
    """
    match = re.fullmatch(r"(\d+)([kmg])bit", rate)
    if match is None:
        raise ValueError(f"rate {rate}: write it like 100mbit")
    bits = int(match.group(1)) * {"k": 10**3, "m": 10**6, "g": 10**9}[match.group(2)]
    return max(1 << 16, round(bits / 8 * BURST_SECONDS))
