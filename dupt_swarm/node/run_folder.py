"""The folder for a node's sockets: removed with the node, or else by the next one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

PREFIX = "dupt-"
LOCK = "lock"


class RunFolder:
    """A new folder, locked by this process while it is in use; `path` is short, as sockets need it."""

    def __init__(self) -> None:
        """Create it, and remove leftovers of peers that could not clean up, as after a power cut."""
        _sweep(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        unlocked = self.path / f".{LOCK}"
        self._lock = unlocked.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unlocked.rename(self.path / LOCK)  # from now on others see it, and that it is locked

    def remove(self) -> None:
        """Remove it; a second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _sweep(folder: Path) -> None:
    """Remove what nobody has locked; in this folder, anybody may put anything under any name."""
    for lock in folder.glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):  # gone by now, or locked
            if not _is_ours(lock.parent, stat.S_ISDIR) or not _is_ours(lock, stat.S_ISREG):
                continue
            with lock.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)


def _is_ours(path: Path, is_kind: Callable[[int], bool]) -> bool:
    found = path.lstat()
    return found.st_uid == os.geteuid() and is_kind(found.st_mode)
