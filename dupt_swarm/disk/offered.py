"""Files of a swarm's offer, each named by its digest; those used longest ago make room for others."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from dupt_swarm.disk.limit import format_bytes
from dupt_swarm.fields import DIGEST

TEXT_BYTES = 2 * 10**9  # all of them at most: a laptop has that to spare


class OfferedFolder:
    """One folder of them.

    Attributes:
        path: the folder; it need not be there.
        pinned: names of files that stay, whatever else needs room.
    """

    def __init__(self, path: Path, most: int = TEXT_BYTES) -> None:
        """``most`` bytes."""
        self.path, self._most = path, most
        self.pinned: frozenset[str] = frozenset()

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of what is there by name, the one used longest ago first."""
        found: list[tuple[float, str, int]] = []
        with contextlib.suppress(OSError):  # the folder is not there
            for path in self.path.iterdir():
                with contextlib.suppress(OSError):  # it has just been removed
                    if DIGEST.fullmatch(path.name):
                        status = path.stat()
                        found.append((status.st_mtime, path.name, status.st_size))
        return {name: size for _, name, size in sorted(found)}

    def read(self, digest: str) -> bytes | None:
        """The file with this digest, unchecked, which is used now; None: it is not there."""
        path = self.path / digest
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            with contextlib.suppress(OSError):
                os.utime(path)
            return data
        return None

    def remove(self, digest: str) -> None:
        """Remove a file, if it is there and can be."""
        with contextlib.suppress(OSError):
            (self.path / digest).unlink(missing_ok=True)

    def problem(self, more: int) -> str:
        """Why ``more`` bytes do not fit; or an empty string."""
        if more + sum(self.sizes.values()) <= self._most:
            return ""
        return f"{self.path} takes {format_bytes(self._most)} at most, too little for its next file"

    def shrink(self, fits: Callable[[], bool], keep: Collection[str] = ()) -> None:
        """Remove files one by one until it ``fits``, or only those to ``keep`` are left."""
        for name in self.sizes:
            if fits():
                return
            if name not in keep and name not in self.pinned:
                self.remove(name)


def free_bytes(folder: Path) -> int:
    """What is left of the disk that the folder is on."""
    return shutil.disk_usage(folder).free
