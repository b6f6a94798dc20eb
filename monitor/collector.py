"""From a snapshot to metric families, made anew at each scrape, so that departed peers go stale."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import get_args

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from dupt_swarm.manifest import Manifest
from dupt_swarm.metrics import monitor as monitor_metrics
from dupt_swarm.metrics import swarm as swarm_metrics
from dupt_swarm.metrics.monitor import MONITOR_METRICS
from dupt_swarm.metrics.spec import MetricSpec, Sample
from dupt_swarm.metrics.swarm import SWARM_METRICS
from dupt_swarm.network.view import Peer, PeerState, View, round_progress
from monitor.watcher import Snapshot

METRICS = (*SWARM_METRICS, *MONITOR_METRICS)
LABEL_LENGTH_MAX = 64
VERSIONS_MAX = 9  # any peer can invent versions; a label should have fewer than ten values or so

Samples = tuple[MetricSpec, list[Sample]]


class SwarmCollector(Collector):
    """Yields everything in `METRICS` that is known now; what is unknown has no sample."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        max_peer_series: int,
        clock: Callable[[], float] = time.time,
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
        busiest = sorted(view.peers, key=lambda peer: (-peer.record.tokens_total, peer.peer_id))
        everything = chain(
            _of_run(snapshot.manifest, snapshot.tokens_total),
            _of_rounds(snapshot.manifest, view),
            _of_losses(view),
            _of_peers(view),
            _of_each_peer(busiest[: self._max_peer_series]),
        )
        run = snapshot.manifest.swarm_id
        in_run = ((spec, [((run, *labels), value) for labels, value in found]) for spec, found in everything)
        for spec, samples in chain(in_run, _of_monitor(snapshot)):
            finite = [(labels, value) for labels, value in samples if math.isfinite(value)]
            if finite:
                yield spec.family(finite)


def clean(text: str) -> str:
    """``text`` from a stranger, fit for a label: short, and without control characters or surrogates."""
    short = text[:LABEL_LENGTH_MAX]
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in short
    )


def _one(value: float | None) -> list[Sample]:
    return [] if value is None else [((), value)]


def _of_run(manifest: Manifest, tokens_total: int | None) -> Iterator[Samples]:
    model = manifest.model
    shape = f"{model.layers} layers, width {model.width}, context {model.context_length}"
    yield swarm_metrics.RUN_INFO, [((shape, manifest.sha256), 1.0)]
    yield swarm_metrics.TOKENS_TOTAL, _one(tokens_total)


def _of_rounds(manifest: Manifest, view: View) -> Iterator[Samples]:
    best = view.best
    if best is None:
        return
    yield swarm_metrics.ROUND, _one(best.record.round)
    working = view.companions(best.record.state_digest, but="")
    if working:
        progress = round_progress(manifest, working, 0, view.time)
        yield swarm_metrics.ROUND_TOKENS, _one(progress.tokens)
        # Not `progress.target`: that counts one oracle more, the one that asks.
        yield swarm_metrics.ROUND_TARGET_TOKENS, _one(manifest.rounds.tokens_per_round * len(working))


def _of_losses(view: View) -> Iterator[Samples]:
    losses = [peer.record.loss for peer in view.oracles if peer.record.loss is not None]
    heldout = [peer.record.heldout_loss for peer in view.oracles if peer.record.heldout_loss is not None]
    yield swarm_metrics.LOSS_NATS, _one(view.loss)
    yield swarm_metrics.LOSS_MIN_NATS, _one(min(losses, default=None))
    yield swarm_metrics.LOSS_MAX_NATS, _one(max(losses, default=None))
    yield swarm_metrics.HELDOUT_LOSS_NATS, _one(sum(heldout) / len(heldout) if heldout else None)


def _of_peers(view: View) -> Iterator[Samples]:
    states = Counter(peer.record.state for peer in view.peers)
    # All states, those at zero too: an alert cannot compare with a series that is missing.
    yield swarm_metrics.PEERS, [((state,), float(states[state])) for state in get_args(PeerState)]
    yield swarm_metrics.PEER_VERSIONS, _versions(view)
    yield swarm_metrics.DIGESTS_DISAGREEING, _one(_disagreeing(view))


def _versions(view: View) -> list[Sample]:
    counts = Counter(clean(peer.record.version) or "unknown" for peer in view.peers)
    common = counts.most_common(VERSIONS_MAX)
    rest = counts.total() - sum(count for _, count in common)
    shown = Counter(dict(common)) + Counter({"other": rest})  # a peer may call its version `other`
    return [((version,), float(count)) for version, count in shown.items()]


def _disagreeing(view: View) -> int:
    """Peers of an older round are merely late; those of one round must hold the same bits."""
    rounds: dict[int, Counter[str]] = {}
    for peer in view.peers:
        rounds.setdefault(peer.record.round, Counter())[peer.record.state_digest] += 1
    return sum(digests.total() - max(digests.values()) for digests in rounds.values())


def _of_each_peer(peers: list[Peer]) -> Iterator[Samples]:
    known = [((clean(peer.peer_id),), peer.record) for peer in peers]
    yield (
        swarm_metrics.PEER_INFO,
        [
            ((*peer_id, clean(record.name), clean(record.version), clean(record.device)), 1.0)
            for peer_id, record in known
        ],
    )
    yield swarm_metrics.PEER_TOKENS_TOTAL, [(peer_id, record.tokens_total) for peer_id, record in known]
    yield (
        swarm_metrics.PEER_LOSS_NATS,
        [(peer_id, record.loss) for peer_id, record in known if record.loss is not None],
    )
    yield swarm_metrics.PEER_ROUND, [(peer_id, record.round) for peer_id, record in known]
    yield swarm_metrics.PEER_LAST_SEEN, [(peer_id, record.time) for peer_id, record in known]


def _of_monitor(snapshot: Snapshot) -> Iterator[Samples]:
    yield monitor_metrics.UP, _one(float(snapshot.up))
    yield monitor_metrics.LAST_REFRESH, _one(snapshot.last_refresh)
    yield monitor_metrics.REFRESH_DURATION, _one(snapshot.refresh_seconds)
    yield monitor_metrics.REFRESH_ERRORS, _one(snapshot.refresh_errors)
