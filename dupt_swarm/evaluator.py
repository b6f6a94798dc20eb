"""An evaluator: follows a swarm, and measures each new state on a corpus that no oracle trains on."""

from __future__ import annotations

import math
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from dupt_swarm.errors import ManifestError, UsageError
from dupt_swarm.learning.batches import held_out_batches
from dupt_swarm.learning.corpus import Corpus, Progress
from dupt_swarm.learning.device import choose_device
from dupt_swarm.learning.evaluation import Evaluation, evaluate
from dupt_swarm.learning.interruptible import Abandoned, parameter_count, sequences_at_once
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.learning.model import GPT
from dupt_swarm.learning.strategies.flat import unflatten
from dupt_swarm.learning.threads import Threads
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.node.messages import StateName
from dupt_swarm.node.record import BITS_PER_BYTE_MAX, DATASET_PATTERN, LOSS_MAX
from dupt_swarm.node.record_fields import EvaluationFields, SampleFields
from dupt_swarm.sample import Sampler
from dupt_swarm.settings import EvaluatorSettings
from dupt_swarm.swarm import Swarm

LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Measurement:
    """The evaluation of one state; times in seconds, ``time`` since the epoch."""

    dataset: str
    state: StateName
    evaluation: Evaluation
    time: float
    seconds: float
    sample: SampleFields | None = None

    @property
    def finite(self) -> bool:
        """Whether a record may hold it: others refuse records with non-finite values."""
        found = self.evaluation
        return (
            math.isfinite(found.loss_nats)
            and found.loss_nats <= LOSS_MAX
            and found.bits_per_byte <= BITS_PER_BYTE_MAX
        )


class Evaluator:
    """Measures states until told to stop."""

    def __init__(self, swarm: Swarm, settings: EvaluatorSettings, progress: Progress | None = None) -> None:
        """Tokenise the corpus, and build the model.

        Args:
            swarm: an open membership as evaluator.
            settings: corpus and device.
            progress: called with (bytes done, bytes in all) while the corpus is tokenised.

        Raises:
            CorpusError: the corpus is not usable.
            DeviceError: the device is not there.
            ManifestError: the swarm trains a model that cannot be built from its manifest.
            UsageError: the name of the dataset or the prompt is not usable.
        """
        manifest = swarm.manifest
        self.dataset = dataset_name(settings)
        self._swarm, self._settings = swarm, settings
        self._context_length = manifest.model.context_length
        self._device = choose_device(settings.device)
        tokenizer = Tokenizer.from_bytes(swarm.tokenizer)
        self._token_bytes = tokenizer.token_bytes()
        self.corpus = Corpus.prepare(
            TextFiles(settings.corpus, settings.field, settings.strict),
            tokenizer,
            swarm.folder.tokens,
            context_length=self._context_length,
            seed=manifest.seed,
            progress=progress,
        )
        self._model = GPT(manifest.model).to(self._device)
        self._parameters = list(self._model.parameters())
        if tuple(tuple(parameter.shape) for parameter in self._parameters) != swarm.layout:
            raise ManifestError(
                "the swarm trains a custom model that its manifest does not describe: "
                "it cannot be evaluated by this program"
            )
        self._threads = Threads()
        self._stopping = threading.Event()
        self._sampler = (
            None
            if settings.prompt is None
            else Sampler(settings, manifest.objective, tokenizer, self._stopping)
        )

    def stop(self) -> None:
        """End soon: after this batch, without a result. May be called from a signal handler."""
        self._stopping.set()

    def run(self, report: Callable[[Measurement], None]) -> None:
        """Measure the current state and then each new one, and publish the results, until stopped.

        A state that is outdated before the last one has been measured is passed over.

        Args:
            report: called after each measurement.
        """
        self._measure_and_publish(report)
        while not self._stopping.wait(LOOK_SECONDS):
            if self._swarm.catching_up.newer is None:
                continue
            before = self._swarm.state
            if self._swarm.adopt() != before:
                self._measure_and_publish(report)

    def measure(self) -> Measurement | None:
        """Measure the current state; None if told to stop meanwhile."""
        started, state = time.monotonic(), self._swarm.state
        unflatten(self._swarm.anchor, self._parameters)
        try:
            found = evaluate(self._model, self._batches(), self._token_bytes, self._device)
        except Abandoned:
            return None
        measured = Measurement(self.dataset, state, found, time.time(), time.monotonic() - started)
        if self._sampler is None or not measured.finite:
            return measured
        return replace(measured, sample=self._sampler.sample(self._model))

    def _measure_and_publish(self, report: Callable[[Measurement], None]) -> None:
        found = self.measure()
        if found is None:
            return
        record = EvaluationFields(
            dataset=found.dataset,
            bits_per_byte=found.evaluation.bits_per_byte,
            loss_nats=found.evaluation.loss_nats,
            round=found.state.round,
            time=found.time,
            sample=found.sample,
        )
        self._swarm.publish(now=True, evaluation=record if found.finite else None)
        report(found)

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The whole corpus, or its first blocks: an evaluator trains on nothing."""
        left = self._settings.blocks or sys.maxsize
        batch_size = sequences_at_once(
            self._settings.batch_size, parameter_count(self._model), self._context_length, self._device
        )
        for split in (self.corpus.train, self.corpus.held_out):
            if left == 0:
                return
            for inputs, targets in held_out_batches(split, self._context_length, batch_size, left):
                if self._stopping.is_set():
                    raise Abandoned
                self._threads.adapt()
                left -= len(inputs)
                yield inputs, targets


def dataset_name(settings: EvaluatorSettings) -> str:
    """The name of the corpus: from the settings, or else of its file or folder.

    Raises:
        UsageError: others would refuse a record with that name.
    """
    if not settings.dataset:
        stem = Path(settings.corpus).expanduser().absolute().name.partition(".")[0]
        return re.sub("[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:40] or "corpus"
    if not re.fullmatch(DATASET_PATTERN.strip("^$"), settings.dataset):
        raise UsageError(
            f"a dataset cannot be called {settings.dataset}: use at most 40 letters, digits, dots, dashes "
            "and underscores, and begin with a letter or digit",
            setting="dataset",
        )
    return settings.dataset
