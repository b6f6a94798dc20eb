"""Anchors from which less than a quorum went on, on disk.

Should the branch that began there be left for another one, its oracles bring what they have learnt since.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from torch import Tensor

from dupt_swarm.errors import CheckpointError
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import save_anchor

KEPT_MAX = 2  # each is as large as the model

logger = logging.getLogger(__name__)


class Origins:
    """Those of one peer."""

    def __init__(self, folder: Path | None = None) -> None:
        """Those in ``folder``, which need not exist; None: none are kept."""
        self._folder = folder
        self._writing: set[asyncio.Future[None]] = set()

    def keep(self, state: ReplicaState) -> None:
        """A branch begins at ``state``. The file is written beside what goes on."""
        if self._folder is None:
            return
        path = self._folder / f"{state.round:08d}-{state.digest}.safetensors"
        writing = asyncio.get_running_loop().run_in_executor(None, self._write, state.anchor, path)
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    def find(self, digest: str) -> Path | None:
        """The file with the anchor of a state, if it was kept."""
        if self._folder is None:
            return None
        return next(self._folder.glob(f"*-{digest}.safetensors"), None)

    def _write(self, anchor: Tensor, path: Path) -> None:
        try:
            path.parent.mkdir(exist_ok=True)
            save_anchor(anchor, path)
            kept = sorted(path.parent.glob("*.safetensors"), key=lambda each: each.stat().st_mtime_ns)
            for old in kept[:-KEPT_MAX]:
                old.unlink()
        except (CheckpointError, OSError) as error:
            logger.warning("what is learnt now may be lost where branches meet: %s", error)
