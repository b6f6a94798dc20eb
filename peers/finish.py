"""``dupt-peer finish``: end this round, then leave."""

from __future__ import annotations

from peers.control.client import control_command

command = control_command(
    "finish",
    "Have a running peer of this machine contribute at the end of this round, then leave.",
)
