"""An oracle's checkpoints: the replica state, and beside it what only this oracle knows."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dupt_swarm.checkpoint import FINAL_MARK, ORACLE_FILE, REPLICA_FILE
from dupt_swarm.errors import CheckpointError, NodeError
from dupt_swarm.learning.safe_state import read_tree, write_tree
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.optimizer.collaborative import CollaborativeOptimizer
from dupt_swarm.replica.storage import saved_digest
from dupt_swarm.swarm import Swarm

logger = logging.getLogger(__name__)


class Checkpoints:
    """Writes them, and goes on from the newest; `CollaborativeOptimizer.settle` before each writing."""

    def __init__(
        self,
        swarm: Swarm,
        optimizer: CollaborativeOptimizer,
        trainer: Trainer,
        seconds: float,
        go_on: Callable[[int, int], bool],
    ) -> None:
        """``seconds`` between two checkpoints; for ``go_on`` see `SwarmFolder.new_checkpoint`."""
        self._swarm, self._optimizer, self._trainer = swarm, optimizer, trainer
        self._seconds, self._go_on = seconds, go_on
        self._written_at = time.monotonic()
        self._written: object = None

    @property
    def due(self) -> bool:
        """Whether the last one is long enough ago."""
        return time.monotonic() - self._written_at > self._seconds

    def write(self) -> None:
        """Write a checkpoint; if that is not possible, a warning says why, and the one before stands."""
        try:
            self._write()
        except (CheckpointError, NodeError) as error:
            logger.warning("%s; training goes on, and the next round tries again", error)

    def write_final(self) -> None:
        """Write the last checkpoint: no step follows, so nothing in it reaches the swarm another way.

        Raises:
            CheckpointError: it cannot be written; the one before is still there.
        """
        newest = self._swarm.folder.checkpoint
        if newest is not None and self._written == self._position:
            (newest / FINAL_MARK).touch()
            return
        try:
            self._write(final=True)
        except NodeError as error:
            logger.warning("%s; the checkpoint before stands", error)

    def resume(self) -> None:
        """Go on from the newest checkpoint, if there is one.

        Raises:
            CheckpointError: it is damaged.
        """
        newest = self._swarm.folder.checkpoint
        if newest is None or not (newest / ORACLE_FILE).exists():
            return
        saved = read_tree(newest / ORACLE_FILE)
        if saved["state_digest"] != self._swarm.state.digest:
            logger.warning("%s does not belong to %s: starting from the latter", ORACLE_FILE, REPLICA_FILE)
            return
        mark = newest / FINAL_MARK
        self._optimizer.load_state_dict(saved["optimizer"], doubtful=not mark.exists())
        mark.unlink(missing_ok=True)
        self._trainer.load_state_dict(saved["trainer"])
        self._written = self._position

    def _write(self, *, final: bool = False) -> None:
        self._go_on(0, 0)  # it begins
        with self._swarm.folder.new_checkpoint(self._go_on) as path, ThreadPoolExecutor(1) as beside:
            replica = beside.submit(self._save_replica, path)  # the node's work, and at the same time
            write_tree(
                path / ORACLE_FILE,
                {
                    "state_digest": self._swarm.state.digest,
                    "optimizer": self._optimizer.state_dict(),
                    "trainer": self._trainer.state_dict(),
                },
            )
            replica.result()
            if final:
                (path / FINAL_MARK).touch()
        self._swarm.announce_checkpoint()
        self._written_at, self._written = time.monotonic(), self._position

    def _save_replica(self, path: Path) -> None:
        """Between two rounds the replica state stays as it is: then the checkpoint before is linked."""
        newest = self._swarm.folder.checkpoint
        if newest is not None and saved_digest(newest / REPLICA_FILE) == self._swarm.state.digest:
            with contextlib.suppress(OSError):  # not every file system has links
                os.link(newest / REPLICA_FILE, path / REPLICA_FILE)
                return
        self._swarm.save_replica(path)

    @property
    def _position(self) -> object:
        """What differs whenever a checkpoint would differ from the one before."""
        optimizer = self._optimizer
        return (
            self._swarm.state.digest,
            optimizer.contributed_tokens,
            optimizer.round_tokens,
            optimizer.failed_rounds,
        )
