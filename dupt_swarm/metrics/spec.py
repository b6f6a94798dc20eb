"""What a metric is: the form of all rows of the tables `swarm`, `monitor` and `peer`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

Kind = Literal["gauge", "counter", "info"]
Sample = tuple[tuple[str, ...], float]  # label values in the order of the metric's labels, and the value


@dataclass(frozen=True)
class MetricSpec:
    """One exported metric.

    Attributes:
        name: in full, as it appears in ``/metrics``.
        kind: an ``info`` has the value 1 and says everything in its labels.
        help: one sentence.
        labels: their names.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    def family(self, samples: Iterable[Sample] = ()) -> Metric:
        """A fresh metric family with these samples."""
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
