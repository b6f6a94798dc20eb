"""Files of a swarm's offer, each named by its digest; those used longest ago make room for others."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from pathlib import Path

from dupt_swarm.disk.limit import format_bytes
from dupt_swarm.fields import DIGEST

TEXT_BYTES = 2 * 10**9  # all of them at most: a laptop has that to spare


class OfferedFolder:
    """One folder of them.

    Attributes:
        path: the folder; it need not be there.
    """

    def __init__(self, path: Path, most: int = TEXT_BYTES) -> None:
        """``most`` bytes."""
        self.path, self._most = path, most

    @property
    def files(self) -> list[Path]:
        """What is there, the one used longest ago first."""
        ages: dict[Path, float] = {}
        with contextlib.suppress(FileNotFoundError):  # the folder; or a file that has just been removed
            for path in self.path.iterdir():
                if DIGEST.fullmatch(path.name):
                    ages[path] = path.stat().st_mtime
        return sorted(ages, key=lambda path: (ages[path], path.name))

    def read(self, digest: str) -> bytes | None:
        """The file with this digest, unchecked, which is used now; None: it is not there."""
        path = self.path / digest
        try:
            os.utime(path)
            return path.read_bytes()
        except OSError:
            return None

    def remove(self, digest: str) -> None:
        """Remove a file, if it is there."""
        (self.path / digest).unlink(missing_ok=True)

    def problem(self, more: int) -> str:
        """Why ``more`` bytes do not fit; or an empty string."""
        if more + sum(path.stat().st_size for path in self.files) <= self._most:
            return ""
        return f"{self.path} takes {format_bytes(self._most)} at most, too little for its next file"

    def shrink(self, fits: Callable[[], bool], keep: Collection[str] = ()) -> None:
        """Remove files one by one until it ``fits``, or only those to ``keep`` are left."""
        for path in self.files:
            if fits():
                return
            if path.name not in keep:
                path.unlink(missing_ok=True)
