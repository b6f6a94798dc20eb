"""PromQL queries whose metrics come from the tables."""

from __future__ import annotations

from typing import Any

from dupt_swarm.metrics import swarm
from dupt_swarm.metrics.spec import MetricSpec

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

RECENT = "[$__rate_interval]"  # of a rate: as long as the graph can show


class _Selector:
    """A placeholder for a metric in a query template.

    ``{0}`` selects the metric, ``{0:role="oracle"}`` adds label matchers. A histogram has no series of its
    own name: use ``{0.bucket}``, ``{0.sum}`` or ``{0.count}``.
    """

    def __init__(self, name: str, common: str) -> None:
        self._name, self._common = name, common

    def __getattr__(self, part: str) -> _Selector:
        return _Selector(f"{self._name}_{part}", self._common)

    def __format__(self, matchers: str) -> str:
        inside = ", ".join(filter(None, (self._common, matchers)))
        return f"{self._name}{{{inside}}}" if inside else self._name


def common_matchers(spec: MetricSpec) -> str:
    """The label matchers of every query of this metric: the swarm or peer that the dashboard shows.

    A swarm may have several monitors, each of which tells all: figures are summed within an `instance` only.
    """
    if "run" in spec.labels and spec.name.startswith("dupt_swarm_"):
        return 'run="$run"'
    return 'instance="$instance"' if spec.name.startswith("dupt_peer_") else ""


class Query:
    """One query of a panel.

    Attributes:
        expr: PromQL.
        legend: Grafana's legend format; ``__auto`` shows all labels.
        specs: the metrics in it.
        table: the values of now, as rows of a table.
        history: also a table, but with all values over time.
    """

    def __init__(
        self,
        template: str,
        *specs: MetricSpec,
        legend: str = "__auto",
        table: bool = False,
        history: bool = False,
    ) -> None:
        """``template`` is PromQL with placeholders ``{0}``, ``{1}``, … for the metrics ``specs``."""
        self.specs, self.legend, self.table, self.history = specs, legend, table, history
        self.expr = template.format(*(_Selector(spec.name, common_matchers(spec)) for spec in specs))

    def to_dict(self, letter: str, instant: bool) -> dict[str, Any]:
        """As a target of a panel; ``instant``: the values of now, and none of what is no longer there."""
        return {
            "refId": letter,
            "datasource": DATASOURCE,
            "expr": self.expr,
            "legendFormat": self.legend,
            "format": "table" if self.table or self.history else "time_series",
            "instant": instant,
            "range": not instant,
            "editorMode": "code",
        }


def of_each_peer(template: str, *specs: MetricSpec) -> Query:
    """The query ``template`` of ``specs``, whose results get the names of the peers that they are of."""
    named = f"{template} * on (peer_id, instance) group_left (name) {{{len(specs)}}}"
    return Query(named, *specs, swarm.PEER_INFO, legend="{{name}} {{peer_id}}")
