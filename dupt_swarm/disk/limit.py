"""A folder's size on disk, and its limit."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from dupt_swarm.errors import UsageError

LOGS = ("node.log", "node.log.1")
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def folder_bytes(folder: Path) -> int:
    """The size of all files in ``folder`` and below; what vanishes meanwhile does not count.

    A file with several names, as in checkpoints that share their replica state, counts once.
    """
    sizes: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):  # Python 3.11's `rglob` fails where a folder vanishes
        for path in map(Path(parent).joinpath, names):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    found = path.lstat()
                    sizes[found.st_dev, found.st_ino] = found.st_size
    return sum(sizes.values())


def _logs_bytes(folder: Path) -> int:
    """What others can make a peer write does not count: it has a limit of its own, of some MB."""
    size = 0
    for path in map(folder.joinpath, LOGS):
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def format_bytes(amount: float) -> str:
    """Such as ``1.5 GB``, in decimal units."""
    unit = 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.1f} {_UNITS[unit]}" if unit else f"{amount:.0f} bytes"


class DiskLimit:
    """The bytes that a folder may take but for its logs, or no limit at all."""

    def __init__(self, folder: Path, most: int | None = None) -> None:
        """``most`` in bytes.

        Raises:
            UsageError: the folder takes more already.
        """
        self._folder, self._most = folder, most
        if problem := self.problem(0, "nothing more"):
            raise UsageError(problem, setting="max_disk")

    def problem(self, more: int, what: str) -> str:
        """Why ``what``, of ``more`` bytes, does not fit, with the remedy; or an empty string."""
        if self._most is None:
            return ""
        used = folder_bytes(self._folder) - _logs_bytes(self._folder)
        if used + more <= self._most:
            return ""
        takes = f" and {what} about {format_bytes(more)}" if more else ""
        return (
            f"{self._folder} takes {format_bytes(used)}{takes}, more than the "
            f"{format_bytes(self._most)} allowed; allow more, give less text, or remove what you do not need"
        )
