"""The command that joins a swarm."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def join_line(addresses: Sequence[str], swarm_id: str, *, by_invitation: bool = False) -> str:
    """The command with these addresses, fit for a shell; nobody can offer another swarm there."""
    options = " ".join(f"--initial-peers {shlex.quote(address)}" for address in addresses)
    invitation = " --invitation TOKEN" if by_invitation else ""
    return f"dupt-peer join {options} --swarm {swarm_id}{invitation} --corpus PATH"
