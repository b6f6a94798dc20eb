"""An oracle: a trainer on this machine's corpus and device, in a swarm."""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dupt_swarm.disk.folders import ORACLE_FILE, limited
from dupt_swarm.errors import CheckpointError, NodeError
from dupt_swarm.learning.batches import Batches, cut_step, held_out_batches
from dupt_swarm.learning.corpus import Corpus, Progress
from dupt_swarm.learning.device import choose_device, maybe_compile
from dupt_swarm.learning.evaluation import Evaluation, evaluate
from dupt_swarm.learning.held_out import HeldOut
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.learning.meter import LossMeter
from dupt_swarm.learning.model import GPT
from dupt_swarm.learning.safe_state import read_tree, write_tree
from dupt_swarm.learning.stopwatch import Observer
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.optimizer.collaborative import CollaborativeOptimizer
from dupt_swarm.oracle.pausing import Pausing
from dupt_swarm.oracle.status import Status
from dupt_swarm.settings import OracleSettings
from dupt_swarm.swarm import REPLICA_FILE, Swarm

FINAL_MARK = "final"
REPORT_SECONDS = 0.5
REST_SECONDS = 0.2
# How long an all-reduce under way may still take when the oracle is told to stop.
PATIENCE_SECONDS = 4.0

logger = logging.getLogger(__name__)


