"""The last row of the dashboard `swarm`: what may be wrong."""

from __future__ import annotations

from dupt_swarm.metrics import monitor, swarm
from monitor.dashboards.board import Row
from monitor.dashboards.panel import Panel, columns, graph, hidden, stacked
from monitor.dashboards.query import Query

HEALTH = Row(
    "Health",
    (
        stacked(
            "Oracles by state",
            "Live oracles by what they are doing.",
            Query('sum by (state) ({0:role="oracle"}) > 0', swarm.PEERS, legend="{{state}}"),
            unit="none",
        ),
        graph(
            "Other peers",
            "Peers that hold and serve the state without training, and peers that nobody can dial.",
            Query('sum by (role) ({0:role!="oracle"})', swarm.PEERS, legend="{{role}}"),
            Query("{0}", swarm.PEERS_UNREACHABLE, legend="unreachable"),
            unit="none",
            defaults={"min": 0, "decimals": 0},
        ),
        stacked(
            "Versions",
            "Live peers by software version.",
            Query("{0}", swarm.PEER_VERSIONS, legend="{{version}}"),
            unit="none",
        ),
        graph(
            "Diverging replicas",
            "Peers whose state differs from that of most peers in the same round. They fetch the right one "
            "by themselves; anything above zero for minutes is a fault.",
            Query("{0}", swarm.DIGESTS_DISAGREEING, legend="peers"),
            unit="none",
            defaults={"min": 0, "decimals": 0},
        ),
        stacked(
            "Rejected",
            "Contributions that peers left out of an average, messages, calls and entries that they refused, "
            "and records that the monitor rejected, by reason, over 15 minutes.",
            Query("increase({0}[15m]) > 0", swarm.REJECTED_CONTRIBUTIONS, legend="contribution: {{reason}}"),
            Query("increase({0}[15m]) > 0", swarm.REFUSED_MESSAGES, legend="message: {{reason}}"),
            Query("increase({0}[15m]) > 0", swarm.INVALID_RECORDS, legend="record: {{reason}}"),
            unit="none",
            empty="None",
        ),
        graph(
            "Left out for good",
            "Peers that have signed what contradicts itself, by id: how many others leave them out.",
            Query("{0}", swarm.EXPOSING_PEERS, legend="{{peer_id}}"),
            unit="none",
            defaults={"min": 0, "decimals": 0},
            empty="Nobody",
        ),
        graph(
            "Unsaved rounds",
            "Rounds since the newest checkpoint on any peer's disk.",
            Query("{0} - {1}", swarm.ROUND, swarm.CHECKPOINT_ROUND, legend="rounds"),
            unit="none",
            defaults={"min": 0, "decimals": 0},
        ),
        graph(
            "Checkpoint age",
            "Time since the newest checkpoint was written. It grows while nothing new is learned.",
            Query("time() - {0}", swarm.CHECKPOINT_TIMESTAMP, legend="age"),
            unit="s",
            defaults={"min": 0},
        ),
        graph(
            "Refresh duration",
            "How long the monitor takes to read all records.",
            Query(
                "{0} and on (instance) {1}",
                monitor.REFRESH_DURATION,
                swarm.RUN_INFO,
                legend="{{instance}}",
            ),
            unit="s",
            defaults={"min": 0},
        ),
        graph(
            "Failed refreshes",
            "Refreshes that did not reach the swarm, over 15 minutes; and whether the last one did.",
            Query(
                "increase({0}[15m]) and on (instance) {1}",
                monitor.REFRESH_ERRORS,
                swarm.RUN_INFO,
                legend="failed",
            ),
            Query("{0} and on (instance) {1}", monitor.UP, swarm.RUN_INFO, legend="up"),
            unit="none",
            defaults={"min": 0},
        ),
        Panel(
            "This swarm",
            "What the swarm trains, and the manifest that all its peers share.",
            (Query("{0}", swarm.RUN_INFO, table=True), Query("{0}", monitor.BUILD_INFO, table=True)),
            "none",
            kind="table",
            width=24,
            height=4,
            transformations=columns(
                "instance",
                {
                    "run": "Swarm",
                    "model": "Model",
                    "manifest_sha256": "Manifest (SHA-256)",
                    "instance": "Monitor",
                    "version": "Monitor's version",
                },
                hide=hidden(),
            ),
        ),
    ),
)
