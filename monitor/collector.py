"""From a snapshot to metric families, made anew at each scrape, so that departed peers go stale."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from itertools import chain

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from dupt_swarm.metrics import monitor as metrics
from dupt_swarm.metrics.monitor import MONITOR_METRICS
from dupt_swarm.metrics.swarm import SWARM_METRICS
from dupt_swarm.version import VERSION
from monitor.samples import (
    Samples,
    of_each_peer,
    of_losses,
    of_peers,
    of_records,
    of_rounds,
    of_run,
    of_totals,
    one,
)
from monitor.watcher import Snapshot

METRICS = (*SWARM_METRICS, *MONITOR_METRICS)


class SwarmCollector(Collector):
    """Yields everything in `METRICS` that is known now; unknown values have no sample."""

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
        shown = busiest[: self._max_peer_series]
        everything = chain(
            of_run(snapshot.manifest),
            of_totals(snapshot.totals),
            of_rounds(snapshot.manifest, view),
            of_losses(snapshot.manifest, view),
            of_peers(view),
            of_records(view, shown),
            of_each_peer(shown, snapshot.floors),
        )
        run = snapshot.manifest.swarm_id
        in_run = ((spec, [((run, *labels), value) for labels, value in found]) for spec, found in everything)
        for spec, samples in chain(in_run, _of_monitor(snapshot)):
            finite = [(labels, value) for labels, value in samples if math.isfinite(value)]
            if finite:
                yield spec.family(finite)


def _of_monitor(snapshot: Snapshot) -> Iterator[Samples]:
    yield metrics.BUILD_INFO, [((VERSION,), 1.0)]
    yield metrics.UP, one(float(snapshot.up))
    yield metrics.LAST_REFRESH, one(snapshot.last_refresh)
    yield metrics.REFRESH_DURATION, one(snapshot.refresh_seconds)
    yield metrics.REFRESH_ERRORS, one(snapshot.refresh_errors)
