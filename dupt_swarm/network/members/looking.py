"""The identity with which a machine only looks: one for all times, where each is a use of an invitation."""

from __future__ import annotations

import fcntl
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from pathlib import Path

from dupt_swarm.disk.folders import default_state_dir
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.settings import NodeSettings

FOLDER = "looking"  # in the platform's state folder


def with_identity(settings: NodeSettings, run_dir: Path, stack: AsyncExitStack | ExitStack) -> NodeSettings:
    """``settings`` with an identity if they have none; it is this process' until ``stack`` is closed."""
    if settings.identity_path is not None:
        return settings
    path = run_dir / "identity"
    if settings.invitation:
        path = _kept_identity(default_state_dir() / FOLDER, stack) or path
    load_identity(path)
    return replace(settings, identity_path=path)


def _kept_identity(folder: Path, stack: AsyncExitStack | ExitStack) -> Path | None:
    """That of this machine; None while another process has it: each would hear what is meant for both."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = stack.enter_context((folder / "lock").open("a"))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # that, or nothing can be kept here
        return None
    return folder / "identity"
