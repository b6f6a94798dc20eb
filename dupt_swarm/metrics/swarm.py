"""The metrics of a swarm, exported by the monitor."""

from __future__ import annotations

from dupt_swarm.metrics.spec import Kind, MetricSpec


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

SWARM_METRICS: tuple[MetricSpec, ...] = (
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
)
