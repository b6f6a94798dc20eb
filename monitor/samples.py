"""What a snapshot says of the swarm, as samples of the metrics in `dupt_swarm.metrics.swarm`."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import get_args

from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.learning_rate import scheduled_learning_rate, update_number
from dupt_swarm.metrics import swarm as metrics
from dupt_swarm.metrics.spec import MetricSpec, Sample
from dupt_swarm.node.progress import round_progress
from dupt_swarm.node.record import PeerRecord, PeerState, Role
from dupt_swarm.node.view import Peer, View
from monitor.tally import Floor, Totals

VERSIONS_MAX = 9  # any peer can invent versions; a label should have fewer than ten values or so
DATASETS_MAX = 9  # the same of evaluators

Samples = tuple[MetricSpec, list[Sample]]


def one(value: float | None) -> list[Sample]:
    """The only sample of a metric without labels; none if the value is not known."""
    return [] if value is None else [((), value)]


def of_run(manifest: Manifest) -> Iterator[Samples]:
    """What follows from the manifest alone."""
    model, rounds = manifest.model, manifest.rounds
    shape = f"{model.layers} layers, width {model.width}, context {model.context_length}"
    yield metrics.RUN_INFO, [((shape, manifest.sha256), 1.0)]
    yield metrics.ROUND_LIMIT_SECONDS, one(rounds.limit_seconds)


def of_totals(totals: Totals) -> Iterator[Samples]:
    """The counters."""
    yield metrics.TOKENS_TOTAL, one(totals.tokens)
    yield metrics.LAST_ROUND_TIMESTAMP, one(totals.round_time)
    yield metrics.AVERAGING_ROUNDS, one(totals.averaged + sum(totals.failed.values()))
    yield metrics.AVERAGING_ROUNDS_FAILED, _by_label(totals.failed)
    yield metrics.REJECTED_CONTRIBUTIONS, _by_label(totals.rejected)
    yield metrics.INVALID_RECORDS, _by_label(totals.refused)
    yield metrics.REFUSED_MESSAGES, _by_label(totals.refused_messages)


def of_rounds(manifest: Manifest, view: View) -> Iterator[Samples]:
    """The swarm's progress, and the outcome of its last rounds."""
    agreed = view.agreed
    if agreed is not None:
        record = agreed.record
        yield metrics.ROUND, one(record.round)
        rate = scheduled_learning_rate(manifest, update_number(manifest, record.round))
        yield metrics.LEARNING_RATE, one(rate)
        companions = view.companions(record.state_digest)
        progress = round_progress(manifest, record.round, companions, view.time)
        if progress.live:
            yield metrics.ROUND_TOKENS, one(progress.tokens)
            yield metrics.ROUND_TARGET_TOKENS, one(progress.target)
    done = [peer.record for peer in view.oracles if peer.record.group_size]
    averaging = [record.averaging_seconds for record in done]
    groups = [record.group_size for record in done]
    yield metrics.ROUND_DURATION_SECONDS, one(_median(record.round_seconds for record in done))
    yield metrics.AVERAGING_DURATION_SECONDS, one(_median(averaging))
    yield metrics.AVERAGING_DURATION_MAX_SECONDS, one(max(averaging, default=None))
    yield metrics.UTILIZATION, one(view.utilization)
    yield metrics.GROUP_SIZE_MIN, one(min(groups, default=None))
    yield metrics.GROUP_SIZE_MAX, one(max(groups, default=None))
    yield from _of_checkpoints(view)


def of_losses(manifest: Manifest, view: View) -> Iterator[Samples]:
    """The losses, as reported by the oracles and by the evaluators."""
    losses = _known(view, lambda record: record.loss)
    yield metrics.LOSS_NATS, one(view.loss(manifest.limits))
    yield metrics.LOSS_MIN_NATS, one(min(losses, default=None))
    yield metrics.LOSS_MAX_NATS, one(max(losses, default=None))
    yield metrics.HELDOUT_LOSS_NATS, one(_mean(_known(view, lambda record: record.heldout_loss)))
    yield metrics.HELDOUT_BPB, one(_mean(_known(view, lambda record: record.heldout_bits_per_byte)))
    yield metrics.HELDOUT_ACCURACY, one(_mean(_known(view, lambda record: record.heldout_accuracy)))
    found = [((name,), evaluation) for name, evaluation in list(view.evaluations.items())[:DATASETS_MAX]]
    yield metrics.EVAL_BPB, _measured((name, evaluation.bits_per_byte) for name, evaluation in found)
    yield metrics.EVAL_ACCURACY, _measured((name, evaluation.accuracy) for name, evaluation in found)
    yield metrics.EVAL_TIMESTAMP, [(name, evaluation.time) for name, evaluation in found]
    yield metrics.EVAL_ROUND, [(name, evaluation.round) for name, evaluation in found]


