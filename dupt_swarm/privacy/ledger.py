"""How many private contributions an oracle has made, in a file that is written before each of them leaves."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.errors import CheckpointError


class Ledger:
    """Contributions by their noise multiplier. It only grows: no checkpoint takes one of them back.

    Attributes:
        made: how many with each noise multiplier.
    """

    def __init__(self, path: Path) -> None:
        """Read ``path`` if it exists.

        Raises:
            CheckpointError: it is damaged.
        """
        self._path = path
        self.made: Counter[float] = _read(path) if path.exists() else Counter()

    def add(self, noise: float) -> None:
        """One more contribution; it is on disk when this returns.

        Raises:
            FileError: it cannot be written, so the contribution must not leave.
        """
        made = self.made + Counter({noise: 1})
        text = json.dumps({"contributions": [{"noise": key, "made": made[key]} for key in sorted(made)]})
        write_atomically(self._path, lambda file: file.write_text(text))
        self.made = made


def _read(path: Path) -> Counter[float]:
    try:
        entries = json.loads(path.read_text())["contributions"]
        found = Counter({float(entry["noise"]): int(entry["made"]) for entry in entries})
        if len(found) != len(entries) or not all(map(_plausible, found.items())):
            raise ValueError("no such contributions")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}: is damaged, and nobody else knows how many contributions this oracle has made; "
            "bring the file back, or take ε as spent and remove it"
        ) from error
    return found


def _plausible(entry: tuple[float, int]) -> bool:
    noise, made = entry
    return math.isfinite(noise) and noise > 0 and made > 0
