"""The row of dashboard `peer` about what its contributions may have told."""

from __future__ import annotations

from dupt_swarm.metrics import peer
from monitor.dashboards.board import Row
from monitor.dashboards.panel import graph, override
from monitor.dashboards.query import Query

NOT_PRIVATE = "Not private: join with --private"

PRIVACY = Row(
    "Privacy",
    (
        graph(
            "Privacy spent",
            "Upper bound of ε for all that this oracle has contributed, and the δ that belongs to it.",
            Query("{0}", peer.EPSILON, legend="ε"),
            Query("{0}", peer.DELTA, legend="δ"),
            unit="none",
            width=12,
            empty=NOT_PRIVATE,
            overrides=(override("δ", custom__axisPlacement="right"),),
        ),
        graph(
            "Private contributions",
            "Contributions that were made with noise, over an hour.",
            Query("increase({0}[1h])", peer.PRIVATE_CONTRIBUTIONS, legend="contributions"),
            unit="none",
            width=12,
            empty=NOT_PRIVATE,
            defaults={"min": 0},
        ),
    ),
)
