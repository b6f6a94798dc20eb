"""An evaluator: follows a swarm, and measures each new state on data that no oracle trains on."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from dupt_swarm.command_line.printable import is_harmless
from dupt_swarm.disk.home import expanded
from dupt_swarm.errors import ManifestError, UsageError
from dupt_swarm.learning.corpus import Progress
from dupt_swarm.learning.device import choose_device
from dupt_swarm.learning.generation.sampling import Sampling
from dupt_swarm.learning.generation.text import continue_text
from dupt_swarm.learning.interruptible import Abandoned, parameter_count, sequences_at_once
from dupt_swarm.learning.objectives import build_model, decoder_of, kind_of
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.strategies.flat import unflatten
from dupt_swarm.learning.threads import Threads
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Objective
from dupt_swarm.manifest.layout import layout_of
from dupt_swarm.manifest.tables import LANGUAGE
from dupt_swarm.node.messages import StateName
from dupt_swarm.node.record import (
    SAMPLE_BYTES_MAX,
    EvaluationRecord,
    RecordUpdate,
    SampleRecord,
    plain_name,
    publishable,
)
from dupt_swarm.offer.stock import open_stock
from dupt_swarm.settings import DATASET_PATTERN, EvaluatorSettings
from dupt_swarm.swarm import Swarm

LOOK_SECONDS = 0.5
# Of `SAMPLE_BYTES_MAX`, so that there is room for what the model writes.
PROMPT_BYTES_MAX = 200
TEMPERATURE, TOP_K, SEED = 0.8, 40, 0
HELD_OUT = "held-out"  # of the text that the swarm offers


@dataclass(frozen=True)
class Measurement:
    """The evaluation of one state; times in seconds, ``time`` since the epoch."""

    dataset: str
    state: StateName
    evaluation: Quality
    time: float
    seconds: float
    sample: SampleRecord | None = None

    @property
    def record(self) -> EvaluationRecord | None:
        """What others see of it; None: it is not `finite`."""
        if not self.finite:
            return None
        return EvaluationRecord(
            dataset=self.dataset,
            bits_per_byte=self.evaluation.bits_per_byte,
            loss_nats=self.evaluation.loss_nats,
            accuracy=self.evaluation.accuracy,
            nsp_accuracy=self.evaluation.nsp_accuracy,
            round=self.state.round,
            time=self.time,
            sample=self.sample,
        )

    @property
    def finite(self) -> bool:
        """Whether a record may hold it; see `publishable`."""
        found = self.evaluation
        return None not in (publishable(found.loss_nats), publishable(found.bits_per_byte or 0.0))


class Evaluator:
    """Measures states until told to stop."""

    def __init__(
        self,
        swarm: Swarm,
        settings: EvaluatorSettings,
        progress: Progress | None = None,
        alive: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Read the data, and build the model.

        Args:
            swarm: an open membership as evaluator.
            settings: data and device.
            progress: called with (done, in all) while a corpus is tokenised or fetched.
            alive: called again and again with what it does: ``measuring`` or ``waiting``.

        Raises:
            CorpusError: the data are not usable.
            DeviceError: the device is not there.
            ManifestError: the swarm trains a model that cannot be built from its manifest.
            UsageError: the name of the dataset or the prompt is not usable.
        """
        manifest = swarm.manifest
        self.dataset = dataset_name(settings)
        self._swarm, self._settings, self._alive = swarm, settings, alive
        self._device = choose_device(settings.device)
        tokenizer = Tokenizer.of(manifest, swarm.tokenizer)
        offered = open_stock(swarm, progress, to_train=False) if settings.corpus is None else None
        self.objective = kind_of(manifest).open(
            manifest, tokenizer, settings, swarm.folder.tokens, progress, offered
        )
        self._model = build_model(manifest).to(self._device)
        self._parameters = list(self._model.parameters())
        if layout_of(self._parameters) != swarm.layout:
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

    def run(self, report: Callable[[Measurement], None], wait: Callable[[], object] = lambda: None) -> None:
        """Measure the current state and then each new one, and publish the results, until stopped.

        A state that is outdated before the last one has been measured is passed over.

        Args:
            report: called after each measurement.
            wait: called again and again between them.
        """
        self._measure_and_publish(report)
        while not self._stopping.wait(LOOK_SECONDS):
            self._alive("waiting")
            wait()
            if self._swarm.catching_up.newer is None:
                continue
            before = self._swarm.state
            if self._swarm.adopt().state != before:
                self._measure_and_publish(report)

    def measure(self) -> Measurement | None:
        """Measure the current state; None if told to stop meanwhile."""
        started, state = time.monotonic(), self._swarm.state
        unflatten(self._swarm.anchor, self._parameters)
        try:
            found = self._measure()
        except Abandoned:
            return None
        measured = Measurement(self.dataset, state, found, time.time(), time.monotonic() - started)
        if self._sampler is None or not measured.finite:
            return measured
        return replace(measured, sample=self._sampler.sample(decoder_of(self._model)))

    def _measure_and_publish(self, report: Callable[[Measurement], None]) -> None:
        found = self.measure()
        if found is None:
            return
        self._swarm.publish(RecordUpdate(evaluation=found.record), now=True)
        report(found)

    def _measure(self) -> Quality:
        context_length = self._swarm.manifest.model.context_length
        at_once = sequences_at_once(
            self._settings.batch_size, parameter_count(self._model), context_length, self._device
        )
        return self.objective.measure_all(
            self._model, self._device, at_once, self._settings.blocks, self._look
        )

    def _look(self, done: int, total: int) -> None:
        """Between two batches."""
        del done, total
        if self._stopping.is_set():
            raise Abandoned
        self._alive("measuring")
        self._threads.adapt()


