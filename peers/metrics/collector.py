"""From a running peer to metric families, made anew at each scrape."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import chain
from operator import methodcaller
from typing import TYPE_CHECKING, get_args

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from dupt_swarm.metrics import peer as names
from dupt_swarm.metrics.peer import PEER_METRICS
from dupt_swarm.metrics.record import IN_PEER, of_peer
from dupt_swarm.metrics.spec import Distribution, MetricSpec, Sample, Samples, by_label, families, one
from dupt_swarm.node.reasons import ENDINGS, REFUSED_MESSAGES, Failure
from dupt_swarm.node.record import PeerRecord, PeerState
from dupt_swarm.oracle.status import Status
from dupt_swarm.settings import NodeSettings
from dupt_swarm.version import VERSION
from peers.metrics.recorders import DownloadRecorder, RoundRecorder, StepRecorder

if TYPE_CHECKING:
    from dupt_swarm.learning.driver import Card
    from dupt_swarm.oracle.oracle import Oracle
    from dupt_swarm.swarm import Swarm

# Declared by fields of the record, but known here before they are in it.
ROUND, TOKENS_TOTAL = of_peer("round"), of_peer("tokens_total")
# Of each GPU. By the methods' names: the module of `Card` loads PyTorch.
READINGS = {
    names.GPU_UTILIZATION: methodcaller("utilization"),
    names.GPU_MEMORY_USED: methodcaller("used_bytes"),
    names.GPU_MEMORY_TOTAL: methodcaller("total_bytes"),
    names.GPU_TEMPERATURE: methodcaller("temperature"),
    names.GPU_ENERGY: methodcaller("energy"),
}

Histogram = tuple[MetricSpec, list[tuple[tuple[str, ...], Distribution]]]


class PeerMetrics(Collector):
    """Yields everything in `PEER_METRICS` that is known now; unknown values have no sample."""

    def __init__(self) -> None:
        """Nothing but the software is known; the methods below tell the rest as it comes."""
        self._started = time.time()
        self._software = VERSION, version("torch"), version("hivemind"), platform.python_version()
        self._swarm: Swarm | None = None
        self._settings: NodeSettings | None = None
        self._oracle: Oracle | None = None
        self._cards: Sequence[Card] = ()
        self._steps, self._rounds, self._downloads = StepRecorder(), RoundRecorder(), DownloadRecorder()

    def joined(self, swarm: Swarm, settings: NodeSettings) -> None:
        """This peer is in the swarm."""
        self._settings, self._swarm = settings, swarm
        swarm.listen(self._downloads.hear)

    def trains(self, oracle: Oracle, devices: str) -> None:
        """This peer's oracle begins; for what ``devices`` is see `several_devices`."""
        self._cards, self._oracle = cards_among(devices), oracle
        oracle.observe(self._steps.add)

    def report(self, status: Status) -> None:
        """The oracle's status has changed."""
        self._rounds.report(status)

    def describe(self) -> list[Metric]:
        """All families, without samples."""
        return [spec.family() for spec in PEER_METRICS]

    def collect(self) -> Iterator[Metric]:
        """New families with samples."""
        # What this process knows replaces what its record says.
        own = (self._of_record(), self._of_process(), self._of_swarm(), self._of_oracle())
        yield from families(dict(chain(*own, samples_of(self._cards))).items())
        for histogram, distributions in self._histograms():
            yield histogram.histogram(distributions)

    def _of_process(self) -> Iterator[Samples]:
        yield names.BUILD_INFO, [(self._software, 1.0)]
        yield names.START, one(self._started)
        now = self._state()
        yield names.STATE, [((state,), float(state == now)) for state in get_args(PeerState)]
        yield names.PAUSED, one(self._rounds.paused_seconds)

    @property
    def _record(self) -> PeerRecord | None:
        """What this peer says of itself to the others."""
        swarm = self._swarm
        return swarm.view.record(swarm.peer_id) if swarm else None

    def _state(self) -> str:
        status, record = self._rounds.status, self._record
        # Before it is in the swarm, it fetches the state.
        return status.state if status else record.state if record else "syncing"

    def _of_swarm(self) -> Iterator[Samples]:
        swarm, settings = self._swarm, self._settings
        if swarm is None or settings is None:
            return
        run = swarm.manifest.swarm_id
        yield names.INFO, [((run, swarm.peer_id, settings.role, settings.name, settings.device), 1.0)]
        view, record = swarm.view, self._record
        # Only an oracle moves from state to state itself; elsewhere the node does.
        round_now = record.round if record and self._oracle is None else swarm.state.round
        yield ROUND, one(round_now)
        yield names.ROUND_LAG, one(max(0, view.agreed.record.round - round_now) if view.agreed else None)
        yield names.KNOWN_PEERS, one(len(view.peers))
        yield names.DOWNLOADS_FAILED, one(self._downloads.failed)
        yield names.NETWORK_RECEIVE, one(swarm.traffic.received)
        yield names.NETWORK_TRANSMIT, one(swarm.traffic.sent)
        yield names.REFUSED_MESSAGES, by_label(swarm.traffic.refused, REFUSED_MESSAGES)
        yield names.NODE_RESTARTS, by_label(swarm.restarts, ENDINGS)
        checkpoint = swarm.folder.checkpoint
        yield names.CHECKPOINT_SAVED, one(checkpoint.stat().st_mtime if checkpoint else None)

    def _of_oracle(self) -> Iterator[Samples]:
        steps, rounds, status, oracle = self._steps, self._rounds, self._rounds.status, self._oracle
        # Its record has nothing of earlier sessions before it begins: a counter that falls would mislead.
        yield TOKENS_TOTAL, one(status.contributed_tokens if status else None)
        if oracle is None:
            return
        yield names.LEARNING_RATE, one(oracle.learning_rate)
        yield names.TRAINED_TOKENS, one(steps.tokens)
        yield names.INNER_STEPS, one(steps.steps)
        yield names.LAST_STEP, one(steps.last)
        yield names.AVERAGING_ROUNDS, one(rounds.rounds)
        yield names.AVERAGING_FAILED, by_label(rounds.failed, Failure)
        yield names.LAST_ROUND, one(rounds.last_success)
        if status is not None and status.last_round is not None:
            yield names.GROUP_SIZE, one(1 + len(status.last_round.mates))

    def _of_record(self) -> Iterator[Samples]:
        record = self._record
        if record is not None:
            yield from ((field.spec, field.value(record)) for field in IN_PEER)

    def _histograms(self) -> Iterator[Histogram]:
        if self._swarm is not None:
            yield names.DOWNLOAD_DURATION, [((), self._downloads.durations)]
        if self._oracle is not None:
            phases = dict(self._steps.phases)
            yield names.STEP_DURATION, [((phase,), spent) for phase, spent in phases.items()]
            yield names.AVERAGING_DURATION, [((), self._rounds.durations)]


def cards_among(devices: str) -> Sequence[Card]:
    """The NVIDIA GPUs among ``devices``; for what these are see `several_devices`."""
    if not devices.startswith("cuda"):
        return []  # without loading PyTorch
    from dupt_swarm.learning.device import several_devices
    from dupt_swarm.learning.driver import cards_of

    return cards_of(several_devices(devices))


def samples_of(cards: Sequence[Card]) -> Iterator[tuple[MetricSpec, list[Sample]]]:
    """What can be read of the cards now; not every GPU knows everything, nor the driver every GPU."""
    for spec, read in READINGS.items():
        found = [(card, read(card)) for card in cards]
        samples: list[Sample] = [((str(card.index),), value) for card, value in found if value is not None]
        if samples:
            yield spec, samples
