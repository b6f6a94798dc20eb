"""An oracle's checkpoints: the replica state, and beside it what only this oracle knows."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dupt_swarm.checkpoint import FINAL_MARK, ORACLE_FILE, REPLICA_FILE
from dupt_swarm.errors import CheckpointError, NodeError
from dupt_swarm.learning.safe_state import Packed, pack, read_tree, write_packed
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.optimizer.collaborative import CollaborativeOptimizer
from dupt_swarm.replica.storage import saved_digest
from dupt_swarm.swarm import Swarm

LOOK_SECONDS = 0.1

logger = logging.getLogger(__name__)


class _Position(NamedTuple):
    """Differs whenever a checkpoint would differ from the one before; ``digest``: of the swarm's state."""

    digest: str
    contributed_tokens: int
    round_tokens: int
    failed_rounds: int


class Checkpoints:
    """Writes them, and goes on from the newest; `CollaborativeOptimizer.settle` before each writing.

    A GPU trains on as soon as there is a copy in the main memory. On a CPU training waits for the disk: it
    has no memory for a copy, nor cores to spare.
    """

    def __init__(
        self,
        swarm: Swarm,
        optimizer: CollaborativeOptimizer,
        trainer: Trainer,
        seconds: float,
        look: Callable[[int, int], object],
        in_a_hurry: Callable[[], bool],
    ) -> None:
        """``seconds`` between two checkpoints.

        Args:
            look: called with the bytes done and in all, several times a second while somebody waits.
            in_a_hurry: whether to leave the rest to the system, see `SwarmFolder.new_checkpoint`; from any
                thread.
        """
        self._swarm, self._optimizer, self._trainer = swarm, optimizer, trainer
        self._seconds, self._look, self._in_a_hurry = seconds, look, in_a_hurry
        self._written_at = time.monotonic()
        self._written: _Position | None = None
        self._beside = trainer.device.type != "cpu"
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self._progress = 0, 0

    @property
    def due(self) -> bool:
        """Whether the last one is long enough ago, and none is being written."""
        writing = self._writing is not None and not self._writing.done()
        return not writing and time.monotonic() - self._written_at > self._seconds

    def write(self) -> None:
        """Write one of this moment, or on a GPU begin to; `wait` returns when it is written.

        If that is not possible, a warning says why, and the one before stands.
        """
        self.wait()
        self._begin(self._try_to_write, copy=self._beside)
        if not self._beside:
            self.wait()

    def wait(self) -> None:
        """Until what was begun is written."""
        if (writing := self._writing) is None:
            return
        while not writing.done():
            self._look(*self._progress)
            wait([writing], LOOK_SECONDS)
        self._writing = None
        writing.result()

    def write_final(self) -> None:
        """Write the last checkpoint: no step follows, so nothing in it reaches the swarm another way.

        Raises:
            CheckpointError: it cannot be written; the one before is still there.
        """
        self.wait()
        newest = self._swarm.folder.checkpoint
        if newest is not None and self._written == self._position:
            (newest / FINAL_MARK).touch()
            return
        self._begin(partial(self._write, final=True), copy=False)
        try:
            self.wait()
        except NodeError as error:
            logger.warning("%s; the checkpoint before stands", error)

    def close(self) -> None:
        """Wait for the disk; no more is written."""
        self._writer.shutdown()

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

    def _begin(self, write: Callable[[_Position, Packed], None], *, copy: bool) -> None:
        position = self._position
        own = {
            "state_digest": position.digest,
            "optimizer": self._optimizer.state_dict(),
            "trainer": self._trainer.state_dict(),
        }
        self._progress = 0, 0
        self._writing = self._writer.submit(write, position, pack(own, copy=copy))

    def _try_to_write(self, position: _Position, own: Packed) -> None:
        try:
            self._write(position, own)
        except (CheckpointError, NodeError) as error:
            logger.warning("%s; training goes on, and the next round tries again", error)

    def _write(self, position: _Position, own: Packed, *, final: bool = False) -> None:
        with self._swarm.folder.new_checkpoint(self._go_on) as path, ThreadPoolExecutor(1) as beside:
            replica = beside.submit(self._save_replica, path, position.digest)  # the node's work, meanwhile
            write_packed(path / ORACLE_FILE, own)
            saved = replica.result()
            if final:
                (path / FINAL_MARK).touch()
            elif saved != position.digest:
                raise CheckpointError("the swarm went on before its state was in a checkpoint")
        self._swarm.announce_checkpoint()
        self._written_at, self._written = time.monotonic(), position

    def _go_on(self, done: int, total: int) -> bool:
        self._progress = done, total
        return not self._in_a_hurry()

    def _save_replica(self, path: Path, digest: str) -> str:
        """The digest of what was saved: while the state stays as it is, the checkpoint before is linked."""
        newest = self._swarm.folder.checkpoint
        if newest is not None and saved_digest(newest / REPLICA_FILE) == digest:
            with contextlib.suppress(OSError):  # not every file system has links
                os.link(newest / REPLICA_FILE, path / REPLICA_FILE)
                return digest
        return self._swarm.save_replica(path).digest

    @property
    def _position(self) -> _Position:
        optimizer = self._optimizer
        return _Position(
            self._swarm.state.digest,
            optimizer.contributed_tokens,
            optimizer.round_tokens,
            optimizer.failed_rounds,
        )
