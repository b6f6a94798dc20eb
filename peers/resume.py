"""``dupt-peer resume``: go on training."""

from __future__ import annotations

from peers.control.client import control_command

command = control_command(
    "resume",
    "Have a paused peer of this machine go on training.",
)