def _measured(figures: Iterable[tuple[tuple[str, ...], float | None]]) -> list[Sample]:
    return [(labels, value) for labels, value in figures if value is not None]


def of_peers(view: View) -> Iterator[Samples]:
    """Who is there."""
    states = Counter((peer.record.role, peer.record.state) for peer in view.peers)
    # All of them, those at zero too: an alert cannot compare with a series that is missing.
    every = [(role, state) for role in get_args(Role) for state in get_args(PeerState)]
    yield metrics.PEERS, [(labels, float(states[labels])) for labels in every]
    unreachable = sum(peer.record.reach == "client" for peer in view.peers)
    yield metrics.PEERS_UNREACHABLE, one(unreachable)
    yield metrics.PEER_VERSIONS, _versions(view)
    yield metrics.DIGESTS_DISAGREEING, one(disagreeing(view))
    yield metrics.EXPOSING_PEERS, [((peer_id,), count) for peer_id, count in view.exposed.items()]


def of_each_peer(peers: list[Peer], floors: Mapping[str, Floor]) -> Iterator[Samples]:
    """The series of single peers."""
    known = [((peer.peer_id,), peer.record, floors.get(peer.peer_id, Floor())) for peer in peers]
    yield (
        metrics.PEER_INFO,
        [
            ((*peer_id, record.role, record.name, record.version, record.device), 1.0)
            for peer_id, record, _ in known
        ],
    )
    oracles = [(peer_id, record, floor) for peer_id, record, floor in known if record.role == "oracle"]
    yield (
        metrics.PEER_TOKENS_TOTAL,
        [(peer_id, max(record.tokens_total, floor.tokens)) for peer_id, record, floor in oracles],
    )
    yield (
        metrics.PEER_FAILED_ROUNDS_TOTAL,
        [(peer_id, max(record.failed_rounds, floor.failed)) for peer_id, record, floor in oracles],
    )
    fields: tuple[tuple[MetricSpec, Callable[[PeerRecord], float | None]], ...] = (
        (metrics.PEER_LOSS_NATS, lambda record: record.loss),
        (metrics.PEER_ROUND_RECEIVE, lambda record: record.round_received_bytes),
        (metrics.PEER_ROUND_TRANSMIT, lambda record: record.round_sent_bytes),
        (metrics.PEER_UTILIZATION, lambda record: record.utilization),
        (metrics.PEER_ROUND_WAITING, lambda record: record.round_waiting_seconds),
        (metrics.PEER_WAITING, lambda record: record.waiting_seconds),
    )
    for spec, field in fields:
        yield spec, _measured((peer_id, field(record)) for peer_id, record, _ in oracles)
    yield metrics.PEER_ROUND, [(peer_id, record.round) for peer_id, record, _ in known]
    yield metrics.PEER_LAST_SEEN, [(peer_id, record.time) for peer_id, record, _ in known]


def _of_checkpoints(view: View) -> Iterator[Samples]:
    saved = [
        (peer.record.checkpoint_round, peer.record.checkpoint_time)
        for peer in view.peers
        if peer.record.checkpoint_round is not None
    ]
    newest = max(saved, default=None)
    yield metrics.CHECKPOINT_ROUND, one(newest[0] if newest else None)
    yield metrics.CHECKPOINT_TIMESTAMP, one(newest[1] if newest else None)


def _versions(view: View) -> list[Sample]:
    counts = Counter(peer.record.version or "unknown" for peer in view.peers)
    common = counts.most_common(VERSIONS_MAX)
    rest = counts.total() - sum(count for _, count in common)
    shown = Counter(dict(common)) + Counter({"other": rest})  # a peer may call its version `other`
    return [((version,), float(count)) for version, count in shown.items()]


def disagreeing(view: View) -> int:
    """Peers of an older round are merely late; those of one round must hold the same bits."""
    rounds: dict[int, Counter[str]] = {}
    for peer in view.peers:
        rounds.setdefault(peer.record.round, Counter())[peer.record.state_digest] += 1
    return sum(digests.total() - max(digests.values()) for digests in rounds.values())


def _by_label(counts: Mapping[str, int]) -> list[Sample]:
    return [((reason,), float(count)) for reason, count in counts.items()]


def _known(view: View, field: Callable[[PeerRecord], float | None]) -> list[float]:
    return [value for peer in view.oracles if (value := field(peer.record)) is not None]


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None
