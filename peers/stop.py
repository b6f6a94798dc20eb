"""``dupt-peer stop``: leave now."""

from __future__ import annotations

from pathlib import Path

import click

from dupt_swarm.command_line.exit_codes import command_errors
from peers import options
from peers.control.client import find_peer, send


@click.command("stop")
@options.state_dir
@options.swarm_id
@options.local_name
@options.local_role
@command_errors
def command(state_dir: Path | None, swarm_id: str, name: str, role: str | None) -> None:
    """Have a running peer of this machine save a checkpoint and leave now."""
    send("stop", find_peer(state_dir, swarm_id, name, role))
