"""From a snapshot to metric families, made anew at each scrape, so that departed peers go stale."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import get_args

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.learning_rate import scheduled_learning_rate, update_number
from dupt_swarm.metrics import monitor, swarm
from dupt_swarm.metrics.monitor import MONITOR_METRICS
from dupt_swarm.metrics.record import IN_SWARM
from dupt_swarm.metrics.spec import Sample, Samples, by_label, families, one
from dupt_swarm.metrics.swarm import SWARM_METRICS
from dupt_swarm.node.progress import round_progress
from dupt_swarm.node.record import PeerState
from dupt_swarm.node.view import Peer, View
from dupt_swarm.replica.ledger import Ledger
from dupt_swarm.settings import PublishedRole
from dupt_swarm.version import VERSION
from monitor.tally import Floor, Totals
from monitor.watcher import Snapshot

METRICS = (*SWARM_METRICS, *MONITOR_METRICS)
VERSIONS_MAX = 9  # any peer can invent versions; a label should have fewer than ten values or so
DATASETS_MAX = 9  # the same of evaluators
TASKS_MAX = 20  # the same of their tasks, with their metrics


class SwarmCollector(Collector):
    """Yields everything in `METRICS` that is known now; unknown values have no sample."""

    def __init__(
        self, snapshot: Callable[[], Snapshot], max_peer_series: int, clock: Callable[[], float] = time.time
    ) -> None:
        """Collect from whatever ``snapshot()`` returns at each scrape.

        Args:
            snapshot: gives the latest one.
            max_peer_series: how many peers get series of their own.
            clock: seconds since the epoch.
        """
        self._snapshot, self._max_peer_series, self._clock = snapshot, max_peer_series, clock

    def describe(self) -> list[Metric]:
        """All families, without samples."""
        return [spec.family() for spec in METRICS]

    def collect(self) -> Iterator[Metric]:
        """Fresh families of the latest snapshot."""
        snapshot = self._snapshot()
        view = snapshot.live_view(self._clock())
        shown = _busiest(view, snapshot.ledger)[: self._max_peer_series]
        everything = chain(
            of_run(snapshot.manifest),
            of_totals(snapshot.totals),
            of_ledger(snapshot.ledger),
            of_rounds(snapshot.manifest, view),
            of_losses(snapshot.manifest, view),
            of_peers(view),
            of_records(view, [_raised(peer, snapshot.floors) for peer in shown]),
            of_each_peer(shown),
        )
        run = snapshot.manifest.swarm_id
        in_run = ((spec, [((run, *labels), value) for labels, value in found]) for spec, found in everything)
        yield from families(chain(in_run, _of_monitor(snapshot)))


def _busiest(view: View, ledger: Ledger | None) -> list[Peer]:
    """Those first that have given the most by the links of rounds, then oracles: records may say anything."""
    given = {entry.peer_id: entry.tokens for entry in (ledger.entries if ledger else ()) if entry.rounds}

    def rank(peer: Peer) -> tuple[int, bool, int, str]:
        own = peer.record
        return -given.get(peer.peer_id, 0), own.role != "oracle", -own.tokens_total, peer.peer_id

    return sorted(view.peers, key=rank)


def _of_monitor(snapshot: Snapshot) -> Iterator[Samples]:
    yield monitor.BUILD_INFO, [((VERSION,), 1.0)]
    yield monitor.UP, one(float(snapshot.up))
    yield monitor.LAST_REFRESH, one(snapshot.last_refresh)
    yield monitor.REFRESH_DURATION, one(snapshot.refresh_seconds)
    yield monitor.REFRESH_ERRORS, one(snapshot.refresh_errors)


def of_run(manifest: Manifest) -> Iterator[Samples]:
    """What follows from the manifest alone."""
    model, rounds = manifest.model, manifest.rounds
    shape = f"{model.layers} layers, width {model.width}, context {model.context_length}"
    yield swarm.RUN_INFO, [((shape, manifest.sha256), 1.0)]
    yield swarm.ROUND_LIMIT_SECONDS, one(rounds.limit_seconds)


def of_totals(totals: Totals) -> Iterator[Samples]:
    """The counters."""
    yield swarm.TOKENS_TOTAL, one(totals.tokens)
    yield swarm.LAST_ROUND_TIMESTAMP, one(totals.round_time)
    yield swarm.AVERAGING_ROUNDS, one(totals.averaged + sum(totals.failed.values()))
    yield swarm.AVERAGING_ROUNDS_FAILED, by_label(totals.failed)
    yield swarm.REJECTED_CONTRIBUTIONS, by_label(totals.rejected)
    yield swarm.INVALID_RECORDS, by_label(totals.refused)
    yield swarm.REFUSED_MESSAGES, by_label(totals.refused_messages)


def of_ledger(ledger: Ledger | None) -> Iterator[Samples]:
    """What the chain of rounds says of all that was ever given."""
    yield swarm.CONTRIBUTORS, one(None if ledger is None else ledger.contributors)


def of_rounds(manifest: Manifest, view: View) -> Iterator[Samples]:
    """The swarm's progress, and its checkpoints."""
    agreed = view.agreed
    if agreed is not None:
        record = agreed.record
        yield swarm.ROUND, one(record.round)
        rate = scheduled_learning_rate(manifest, update_number(manifest, record.round))
        yield swarm.LEARNING_RATE, one(rate)
        companions = view.companions(record.state_digest)
        progress = round_progress(manifest, record.round, companions, view.time)
        if progress.live:
            yield swarm.ROUND_TOKENS, one(progress.tokens)
            yield swarm.ROUND_TARGET_TOKENS, one(progress.target)
        yield from _of_checkpoints(view, record.round)


