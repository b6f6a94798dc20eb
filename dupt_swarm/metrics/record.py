"""The metrics of the records' fields, from their declarations in `dupt_swarm.node.record`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dupt_swarm.metrics.spec import MetricSpec, Sample, Table, one
from dupt_swarm.node.record import Metric, PeerRecord, RecordUpdate
from dupt_swarm.node.view import Peer

FIGURES: dict[str, Callable[[list[float]], float]] = {"median": statistics.median, "min": min, "max": max}


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
        return one(self._of(record))

    def samples(self, peers: Iterable[Peer]) -> list[Sample]:
        """Of each peer, or of all together; none of what is not known. They lack the label `run`."""
        known = [(peer.peer_id, value) for peer in peers if (value := self._of(peer.record)) is not None]
        if self.metric.over == "each":
            return [((peer_id,), value) for peer_id, value in known]
        figure = FIGURES[self.metric.over]
        return [((), figure([value for _, value in known]))] if known else []

    def _of(self, record: PeerRecord) -> float | None:
        has_it = self.metric.everybody or record.role == "oracle"
        value: float | None = getattr(record, self.field) if has_it else None
        return value


def _declared(record: type[RecordUpdate]) -> Iterator[tuple[str, Metric]]:
    """The metrics of the fields of ``record``, by their fields."""
    for name, field in record.model_fields.items():
        yield from ((name, each) for each in field.metadata if isinstance(each, Metric))


def in_swarm(record: type[RecordUpdate]) -> tuple[FieldMetric, ...]:
    """Those that the monitor exports."""
    add = Table("dupt_swarm_", "run").add
    return tuple(
        FieldMetric(
            field,
            metric,
            add(f"peer_{metric.name}", metric.kind, metric.help, "peer_id")
            if metric.over == "each"
            else add(metric.name, metric.kind, metric.help),
        )
        for field, metric in _declared(record)
        if metric.over != "nothing"
    )


def in_peer(record: type[RecordUpdate]) -> tuple[FieldMetric, ...]:
    """Those that a peer exports itself."""
    add = Table("dupt_peer_").add
    return tuple(
        FieldMetric(field, metric, add(metric.name, metric.kind, metric.help))
        for field, metric in _declared(record)
        if metric.own
    )


IN_SWARM, IN_PEER = in_swarm(PeerRecord), in_peer(PeerRecord)
_BY_NAME = {each.spec.name: each.spec for each in (*IN_SWARM, *IN_PEER)}


def of_swarm(name: str) -> MetricSpec:
    """The monitor's metric ``dupt_swarm_<name>``, which a field of the record declares."""
    return _BY_NAME[f"dupt_swarm_{name}"]


def of_peer(name: str) -> MetricSpec:
    """A peer's own metric ``dupt_peer_<name>``, which a field of the record declares."""
    return _BY_NAME[f"dupt_peer_{name}"]
