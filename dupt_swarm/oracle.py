"""An oracle: a trainer on this machine's corpus and device, in a swarm."""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dupt_swarm.errors import CheckpointError
from dupt_swarm.learning.batches import Batches, held_out_batches
from dupt_swarm.learning.corpus import Corpus, Progress
from dupt_swarm.learning.device import choose_device, maybe_compile
from dupt_swarm.learning.evaluation import Evaluation, evaluate
from dupt_swarm.learning.model import GPT
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.trainer import Step, Trainer
from dupt_swarm.learning.tree import read_tree, write_tree
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.messages import RoundResult
from dupt_swarm.network.view import RoundProgress
from dupt_swarm.optimizer import CollaborativeOptimizer
from dupt_swarm.settings import OracleSettings
from dupt_swarm.swarm import REPLICA_FILE, Swarm

ORACLE_FILE = "oracle.safetensors"
REPORT_SECONDS = 0.5
# Held-out evaluation may take this part of the time.
EVALUATION_RATIO = 0.02
# How long an all-reduce under way may still take when the oracle is told to stop.
PATIENCE_SECONDS = 4.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Status:
    """How the oracle is doing; for the screen, the log and the record."""

    state: str
    round: int
    progress: RoundProgress
    rounds_done: int
    tokens_per_second: float
    tokens_total: int
    loss: float | None
    first: Evaluation | None
    latest: Evaluation | None
    last_round: RoundResult | None
    failed_rounds: int


class Oracle:
    """Trains until it is told to stop, and saves so that it can go on as if it never had.

    Attributes:
        corpus: the tokenised corpus.
        first: held-out evaluation at the start, latest: the last one; None if not done yet.
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
            settings.corpus,
            self._tokenizer,
            swarm.folder.tokens,
            context_length=manifest.model.context_length,
            seed=manifest.seed,
            field=settings.field,
            progress=progress,
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
        self.first: Evaluation | None = None
        self.latest: Evaluation | None = None
        self._meter = LossMeter()
        self._rounds_done = 0
        self._stopping = threading.Event()
        self._interrupted = False  # told to stop: whoever did so does not want to wait
        self._saved = time.monotonic()
        self._reported = 0.0
        self._resume(swarm.folder.checkpoint)

    @property
    def model(self) -> nn.Module:
        """The model, with this oracle's own progress in it."""
        return self._model

    def stop(self) -> None:
        """End soon: after this inner step, with a checkpoint. May be called from a signal handler."""
        if not self._stopping.is_set():
            self._interrupted = True
            self._stopping.set()
            timer = threading.Timer(PATIENCE_SECONDS, self._optimizer.interrupt)
            timer.daemon = True
            timer.start()

    def run(self, report: Callable[[Status], None]) -> None:
        """Train until stopped, or until the rounds that the settings ask for are done.

        Args:
            report: called about twice a second, and after every round.
        """
        self._evaluate()
        while not self._stopping.is_set():
            round_before = self._optimizer.last_round
            step = self._trainer.step()
            self._meter.add(step)
            if self._optimizer.last_round is not round_before:
                self._after_round(report)
            elif time.monotonic() - self._reported > REPORT_SECONDS:
                self._report(report)
        self._optimizer.settle()
        self.save()
        if not self._interrupted:
            self._evaluate()
        self._report(report)

    def save(self) -> None:
        """Write a checkpoint.

        Raises:
            CheckpointError: it cannot be written; the one before is still there.
        """
        self._optimizer.settle()
        with self._swarm.folder.new_checkpoint() as path:
            self._swarm.save_replica(path)
            write_tree(path / ORACLE_FILE, self._state_dict())
        self._swarm.announce_checkpoint()
        self._saved = time.monotonic()

    def status(self) -> Status:
        """How it is doing now."""
        optimizer = self._optimizer
        return Status(
            state="averaging" if optimizer.averaging else "training",
            round=self._swarm.state.round,
            progress=optimizer.progress,
            rounds_done=self._rounds_done,
            tokens_per_second=optimizer.tokens_per_second,
            tokens_total=optimizer.tokens_total,
            loss=self._meter.mean,
            first=self.first,
            latest=self.latest,
            last_round=optimizer.last_round,
            failed_rounds=optimizer.failed_rounds,
        )

    def _after_round(self, report: Callable[[Status], None]) -> None:
        result = self._optimizer.last_round
        if result is not None and result.state is not None:
            self._rounds_done += 1
        if self._rounds_done == self._settings.rounds:
            self._stopping.set()
        if self._evaluation_due():
            self._evaluate()
        if time.monotonic() - self._saved > self._settings.checkpoint_seconds:
            self._save_if_possible()
        self._report(report)

    def _save_if_possible(self) -> None:
        try:
            self.save()
        except CheckpointError as error:
            logger.warning("%s; training goes on, and the next round tries again", error)

    def _report(self, report: Callable[[Status], None]) -> None:
        self._reported = time.monotonic()
        self._meter.read()
        status = self.status()
        self._swarm.node.publish(
            loss=_sound(status.loss),
            heldout_loss=_sound(status.latest.loss_nats) if status.latest else None,
            heldout_bits_per_byte=_sound(status.latest.bits_per_byte) if status.latest else None,
        )
        report(status)

    def _evaluate(self) -> None:
        started = time.monotonic()
        batches = held_out_batches(
            self.corpus.held_out,
            self._swarm.manifest.model.context_length,
            self._settings.batch_size,
            self._settings.held_out_blocks,
        )
        self.latest = evaluate(self._model, batches, self._tokenizer.token_bytes(), self._device)
        self.first = self.first or self.latest
        now = time.monotonic()
        self._next_evaluation = now + (now - started) / EVALUATION_RATIO

    def _evaluation_due(self) -> bool:
        return time.monotonic() >= self._next_evaluation

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
        self._optimizer.load_state_dict(saved["optimizer"])
        self._trainer.load_state_dict(saved["trainer"])


def _sound(loss: float | None) -> float | None:
    """What a record may hold: others would refuse one that is not finite."""
    return loss if loss is not None and math.isfinite(loss) else None


class LossMeter:
    """The mean loss since the last reading, without waiting for the device in between."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self.mean: float | None = None

    def add(self, step: Step) -> None:
        """Take note of a step."""
        self._steps.append(step)

    def read(self) -> None:
        """Bring ``mean`` up to date, nats per token."""
        if self._steps:
            self.mean = sum(float(step.loss) for step in self._steps) / len(self._steps)
            self._steps.clear()


def cut_step(manifest: Manifest, batch_size: int) -> tuple[int, int]:
    """Sequences in a micro-batch, at most ``batch_size``, and micro-batches in an inner step."""
    sequences = manifest.rounds.tokens_per_step // manifest.model.context_length
    micro_batches = next(
        count
        for count in range(1, sequences + 1)
        if sequences % count == 0 and sequences // count <= batch_size
    )
    return sequences // micro_batches, micro_batches