def dataset_name(settings: EvaluatorSettings) -> str:
    """The name of the corpus: from the settings, or else of its file or folder, or what the swarm holds out.

    Raises:
        UsageError: others would refuse a record with that name.
    """
    if not settings.dataset:
        if settings.corpus is None:
            return HELD_OUT
        stem = expanded(settings.corpus).absolute().name.partition(".")[0]
        return plain_name(stem) or "corpus"
    if not re.fullmatch(DATASET_PATTERN.strip("^$"), settings.dataset):
        raise UsageError(
            f"a dataset cannot be called {settings.dataset}: use at most 40 letters, digits, dots, dashes "
            "and underscores, and begin with a letter or digit",
            setting="dataset",
        )
    return settings.dataset


class Sampler:
    """Lets one state after the other continue the same prompt, with the same random numbers.

    What they write is short enough for a record, and fit for one.
    """

    def __init__(
        self,
        settings: EvaluatorSettings,
        objective: Objective,
        tokenizer: Tokenizer,
        stopping: threading.Event,
    ) -> None:
        """Continue the prompt of ``settings``; once ``stopping`` is set, end at once.

        Raises:
            UsageError: see `check_prompt`; or the swarm does not learn to continue texts.
        """
        check_prompt(settings)
        if objective.kind != LANGUAGE:
            raise UsageError(
                f"this swarm does not learn to continue texts, but {objective.kind}; leave the prompt out",
                setting="prompt",
            )
        self._prompt, self._tokenizer, self._stopping = settings.prompt or "", tokenizer, stopping
        self._sampling = Sampling(settings.sample_tokens, temperature=TEMPERATURE, top_k=TOP_K, seed=SEED)

    def sample(self, model: GPT) -> SampleRecord:
        """What ``model`` writes, as far as there is room for it, in whole characters."""
        prompt, text = harmless(self._prompt), ""
        room = SAMPLE_BYTES_MAX - len(prompt.encode())
        for piece in continue_text(model, self._tokenizer, self._prompt, self._sampling):
            text += harmless(piece)
            if len(text.encode()) > room or self._stopping.is_set():
                break
        return SampleRecord(prompt=prompt, text=text.encode()[:room].decode(errors="ignore"))


def check_prompt(settings: EvaluatorSettings) -> None:
    """Refuse a prompt that leaves no room for an answer.

    Raises:
        UsageError: it is too long, or not valid Unicode.
    """
    try:
        length = len((settings.prompt or "").encode())
    except UnicodeEncodeError as error:
        raise UsageError("the prompt is not valid Unicode; write it in UTF-8", setting="prompt") from error
    if length > PROMPT_BYTES_MAX:
        raise UsageError(
            f"the prompt has {length} bytes, and others see at most {PROMPT_BYTES_MAX}; shorten it",
            setting="prompt",
        )


def harmless(text: str) -> str:
    """``text`` without control characters and changes of direction; see `printable`."""
    return "".join(filter(is_harmless, text))
