"""Locks by which processes keep out of one another's way; the system lifts those of one that dies.

A file system without locks stops nobody: who writes there goes on as if alone, and leaves alone what another
may be at. Only a peer's folder is refused there, as two peers would ruin their one identity.
"""

from __future__ import annotations

import fcntl
from typing import IO, Any


def lock_file(file: IO[Any] | int, *, wait: bool = False) -> bool | None:
    """Lock an open file or folder until it is closed.

    Args:
        file: or its descriptor.
        wait: until no other process has it locked.

    Returns:
        Whether it is ours now; False: another process has it; None: its file system has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
