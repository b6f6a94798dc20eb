"""The metrics of the records' fields, from their declarations in `dupt_swarm.node.record`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dupt_swarm.metrics.spec import MetricSpec, Sample
from dupt_swarm.node.record import Metric, PeerRecord, RecordUpdate
from dupt_swarm.node.view import Peer

FIGURES: dict[str, Callable[[list[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
}


@dataclass(frozen=True)
class FieldMetric:
    """A metric of one field.

    Attributes:
        field: its name in the record.
        metric: how it was declared.
        spec: what is exported.
    """

    field: str
    metric: Metric
    spec: MetricSpec

    def value(self, record: PeerRecord) -> list[Sample]:
        """Of one peer, which exports it itself; none if it is not known."""
        known = self._known((record,))
        return [((), value) for value in known]

    def samples(self, oracles: Iterable[Peer]) -> list[Sample]:
        """Of each oracle, or of all together; none of what is not known. They lack the label `run`."""
        if self.metric.over == "each":
            each = ((peer.peer_id, self._known((peer.record,))) for peer in oracles)
            return [((peer_id,), value) for peer_id, known in each for value in known]
        known = self._known(peer.record for peer in oracles)
        return [((), FIGURES[self.metric.over](known))] if known else []

    def _known(self, records: Iterable[PeerRecord]) -> list[float]:
        return [value for record in records if (value := getattr(record, self.field)) is not None]


def _declared(record: type[RecordUpdate]) -> Iterator[tuple[str, Metric]]:
    """The metrics of the fields of ``record``, by their fields."""
    for name, field in record.model_fields.items():
        yield from ((name, each) for each in field.metadata if isinstance(each, Metric))


def in_swarm(record: type[RecordUpdate]) -> tuple[FieldMetric, ...]:
    """Those that the monitor exports."""
    return tuple(_of_swarm(*each) for each in _declared(record))


def in_peer(record: type[RecordUpdate]) -> tuple[FieldMetric, ...]:
    """Those that a peer exports itself."""
    return tuple(_of_peer(field, metric) for field, metric in _declared(record) if metric.own)


def _of_swarm(field: str, metric: Metric) -> FieldMetric:
    if metric.over != "each":
        spec = MetricSpec(f"dupt_swarm_{metric.name}", metric.kind, metric.help, ("run",))
    else:
        spec = MetricSpec(f"dupt_swarm_peer_{metric.name}", metric.kind, metric.help, ("run", "peer_id"))
    return FieldMetric(field, metric, spec)


def _of_peer(field: str, metric: Metric) -> FieldMetric:
    return FieldMetric(field, metric, MetricSpec(f"dupt_peer_{metric.name}", metric.kind, metric.help))


IN_SWARM, IN_PEER = in_swarm(PeerRecord), in_peer(PeerRecord)
_BY_NAME = {each.spec.name: each.spec for each in (*IN_SWARM, *IN_PEER)}


def of_swarm(name: str) -> MetricSpec:
    """The monitor's metric ``dupt_swarm_<name>``, which a field of the record declares."""
    return _BY_NAME[f"dupt_swarm_{name}"]


def of_peer(name: str) -> MetricSpec:
    """A peer's own metric ``dupt_peer_<name>``, which a field of the record declares."""
    return _BY_NAME[f"dupt_peer_{name}"]
