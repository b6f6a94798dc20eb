"""``dupt-peer pause``: stop training for a while, and stay in the swarm."""

from __future__ import annotations

from peers.control.client import control_command

command = control_command(
    "pause",
    "Have a running peer of this machine stop training for a while. It stays in the swarm.",
)
