"""A switch with a delay, for `link.py`: hands each frame on after as long as it is told.

A kernel may lack `netem`, so the delay is made here: frames are taken from the ports by packet sockets and
put out by them, so each port's `tc tbf` applies as it would in a bridge. Large packets that a virtual card
has not cut yet stay whole (PACKET_VNET_HDR), which makes this cheap enough for some gigabits per second.

Arguments: the ports. It is told a `delay` in seconds whenever that changes; see `_child`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator

from _child import say

# Of Linux, and not in Python's `socket`.
ETH_P_ALL, SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 0x0003, 263, 15, 23
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
BUFFER_BYTES = 64 << 20
VNET_BYTES, MAC_BYTES = 10, 6  # what precedes a frame here, and then its receiver and its sender
FRAME_BYTES_MAX = 1 << 17
STDIN = sys.stdin.fileno()


class Switch:
    """Ports, what is known of who is behind them, and the frames that are under way."""

    def __init__(self, names: list[str]) -> None:
        self.ports = {port.fileno(): port for port in map(open_port, names)}
        self.delay = 0.0
        self._homes: dict[bytes, socket.socket] = {}
        self._under_way: deque[tuple[float, bytes, socket.socket]] = deque()

    def take(self, port: socket.socket) -> None:
        """Take what has arrived at ``port``."""
        due = time.monotonic() + self.delay
        for frame in frames_at(port):
            self._homes[frame[VNET_BYTES + MAC_BYTES : VNET_BYTES + 2 * MAC_BYTES]] = port
            self._under_way.append((due, frame, port))

    def hand_on(self) -> float | None:
        """Put out what is due; seconds until there is more, None if nothing is under way."""
        while self._under_way:
            due, frame, origin = self._under_way[0]
            wait = due - time.monotonic()
            if wait > 0:
                return wait
            self._under_way.popleft()
            home = self._homes.get(frame[VNET_BYTES : VNET_BYTES + MAC_BYTES])
            for port in [home] if home else self.ports.values():
                if port is not origin:
                    # A full queue drops, as it does in a router; `tc -s` counts it.
                    with contextlib.suppress(OSError):
                        port.send(frame)
        return None


def open_port(name: str) -> socket.socket:
    """A packet socket that hears what comes in at the port, and not what is sent there."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    port.bind((name, 0))
    port.setblocking(False)
    port.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    for option in (SO_SNDBUFFORCE, SO_RCVBUFFORCE):
        port.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    return port


def frames_at(port: socket.socket) -> Iterator[bytes]:
    """What waits at ``port``, each with the header that says what a card would still have to do."""
    with contextlib.suppress(BlockingIOError):
        while True:
            yield port.recv(FRAME_BYTES_MAX)


def main() -> None:
    # Peers that compute must not make the network slow: it is not of this machine.
    with contextlib.suppress(PermissionError):  # some containers allow no such priority
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    switch = Switch(sys.argv[1:])
    poll = select.epoll()
    for number in (STDIN, *switch.ports):
        poll.register(number, select.EPOLLIN)
    say(ready=True)
    wait = None
    while True:
        for number, _ in poll.poll(wait):
            if number != STDIN:
                switch.take(switch.ports[number])
            elif not (said := os.read(STDIN, 4096)):
                return
            else:
                switch.delay = json.loads(said.splitlines()[-1])["delay"]
        wait = switch.hand_on()


if __name__ == "__main__":
    main()
