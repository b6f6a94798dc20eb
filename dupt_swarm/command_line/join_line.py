"""The command that joins a swarm."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from dupt_swarm.manifest import Manifest


def join_line(addresses: Sequence[str], manifest: Manifest) -> str:
    """The command with these addresses, fit for a shell; nobody can offer another swarm there."""
    options = " ".join(f"--initial-peers {shlex.quote(address)}" for address in addresses)
    invitation = " --invitation TOKEN" if manifest.admission.kind == "invite" else ""
    corpus = "" if manifest.offer else " --corpus PATH"
    return f"dupt-peer join {options} --swarm {manifest.swarm_id}{invitation}{corpus}"
