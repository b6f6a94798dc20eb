"""`MetricSpec`, the row type of the tables `swarm`, `monitor` and `peer`, and `Table`, which keeps them."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

Kind = Literal["gauge", "counter", "info", "histogram"]
Sample = tuple[tuple[str, ...], float]  # label values in the order of the spec's labels, and the value


@dataclass(frozen=True)
class MetricSpec:
    """One exported metric.

    Attributes:
        name: in full, as it appears in ``/metrics``.
        kind: an ``info`` has the value 1; its labels carry the information.
        help: one sentence.
        labels: their names.
        bounds: upper bounds of a histogram's buckets, ascending, without +Inf.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    def family(self, samples: Iterable[Sample] = ()) -> Metric:
        """A new metric family with these samples; for a histogram see `histogram`."""
        if self.kind == "histogram":
            return self.histogram(())
        if self.kind == "info":
            info = InfoMetricFamily(self.name.removesuffix("_info"), self.help)
            for values, _ in samples:
                info.add_metric([], dict(zip(self.labels, values, strict=True)))
            return info
        build = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = build(self.name, self.help, labels=self.labels)
        for values, value in samples:
            family.add_metric(values, value)
        return family

    def histogram(self, samples: Iterable[tuple[tuple[str, ...], Distribution]]) -> Metric:
        """A new histogram family: label values, and the distribution observed for them."""
        family = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        for values, distribution in samples:
            buckets, total = distribution.read()
            family.add_metric(values, buckets, total)
        return family


Samples = tuple[MetricSpec, list[Sample]]


def one(value: float | None) -> list[Sample]:
    """The only sample of a metric without labels; none if the value is not known."""
    return [] if value is None else [((), value)]


def by_label(counts: Mapping[str, int], every: Iterable[str] = ()) -> list[Sample]:
    """A sample for each of the ``counts``, which other threads may change meanwhile.

    Those of ``every`` that are not there are zero: `increase` does not see what a series begins with.
    """
    return [((label,), float(count)) for label, count in (dict.fromkeys(every, 0) | dict(counts)).items()]


def families(everything: Iterable[Samples]) -> Iterator[Metric]:
    """A new family of each metric that has finite samples."""
    for spec, samples in everything:
        if finite := [(labels, value) for labels, value in samples if math.isfinite(value)]:
            yield spec.family(finite)


class Table:
    """Metrics whose names begin alike, in the order in which they are added."""

    def __init__(self, prefix: str, *labels: str) -> None:
        """``labels`` are those that all of them have, before their own."""
        self._prefix, self._labels = prefix, labels
        self.specs: list[MetricSpec] = []

    def add(
        self, name: str, kind: Kind, help: str, *labels: str, bounds: tuple[float, ...] = ()
    ) -> MetricSpec:
        """One more; see `MetricSpec`."""
        spec = MetricSpec(self._prefix + name, kind, help, (*self._labels, *labels), bounds)
        self.specs.append(spec)
        return spec


class Distribution:
    """A thread-safe histogram: one thread may observe while another reads."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """``bounds`` as in `MetricSpec`."""
        self._bounds = (*bounds, math.inf)
        self._counts = [0] * len(self._bounds)
        self._total = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Count ``value``."""
        with self._lock:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._total += value

    def read(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative buckets, as Prometheus has them, and the sum of all values."""
        with self._lock:
            counts, total = list(self._counts), self._total
        bounds = map(floatToGoString, self._bounds)
        return list(zip(bounds, map(float, accumulate(counts)), strict=True)), total