class Oracle:
    """Trains until it is told to stop, and saves so that it can go on as if it never had.

    `stop`, `pause`, `resume` and `finish` may be called from any thread.

    Attributes:
        corpus: the tokenised corpus.
        held_out: held-out evaluation, the first and the latest.
    """

    def __init__(self, swarm: Swarm, settings: OracleSettings, progress: Progress | None = None) -> None:
        """Tokenise the corpus, build the model, and go on from this peer's checkpoint if there is one.

        Args:
            swarm: an open membership as oracle.
            settings: corpus and device.
            progress: called with (bytes done, bytes in all) while the corpus is tokenised.

        Raises:
            CorpusError: the corpus is not usable.
            DeviceError: the device is not there.
            CheckpointError: the checkpoint is damaged.
        """
        manifest = swarm.manifest
        self._swarm, self._settings = swarm, settings
        self._device = choose_device(settings.device)
        self._tokenizer = Tokenizer.from_bytes(swarm.tokenizer)
        self.corpus = Corpus.prepare(
            TextFiles(settings.corpus, settings.field, settings.strict),
            self._tokenizer,
            swarm.folder.tokens,
            context_length=manifest.model.context_length,
            seed=manifest.seed,
            progress=limited(swarm.folder, progress),
        )
        # Dropout of this oracle; a checkpoint brings its own random state.
        torch.manual_seed(
            int.from_bytes(hashlib.sha256(f"{manifest.seed} {swarm.peer_id}".encode()).digest()[:8])
        )
        self._model = GPT(manifest.model).to(self._device)
        self._optimizer = CollaborativeOptimizer(self._model.parameters(), swarm)
        batch_size, micro_batches = cut_step(manifest, settings.batch_size)
        maybe_compile(self._model, self._device, settings.compile)
        context_length = manifest.model.context_length
        batches = Batches(self.corpus.train, context_length, batch_size, manifest.seed, swarm.peer_id)
        self._trainer = Trainer(self._model, self._optimizer, batches, self._device, micro_batches)
        self.held_out = HeldOut(self._evaluate)
        self._meter = LossMeter()
        self._rounds_done = 0
        self._stopping = threading.Event()
        self._pausing, self._resting = Pausing(settings.hours), False
        self._finish_above: int | None = None  # own tokens in the swarm's state when told to finish
        self._interrupted = False  # told to stop: whoever did so does not want to wait
        self._saved = time.monotonic()
        self._reported = 0.0
        self._resume(swarm.folder.checkpoint)

    @property
    def model(self) -> nn.Module:
        """The model, with this oracle's own progress in it."""
        return self._model

    @property
    def learning_rate(self) -> float:
        """What the schedule gives now; see `CollaborativeOptimizer`."""
        return self._optimizer.learning_rate

    def observe(self, observer: Observer) -> None:
        """From now on tell ``observer`` the tokens of each inner step and the seconds of its phases."""
        self._trainer.observe(observer)

    def stop(self) -> None:
        """End soon: after this inner step, with a checkpoint. May be called from a signal handler."""
        if not self._stopping.is_set():
            self._interrupted = True
            self._stopping.set()
            timer = threading.Timer(PATIENCE_SECONDS, self._optimizer.interrupt)
            timer.daemon = True
            timer.start()

    def pause(self) -> None:
        """Take no more steps until `resume` (or the hours change), but stay in the swarm and follow it."""
        self._pausing.pause()

    def resume(self) -> None:
        """Take steps again, outside the hours too (until they next begin or end)."""
        self._pausing.resume()

    def finish(self) -> None:
        """Contribute at the end of this round, then end; if paused, go on until then.

        An oracle that is paused and has nothing to contribute ends at once.
        """
        self._finish_above = self._optimizer.contributed_tokens

    def run(self, report: Callable[[Status], None]) -> None:
        """Train until stopped or finished, or until the rounds that the settings ask for are done.

        Args:
            report: called about twice a second, and after every round.
        """
        self.held_out.measure()
        while not self._stopping.is_set() and not self._finished:
            round_before = self._optimizer.last_round
            if self._should_rest:
                self._rest(report)
            else:
                self._meter.add(self._trainer.step())
            if self._optimizer.last_round is not round_before:
                self._after_round(report)
            elif time.monotonic() - self._reported > REPORT_SECONDS:
                self._report(report)
        self._optimizer.settle()
        try:
            self.save(final=True)
        except NodeError as error:
            logger.warning("%s; the checkpoint before stands", error)
        if not self._interrupted:
            self.held_out.measure()
        self._report(report)

    def save(self, *, final: bool = False) -> None:
        """Write a checkpoint; ``final``: no step follows, so nothing in it reaches the swarm another way.

        Raises:
            CheckpointError: it cannot be written; the one before is still there.
            NodeError: the node is away at this moment.
        """
        self._optimizer.settle()
        with self._swarm.folder.new_checkpoint() as path:
            self._swarm.save_replica(path)
            write_tree(path / ORACLE_FILE, self._state_dict())
            if final:
                (path / FINAL_MARK).touch()
        self._swarm.announce_checkpoint()
        self._saved = time.monotonic()

    def status(self) -> Status:
        """How it is doing now."""
        optimizer = self._optimizer
        return Status(
            state="paused" if self._resting else "averaging" if optimizer.averaging else "training",
            round=self._swarm.state.round,
            progress=optimizer.progress,
            rounds_done=self._rounds_done,
            tokens_per_second=optimizer.tokens_per_second,
            contributed_tokens=optimizer.contributed_tokens,
            loss=self._meter.mean,
            first=self.held_out.first,
            latest=self.held_out.latest,
            last_round=optimizer.last_round,
            failed_rounds=optimizer.failed_rounds,
            paused_until=self._pausing.until if self._resting else None,
        )

    @property
    def _finished(self) -> bool:
        return self._finish_above is not None and self._optimizer.contributed_tokens > self._finish_above

    @property
    def _should_rest(self) -> bool:
        return self._finish_above is None and self._pausing.paused

    def _rest(self, report: Callable[[Status], None]) -> None:
        """Leave the device alone until it is time to go on; the others need not wait for us."""
        self._optimizer.pause()
        self._resting = True
        self._save_if_possible()
        while self._should_rest and not self._stopping.is_set():
            self._optimizer.follow()
            if time.monotonic() - self._reported > REPORT_SECONDS:
                self._report(report)
            time.sleep(REST_SECONDS)
        self._resting = False
        if self._finish_above is not None and not self._optimizer.round_tokens:
            self._stopping.set()
        if not self._stopping.is_set():
            self._optimizer.resume()

    def _after_round(self, report: Callable[[Status], None]) -> None:
        result = self._optimizer.last_round
        if result is not None and result.state is not None:
            self._rounds_done += 1
        if self._rounds_done == self._settings.rounds:
            self._stopping.set()
        self.held_out.measure_if_due()
        if time.monotonic() - self._saved > self._settings.checkpoint_seconds:
            self._save_if_possible()
        self._report(report)

    def _save_if_possible(self) -> None:
        try:
            self.save()
        except (CheckpointError, NodeError) as error:
            logger.warning("%s; training goes on, and the next round tries again", error)

    def _report(self, report: Callable[[Status], None]) -> None:
        self._reported = time.monotonic()
        self._meter.read()
        status = self.status()
        self._swarm.publish(
            loss=_sound(status.loss),
            heldout_loss=_sound(status.latest.loss_nats) if status.latest else None,
            heldout_bits_per_byte=_sound(status.latest.bits_per_byte) if status.latest else None,
        )
        report(status)

    def _evaluate(self) -> Evaluation:
        batches = held_out_batches(
            self.corpus.held_out,
            self._swarm.manifest.model.context_length,
            self._settings.batch_size,
            self._settings.held_out_blocks,
        )
        return evaluate(self._model, batches, self._tokenizer.token_bytes(), self._device)

    def _state_dict(self) -> dict[str, Any]:
        return {
            "state_digest": self._swarm.state.digest,
            "optimizer": self._optimizer.state_dict(),
            "trainer": self._trainer.state_dict(),
        }

    def _resume(self, checkpoint: Path | None) -> None:
        if checkpoint is None or not (checkpoint / ORACLE_FILE).exists():
            return
        saved = read_tree(checkpoint / ORACLE_FILE)
        if saved["state_digest"] != self._swarm.state.digest:
            logger.warning("%s does not belong to %s: starting from the latter", ORACLE_FILE, REPLICA_FILE)
            return
        mark = checkpoint / FINAL_MARK
        self._optimizer.load_state_dict(saved["optimizer"], doubtful=not mark.exists())
        mark.unlink(missing_ok=True)
        self._trainer.load_state_dict(saved["trainer"])


def _sound(loss: float | None) -> float | None:
    """What a record may hold: others would refuse one that is not finite."""
    return loss if loss is not None and math.isfinite(loss) else None
