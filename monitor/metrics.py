"""The table of everything the monitor exports: the one source of names, types, help texts and labels."""

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


def _swarm(name: str, kind: Kind, help: str, *labels: str) -> MetricSpec:
    # It names its swarm, so that one Prometheus can hold several.
    return MetricSpec(f"dupt_swarm_{name}", kind, help, ("run", *labels))


RUN_INFO = _swarm("run_info", "info", "What the swarm trains.", "model", "manifest_sha256")
PEERS = _swarm("peers", "gauge", "Live peers by what they do, the bootstrap included.", "state")
ROUND = _swarm("round", "gauge", "Rounds in the swarm's newest replica state.")
ROUND_TOKENS = _swarm("round_tokens", "gauge", "Tokens trained on in the current round so far.")
ROUND_TARGET_TOKENS = _swarm("round_target_tokens", "gauge", "Tokens that end the current round.")
TOKENS_TOTAL = _swarm("tokens_total", "counter", "Tokens in the swarm's newest replica state.")
LOSS_NATS = _swarm("loss_nats", "gauge", "Mean training loss per token, oracles weighted by their speed.")
LOSS_MIN_NATS = _swarm("loss_min_nats", "gauge", "Least training loss per token of any oracle.")
LOSS_MAX_NATS = _swarm("loss_max_nats", "gauge", "Greatest training loss per token of any oracle.")
HELDOUT_LOSS_NATS = _swarm(
    "heldout_loss_nats", "gauge", "Mean loss per token of the oracles on text they do not train on."
)
DIGESTS_DISAGREEING = _swarm(
    "digests_disagreeing", "gauge", "Live peers whose state is not that of most peers of the same round."
)
PEER_VERSIONS = _swarm(
    "peer_versions", "gauge", "Live peers by software version; rare ones are under `other`.", "version"
)
PEER_INFO = _swarm("peer_info", "info", "What a peer says it is.", "peer_id", "name", "version", "device")
PEER_TOKENS_TOTAL = _swarm("peer_tokens_total", "counter", "Tokens contributed by a peer.", "peer_id")
PEER_LOSS_NATS = _swarm("peer_loss_nats", "gauge", "Training loss per token of a peer.", "peer_id")
PEER_ROUND = _swarm("peer_round", "gauge", "Rounds in the replica state of a peer.", "peer_id")
PEER_LAST_SEEN = _swarm(
    "peer_last_seen_timestamp_seconds", "gauge", "When a peer published its last record.", "peer_id"
)

UP = MetricSpec("dupt_monitor_up", "gauge", "Whether the last refresh reached the swarm.")
LAST_REFRESH = MetricSpec(
    "dupt_monitor_last_refresh_timestamp_seconds", "gauge", "When a refresh last reached the swarm."
)
REFRESH_DURATION = MetricSpec(
    "dupt_monitor_refresh_duration_seconds", "gauge", "How long the last refresh took, failed or not."
)
REFRESH_ERRORS = MetricSpec(
    "dupt_monitor_refresh_errors_total", "counter", "Refreshes that did not reach the swarm."
)

METRICS: tuple[MetricSpec, ...] = (
    RUN_INFO,
    PEERS,
    ROUND,
    ROUND_TOKENS,
    ROUND_TARGET_TOKENS,
    TOKENS_TOTAL,
    LOSS_NATS,
    LOSS_MIN_NATS,
    LOSS_MAX_NATS,
    HELDOUT_LOSS_NATS,
    DIGESTS_DISAGREEING,
    PEER_VERSIONS,
    PEER_INFO,
    PEER_TOKENS_TOTAL,
    PEER_LOSS_NATS,
    PEER_ROUND,
    PEER_LAST_SEEN,
    UP,
    LAST_REFRESH,
    REFRESH_DURATION,
    REFRESH_ERRORS,
)
