"""``dupt-peer stop``: leave now."""

from __future__ import annotations

from peers.control.client import control_command

command = control_command(
    "stop",
    "Have a running peer of this machine save a checkpoint and leave now.",
)
