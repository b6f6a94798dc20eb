"""The metrics of a swarm, exported by the monitor."""

from __future__ import annotations

from dupt_swarm.metrics.spec import Kind, MetricSpec


def _swarm(name: str, kind: Kind, help: str, *labels: str) -> MetricSpec:
    # It names its swarm, so that one Prometheus can hold several.
    return MetricSpec(f"dupt_swarm_{name}", kind, help, ("run", *labels))


RUN_INFO = _swarm("run_info", "info", "What the swarm trains.", "model", "manifest_sha256")
PEERS = _swarm("peers", "gauge", "Live peers by what they are and what they do.", "role", "state")
PEERS_UNREACHABLE = _swarm(
    "peers_unreachable", "gauge", "Live peers that nobody can call, neither directly nor through a relay."
)
PEER_VERSIONS = _swarm(
    "peer_versions", "gauge", "Live peers by software version; rare ones are under `other`.", "version"
)
DIGESTS_DISAGREEING = _swarm(
    "digests_disagreeing", "gauge", "Live peers whose state is not that of most peers of the same round."
)

ROUND = _swarm("round", "gauge", "Rounds in the newest replica state that half of the peers have reached.")
ROUND_TOKENS = _swarm("round_tokens", "gauge", "Tokens trained on in the current round so far.")
ROUND_TARGET_TOKENS = _swarm("round_target_tokens", "gauge", "Tokens that end the current round.")
ROUND_LIMIT_SECONDS = _swarm(
    "round_limit_seconds", "gauge", "How long a round may take by the manifest, its averaging included."
)
ROUND_DURATION_SECONDS = _swarm(
    "round_duration_seconds", "gauge", "Median over the oracles of how long their last round took."
)
LAST_ROUND_TIMESTAMP = _swarm(
    "last_round_timestamp_seconds",
    "gauge",
    "When the monitor saw the round rise; when it first saw the swarm, if it has not risen since.",
)
TOKENS_TOTAL = _swarm(
    "tokens_total", "counter", "Tokens in the newest replica state that half of the peers have reached."
)
LEARNING_RATE = _swarm("learning_rate", "gauge", "Learning rate of the schedule at the swarm's round.")

LOSS_NATS = _swarm("loss_nats", "gauge", "Mean training loss per token, oracles weighted by their speed.")
LOSS_MIN_NATS = _swarm("loss_min_nats", "gauge", "Least training loss per token of any oracle.")
LOSS_MAX_NATS = _swarm("loss_max_nats", "gauge", "Greatest training loss per token of any oracle.")
HELDOUT_LOSS_NATS = _swarm(
    "heldout_loss_nats", "gauge", "Mean loss per token of the oracles on text they do not train on."
)
HELDOUT_BPB = _swarm(
    "heldout_bpb", "gauge", "Mean bits per byte (BPB) of the oracles on text they do not train on."
)
EVAL_BPB = _swarm(
    "eval_bpb",  # Prometheus' linter takes `bits` in a name for a wrong unit
    "gauge",
    "Bits per byte (BPB) by independent evaluators, of a corpus that no oracle has.",
    "dataset",
)
EVAL_TIMESTAMP = _swarm(
    "eval_timestamp_seconds", "gauge", "When an independent evaluator last measured.", "dataset"
)
EVAL_ROUND = _swarm("eval_round", "gauge", "Round of the state that was measured last.", "dataset")

AVERAGING_ROUNDS = _swarm(
    "averaging_rounds_total",
    "counter",
    "Ends of rounds that oracles took part in, summed over oracles, failed or not.",
)
AVERAGING_ROUNDS_FAILED = _swarm(
    "averaging_rounds_failed_total", "counter", "Those that failed for the oracle.", "reason"
)
AVERAGING_DURATION_SECONDS = _swarm(
    "averaging_duration_seconds", "gauge", "Median over the oracles of how long their last averaging took."
)
AVERAGING_DURATION_MAX_SECONDS = _swarm(
    "averaging_duration_max_seconds", "gauge", "The longest last averaging of any oracle."
)
GROUP_SIZE_MIN = _swarm("group_size_min", "gauge", "The smallest group that a live oracle last averaged in.")
GROUP_SIZE_MAX = _swarm("group_size_max", "gauge", "The largest group that a live oracle last averaged in.")
REJECTED_CONTRIBUTIONS = _swarm(
    "rejected_contributions_total", "counter", "Contributions that peers left out of an average.", "reason"
)
INVALID_RECORDS = _swarm(
    "invalid_records_total",
    "counter",
    "Records that the monitor did not believe, each time it read them.",
    "reason",
)

CHECKPOINT_ROUND = _swarm("checkpoint_round", "gauge", "Round of the newest checkpoint on any peer's disk.")
CHECKPOINT_TIMESTAMP = _swarm("checkpoint_timestamp_seconds", "gauge", "When that checkpoint was written.")

PEER_INFO = _swarm(
    "peer_info", "info", "What a peer says it is.", "peer_id", "role", "name", "version", "device"
)
PEER_TOKENS_TOTAL = _swarm("peer_tokens_total", "counter", "Tokens contributed by a peer.", "peer_id")
PEER_LOSS_NATS = _swarm("peer_loss_nats", "gauge", "Training loss per token of a peer.", "peer_id")
PEER_ROUND = _swarm("peer_round", "gauge", "Rounds in the replica state of a peer.", "peer_id")
PEER_FAILED_ROUNDS_TOTAL = _swarm(
    "peer_failed_rounds_total", "counter", "Rounds that failed for a peer.", "peer_id"
)
PEER_LAST_SEEN = _swarm(
    "peer_last_seen_timestamp_seconds", "gauge", "When a peer published its last record.", "peer_id"
)

# Everything above, in its order.
SWARM_METRICS: tuple[MetricSpec, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, MetricSpec)
)
