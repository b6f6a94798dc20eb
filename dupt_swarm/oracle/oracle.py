"""An oracle: a trainer on this machine's data and device, in a swarm."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Sequence

import torch
from torch import nn

from dupt_swarm.disk.folders import limited
from dupt_swarm.learning.corpus import Progress
from dupt_swarm.learning.data_parallel.workers import DeviceLostError, Workers
from dupt_swarm.learning.device import choose_devices, limit_memory, maybe_compile, needing_memory
from dupt_swarm.learning.driver import cards_of
from dupt_swarm.learning.inner import MOMENTS
from dupt_swarm.learning.inner.matrices import block_matrices
from dupt_swarm.learning.inner.unigrams import unigrams_of
from dupt_swarm.learning.interruptible import Abandoned, Look, parameter_count, sequences_at_once
from dupt_swarm.learning.mixture import weight_of_offered
from dupt_swarm.learning.objectives import build_model, kind_of
from dupt_swarm.learning.objectives.training import TrainingObjective
from dupt_swarm.learning.room import Saving, make_room
from dupt_swarm.learning.stopwatch import Observer
from dupt_swarm.learning.threads import Threads
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.trainer import LossMeter, Trainer
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.messages import RoundResult
from dupt_swarm.node.record import RecordUpdate, publishable
from dupt_swarm.offer.stock import open_stock
from dupt_swarm.optimizer.collaborative import CollaborativeOptimizer
from dupt_swarm.oracle.checkpoints import Checkpoints
from dupt_swarm.oracle.commands import Command, Commands
from dupt_swarm.oracle.held_out import HeldOut, HeldOutText
from dupt_swarm.oracle.idleness import Idleness
from dupt_swarm.oracle.judge import Judge
from dupt_swarm.oracle.status import AVERAGING, HANDING_OVER, PAUSED, RESTING, STARTING, Activity, Status
from dupt_swarm.oracle.throttle import Throttle
from dupt_swarm.settings import BATCH_SIZE, OracleSettings
from dupt_swarm.swarm import Swarm

REPORT_SECONDS = 0.5
REST_SECONDS = 0.2
# How long a round that is being ended may still take when the oracle is told to stop.
PATIENCE_SECONDS = 1.0
# How long to stay until somebody else has the state, when this oracle ends by itself and when told to stop.
# A first peer may be several rounds behind, and on a home's link each takes it half a minute.
HAND_OVER_SECONDS, HAND_OVER_SECONDS_STOPPED = 120.0, 2.0

logger = logging.getLogger(__name__)


class Oracle:
    """Trains until told to stop, and saves so that it can resume as if it never had stopped.

    `stop`, `pause`, `resume` and `finish` may be called from any thread; they are obeyed between two
    micro-batches. An inner step that is not complete when it is told to stop or to pause is dropped.

    Attributes:
        objective: what is learned, with this machine's data.
        sequences: how many it computes with at once.
        held_out: held-out evaluation, the first and the latest.
    """

    def __init__(self, swarm: Swarm, settings: OracleSettings, progress: Progress | None = None) -> None:
        """Read the data, build the model, and go on from this peer's checkpoint if there is one.

        Args:
            swarm: an open membership as oracle.
            settings: data and device.
            progress: called with (done, in all) while a corpus is tokenised or fetched.

        Raises:
            CorpusError: the data are not usable.
            NodeError: nobody gave the text that the swarm offers.
            DeviceError: the device is not there, or has not enough memory.
            CheckpointError: the checkpoint is damaged.
        """
        self._swarm, self._settings = swarm, settings
        devices, tokenizer = choose_devices(settings.device), Tokenizer.of(swarm.manifest, swarm.tokenizer)
        device = devices[0]
        limit_memory(device, settings.gpu_memory)
        limits = settings.max_temperature, settings.max_power
        self._throttle = Throttle(cards_of(devices), *limits) if any(limits) else None
        self._threads = Threads(settings.threads, computing=device.type == "cpu")
        offered = None if weight_of_offered(settings) is None else open_stock(swarm, progress)
        self.objective = kind_of(swarm.manifest).open(
            swarm.manifest, tokenizer, settings, swarm.folder.tokens, limited(swarm.folder, progress), offered
        )
        with needing_memory(device):
            self._trainer, self._optimizer, text = _build_trainer(
                swarm, settings, self.objective, devices, self._measuring("judging")
            )
        self.sequences = text.sequences
        self.held_out = HeldOut(lambda: text.measure(settings.held_out_blocks, self._measuring("evaluating")))
        self._meter = LossMeter()
        self._idleness = Idleness(devices) if settings.when_idle else None
        self._commands = Commands(settings.hours, is_free=lambda: not self._idleness or self._idleness.free)
        self._finish_above: int | None = None  # own tokens in the swarm's state when told to finish
        self._noted: RoundResult | None = None  # the last round that we have drawn conclusions from
        self._activity, self._reported = STARTING, 0.0
        self._report_to: Callable[[Status], None] = lambda _: None
        self._no_more_rounds = threading.Event()
        self._checkpoints = Checkpoints(
            *(swarm, self._optimizer, self._trainer, settings.checkpoint_seconds),
            *(self._saving, lambda: self._stopping),
        )
        self._checkpoints.resume()

    @property
    def model(self) -> nn.Module:
        """The model, with this oracle's own progress in it."""
        return self._trainer.model

    @property
    def learning_rate(self) -> float:
        """What the schedule gives now; see `CollaborativeOptimizer`."""
        return self._optimizer.learning_rate

    def observe(self, observer: Observer) -> None:
        """From now on tell ``observer`` the tokens of each inner step and the seconds of its phases."""
        self._trainer.observe(observer)

    def stop(self) -> None:
        """End soon, with a checkpoint. May be called from a signal handler."""
        if self._commands.current is not Command.STOP:
            self._commands.give(Command.STOP)
            threading.Thread(target=self._interrupt_rounds, name="oracle stop", daemon=True).start()

    def pause(self) -> None:
        """Take no more steps until `resume` (or the hours change), but stay in the swarm and follow it."""
        self._commands.give(Command.PAUSE)

    def resume(self) -> None:
        """Take steps again, outside the hours too (until they next begin or end)."""
        self._commands.give(Command.RUN)

    def finish(self) -> None:
        """Contribute at the end of this round, then end; if paused, go on until then.

        An oracle that is paused and has nothing to contribute ends at once.
        """
        if self._finish_above is None:  # else what has counted since the first time is enough
            self._finish_above = self._optimizer.contributed_tokens
        self._commands.give(Command.FINISH)

    def run(self, report: Callable[[Status], None]) -> None:
        """Train until stopped or finished, or until the rounds that the settings ask for are done.

        Args:
            report: called about twice a second, before what may take long, and after every round.

        Raises:
            DeviceError: a device has not enough memory, or is lost.
        """
        self._report_to = report
        try:
            with needing_memory(self._trainer.device):
                self._run()
        finally:
            try:
                self._trainer.close()
            finally:
                self._checkpoints.close()

    def _run(self) -> None:
        with contextlib.suppress(Abandoned):
            self.held_out.measure()
        try:
            while not self._stopping and not self._finished:
                with contextlib.suppress(Abandoned):
                    if self._commands.current is Command.PAUSE:
                        self._rest()
                    else:
                        self._train()
        except DeviceLostError:  # the step is lost, and nothing else
            self._settle()
            self._checkpoints.write_final()
            raise
        self._settle()
        self._no_more_rounds.set()
        self._checkpoints.write_final()
        # A user that says stop does not want to wait.
        with contextlib.suppress(Abandoned):
            self.held_out.measure()
        self._hand_over()
        self._report()

    def status(self) -> Status:
        """Its current status."""
        optimizer = self._optimizer
        paused = self._activity is PAUSED
        return Status(
            state="paused" if paused else "averaging" if optimizer.averaging else "training",
            round=self._swarm.state.round,
            progress=optimizer.progress,
            rounds_done=optimizer.rounds_done,
            tokens_per_second=optimizer.tokens_per_second,
            contributed_tokens=optimizer.contributed_tokens,
            loss=self._meter.mean,
            first=self.held_out.first,
            latest=self.held_out.latest,
            last_round=optimizer.last_round,
            failed_rounds=optimizer.failed_rounds,
            paused_until=self._commands.paused_until if paused else None,
            waits=paused and self._commands.waits,
            ledger_place=self._swarm.ledger_place,
            activity=self._activity,
        )

    @property
    def leaving(self) -> bool:
        """Whether it was told to finish or to stop, which nothing takes back."""
        return self._commands.current in (Command.FINISH, Command.STOP)

    @property
    def _stopping(self) -> bool:
        return self._commands.current is Command.STOP

    @property
    def _finished(self) -> bool:
        """Whether there is nothing more to do, without having been told to stop."""
        optimizer, wanted = self._optimizer, self._settings.rounds
        if wanted is not None and optimizer.rounds_done >= wanted:
            return True
        return self._finish_above is not None and optimizer.contributed_tokens > self._finish_above

    def _interrupt_rounds(self) -> None:
        """Once told to stop: a round that the step under way begins must not take long either."""
        while not self._no_more_rounds.wait(PATIENCE_SECONDS):
            self._optimizer.interrupt()

    def _train(self) -> None:
        """One inner step, and what follows from it."""
        self._meter.add(self._trainer.step(self._stepping))
        result = self._optimizer.last_round
        if result is self._noted:  # a round may have ended in a step that was dropped, too
            return
        self._noted = result
        self._report()
        self.held_out.measure_if_due()
        if self._checkpoints.due:
            self._settle()
            self._checkpoints.write()

    def _rest(self) -> None:
        """Leave the device to others until training may continue; the swarm does not wait for us."""
        self._settle()
        self._optimizer.pause()
        self._trainer.rest()
        self._checkpoints.write()
        self._checkpoints.wait()
        self._do(PAUSED)
        while self._commands.current is Command.PAUSE:
            self._optimizer.follow()
            self._do(PAUSED)
            if self._idleness:
                self._idleness.look(computing=False)
            time.sleep(REST_SECONDS)
        self._activity = STARTING
        if self._commands.current is Command.FINISH and not self._optimizer.round_tokens:
            self._optimizer.take_device()  # for a last evaluation
            self._finish_above = -1  # there is nothing to contribute
        elif not self._stopping:
            self._optimizer.resume()

    def _settle(self) -> None:
        """Wait for the end of a round that is being ended."""
        if self._optimizer.averaging:
            self._do(AVERAGING)
        self._optimizer.settle()

    def _hand_over(self) -> None:
        """Stay until the last round cannot be lost with us: all its oracles may be leaving at this moment."""
        started = time.monotonic()
        while not self._swarm.handed_over:
            limit = HAND_OVER_SECONDS_STOPPED if self._stopping else HAND_OVER_SECONDS
            if time.monotonic() - started > limit:
                logger.warning(
                    "nobody has fetched round %d yet; it is in our checkpoint", self._swarm.state.round
                )
                return
            self._do(HANDING_OVER)
            time.sleep(REST_SECONDS)

    def _stepping(self, done: int, total: int) -> None:
        self._look(Activity("stepping", done, total, "micro-batches"))
        if done:  # before the first there was nothing since the last step
            self._optimizer.attend()

    def _measuring(self, why: str) -> Look:
        return lambda done, total: self._look(Activity(why, done, total, "batches"))

    def _saving(self, done: int, total: int) -> None:
        self._do(Activity("saving", done // 10**6, total // 10**6, "MB"))

    def _look(self, activity: Activity) -> None:
        """Between two batches: follow the load of the machine and the owner's commands.

        Raises:
            Abandoned: no more steps are wanted.
        """
        self._threads.adapt()
        if self._idleness:
            self._idleness.look(computing=True)
        self._do(activity)
        self._obey_owner()
        if self._throttle:
            for _ in self._throttle.look():
                self._do(RESTING)
                self._obey_owner()

    def _obey_owner(self) -> None:
        if self._commands.current in (Command.PAUSE, Command.STOP):
            raise Abandoned

    def _do(self, activity: Activity) -> None:
        """From now on this is what it does; report it at once if it is something else than before."""
        another, self._activity = activity.name != self._activity.name, activity
        if another or time.monotonic() - self._reported > REPORT_SECONDS:
            self._report()

    def _report(self) -> None:
        self._reported = time.monotonic()
        self._meter.read()
        status = self.status()
        update = RecordUpdate(loss=publishable(status.loss))
        if latest := status.latest:
            update |= RecordUpdate(
                heldout_loss=publishable(latest.loss_nats),
                heldout_bits_per_byte=publishable(latest.bits_per_byte),
                heldout_accuracy=latest.accuracy,
                heldout_nsp_accuracy=latest.nsp_accuracy,
            )
        self._swarm.publish(update)
        self._report_to(status)


def _build_trainer(
    swarm: Swarm,
    settings: OracleSettings,
    objective: TrainingObjective,
    devices: Sequence[torch.device],
    look: Look,
) -> tuple[Trainer, CollaborativeOptimizer, HeldOutText]:
    """The model on the first device, with its optimizer, its batches and workers; and what measures it.

    ``look`` is called between two batches while a state is judged.
    """
    manifest, device = swarm.manifest, devices[0]
    own = hashlib.sha256(f"{manifest.seed} {swarm.peer_id}".encode()).digest()
    # Dropout of this oracle; a checkpoint brings its own random state.
    torch.manual_seed(int.from_bytes(own[:8]))
    # Where the held-out text is the same for all, each judges by another part of it: chance misleads a few.
    judged_from = int.from_bytes(own[8:12])
    model = build_model(manifest).to(device)
    sequences, saving = _at_once(manifest, settings, objective, model, devices)
    text = HeldOutText(objective, model, device, sequences)
    judge = Judge(
        list(model.parameters()),
        manifest.model.context_length,
        lambda blocks, first: text.measure(blocks, look, judged_from + first).loss_nats,
    )
    optimizer = CollaborativeOptimizer(
        *(model.parameters(), swarm, block_matrices(model), judge, unigrams_of(model)),
        offload=saving.offload,
    )
    wanted = settings.compile if objective.uniform else bool(settings.compile)
    maybe_compile(model, device, wanted)
    batches, micro_batches = objective.batches(sequences * len(devices), swarm.peer_id)
    workers = Workers(
        model, manifest, devices, wanted, settings.gpu_memory, checkpointing=saving.checkpointing
    )
    trainer = Trainer(model, optimizer, batches, device, micro_batches, workers=workers)
    return trainer, optimizer, text


def _at_once(
    manifest: Manifest,
    settings: OracleSettings,
    objective: TrainingObjective,
    model: nn.Module,
    devices: Sequence[torch.device],
) -> tuple[int, Saving]:
    """How many sequences each device computes with at once, and what the model needs to have room there."""
    device, asked, rounds = devices[0], settings.batch_size, manifest.rounds
    context_length, parameters = manifest.model.context_length, parameter_count(model)
    moments = MOMENTS[manifest.inner.optimizer]
    # Without any, strategy `gradient` has the sum of gradients, which stays.
    later = 4 * parameters * (moments or 1)
    most = sequences_at_once(asked or BATCH_SIZE, parameters, context_length, device)
    if device.type == "cuda" and asked is None:
        most = -(-rounds.tokens_per_step // (context_length * len(devices)))
    ways = list(Saving.ways(settings.offload, settings.activation_checkpointing, moments))
    found, way = make_room(model, objective.example, most, device, later, ways, settings.gpu_memory)
    if way != ways[0]:
        logger.info("%s has no room for one sequence otherwise: %s", device, way)
    return most if asked else found, way
