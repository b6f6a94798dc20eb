"""Addresses on this machine."""

import socket

LOOPBACK = ("/ip4/127.0.0.1/tcp/0",)
NOBODY_ID = "QmPkTRJmzpU98SRujGnkDp9dpqKX8VS4HiQM7WJvSzKqBB"
NOBODY = f"/ip4/127.0.0.1/tcp/9/p2p/{NOBODY_ID}"  # the connection is refused at once


def free_port() -> int:
    """A TCP port on which nobody listens just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
