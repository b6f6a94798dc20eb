"""Addresses on this machine."""

import contextlib
import random
import socket
from pathlib import Path

LOOPBACK = ("/ip4/127.0.0.1/tcp/0",)
NOBODY_ID = "QmPkTRJmzpU98SRujGnkDp9dpqKX8VS4HiQM7WJvSzKqBB"
NOBODY = f"/ip4/127.0.0.1/tcp/9/p2p/{NOBODY_ID}"  # the connection is refused at once


LOWEST_PORT, WITHOUT_PROC = 10_000, 30_000
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A TCP port on which nobody listens just now, if possible of those that the system gives to nobody."""
    end = int(RANGE.read_text().split()[0]) if RANGE.exists() else WITHOUT_PROC
    while True:
        # Tests beside this one have the same seed.
        port = random.SystemRandom().randrange(LOWEST_PORT, max(end, WITHOUT_PROC))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
