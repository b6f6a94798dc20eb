"""Paths as people type them, with a `~` for a home folder."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(path: Path | str) -> Path:
    """``path`` with the home folder for its `~` or `~user`; where there is no such user, as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 (Path.expanduser raises for an unknown user)