def of_losses(manifest: Manifest, view: View) -> Iterator[Samples]:
    """The loss of the oracles, and what evaluators have measured."""
    yield swarm.LOSS_NATS, one(view.loss(manifest.limits))
    found = [((name,), evaluation) for name, evaluation in list(view.evaluations.items())[:DATASETS_MAX]]
    yield swarm.EVAL_BPB, _measured((name, evaluation.bits_per_byte) for name, evaluation in found)
    yield swarm.EVAL_ACCURACY, _measured((name, evaluation.accuracy) for name, evaluation in found)
    yield swarm.EVAL_TASK, [(name, task.value) for name, task in list(view.tasks.items())[:TASKS_MAX]]
    yield swarm.EVAL_TIMESTAMP, [(name, evaluation.time) for name, evaluation in found]
    yield swarm.EVAL_ROUND, [(name, evaluation.round) for name, evaluation in found]


def _measured(figures: Iterable[tuple[tuple[str, ...], float | None]]) -> list[Sample]:
    return [(labels, value) for labels, value in figures if value is not None]


def of_records(view: View, shown: list[Peer]) -> Iterator[Samples]:
    """The metrics that fields of the records declare: over all, or of each that is ``shown``."""
    for field in IN_SWARM:
        yield field.spec, field.samples(shown if field.metric.over == "each" else view.peers)


def _raised(peer: Peer, floors: Mapping[str, Floor]) -> Peer:
    """``peer`` with counters that have not fallen."""
    floor, record = floors.get(peer.peer_id, Floor()), peer.record
    counters = {
        "tokens_total": max(record.tokens_total, floor.tokens),
        "failed_rounds": max(record.failed_rounds, floor.failed),
    }
    return replace(peer, record=record.model_copy(update=counters))


def of_peers(view: View) -> Iterator[Samples]:
    """The peers that are there."""
    states = Counter((peer.record.role, peer.record.state) for peer in view.peers)
    # All of them, those at zero too: an alert cannot compare with a series that is missing.
    every = [(role, state) for role in get_args(PublishedRole) for state in get_args(PeerState)]
    yield swarm.PEERS, [(labels, float(states[labels])) for labels in every]
    unreachable = sum(peer.record.reach == "client" for peer in view.peers)
    yield swarm.PEERS_UNREACHABLE, one(unreachable)
    yield swarm.PEER_VERSIONS, _versions(view)
    yield swarm.DIGESTS_DISAGREEING, one(view.disagreeing)
    yield swarm.EXPOSING_PEERS, [((peer_id,), count) for peer_id, count in view.exposed.items()]


def of_each_peer(peers: list[Peer]) -> Iterator[Samples]:
    """What single peers say of themselves in words."""
    about = ((peer.peer_id, peer.record) for peer in peers)
    yield (
        swarm.PEER_INFO,
        [((each, own.role, own.name, own.version, own.device), 1.0) for each, own in about],
    )


def _of_checkpoints(view: View, newest_round: int) -> Iterator[Samples]:
    # One of a round, or a moment, that has not come would hide for good that nobody saves any more.
    saved = [
        (record.checkpoint_round, record.checkpoint_time)
        for record in (peer.record for peer in view.peers)
        if record.checkpoint_round is not None
        and record.checkpoint_round <= newest_round
        and record.checkpoint_time <= view.time
    ]
    newest = max(saved, default=None)
    yield swarm.CHECKPOINT_ROUND, one(newest[0] if newest else None)
    yield swarm.CHECKPOINT_TIMESTAMP, one(newest[1] if newest else None)


def _versions(view: View) -> list[Sample]:
    counts = Counter(peer.record.version or "unknown" for peer in view.peers)
    common = counts.most_common(VERSIONS_MAX)
    rest = counts.total() - sum(count for _, count in common)
    shown = Counter(dict(common)) + Counter({"other": rest})  # a peer may call its version `other`
    return [((version,), float(count)) for version, count in shown.items()]
