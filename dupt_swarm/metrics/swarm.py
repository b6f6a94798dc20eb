"""The metrics of a swarm, exported by the monitor; those of single fields of the records are in `record`."""

from __future__ import annotations

from dupt_swarm.metrics.record import IN_SWARM
from dupt_swarm.metrics.spec import Table

# The label `run` names the swarm, so that one Prometheus can hold several.
_TABLE = Table("dupt_swarm_", "run")
_swarm = _TABLE.add

RUN_INFO = _swarm("run_info", "info", "What the swarm trains.", "model", "manifest_sha256")
PEERS = _swarm("peers", "gauge", "Live peers by role and state.", "role", "state")
PEERS_UNREACHABLE = _swarm(
    "peers_unreachable", "gauge", "Live peers that nobody can dial, neither directly nor through a relay."
)
PEER_VERSIONS = _swarm(
    "peer_versions", "gauge", "Live peers by software version; rare versions count as `other`.", "version"
)
DIGESTS_DISAGREEING = _swarm(
    "digests_disagreeing",
    "gauge",
    "Live peers whose replica state differs from that of most peers in the same round.",
)

ROUND = _swarm(
    "round", "gauge", "Rounds in the newest replica state that half of the working oracles have reached."
)
ROUND_TOKENS = _swarm("round_tokens", "gauge", "Tokens trained on so far in the current round.")
ROUND_TARGET_TOKENS = _swarm("round_target_tokens", "gauge", "Tokens that end the current round.")
ROUND_LIMIT_SECONDS = _swarm(
    "round_limit_seconds", "gauge", "The longest that the manifest lets a round take, averaging included."
)
LAST_ROUND_TIMESTAMP = _swarm(
    "last_round_timestamp_seconds",
    "gauge",
    "When the monitor last saw the round advance; until then, when it first saw the swarm.",
)
TOKENS_TOTAL = _swarm(
    "tokens_total",
    "counter",
    "Tokens in the newest replica state that more than half of the working oracles have reached.",
)
CONTRIBUTORS = _swarm(
    "contributors", "gauge", "Peers whose contributions counted in any round, by the chain of rounds."
)
LEARNING_RATE = _swarm("learning_rate", "gauge", "Scheduled learning rate at the swarm's round.")

LOSS_NATS = _swarm("loss_nats", "gauge", "Mean training loss per token; oracles are weighted by their speed.")
EVAL_BPB = _swarm(
    "eval_bpb",  # promtool's linter takes `bits` in a name for a wrong unit
    "gauge",
    "Bits per byte (BPB) that independent evaluators measure on a corpus that no oracle trains on.",
    "dataset",
)
EVAL_ACCURACY = _swarm(
    "eval_accuracy",
    "gauge",
    "Accuracy of a task's answers, or of masked tokens, that independent evaluators measure, 0 to 1.",
    "dataset",
)
EVAL_TASK = _swarm(
    "eval_task",
    "gauge",
    "A figure of lm-evaluation-harness on a task of independent evaluators, in the unit of its metric.",
    "task",
    "metric",
)
EVAL_TIMESTAMP = _swarm(
    "eval_timestamp_seconds", "gauge", "When an independent evaluator last measured.", "dataset"
)
EVAL_ROUND = _swarm("eval_round", "gauge", "Round of the replica state that was last measured.", "dataset")

AVERAGING_ROUNDS = _swarm(
    "averaging_rounds_total", "counter", "Averaging attempts, successful or not, summed over the oracles."
)
AVERAGING_ROUNDS_FAILED = _swarm(
    "averaging_rounds_failed_total", "counter", "Averaging attempts that failed for the oracle.", "reason"
)
REJECTED_CONTRIBUTIONS = _swarm(
    "rejected_contributions_total", "counter", "Contributions that peers left out of an average.", "reason"
)
INVALID_RECORDS = _swarm(
    "invalid_records_total",
    "counter",
    "Records that the monitor rejected, counted at each reading.",
    "reason",
)
REFUSED_MESSAGES = _swarm(
    "refused_messages_total",
    "counter",
    "What peers refused of others' messages, calls and entries.",
    "reason",
)
EXPOSING_PEERS = _swarm(
    "exposing_peers",
    "gauge",
    "Peers that leave this one out for good, as it has signed what contradicts itself.",
    "peer_id",
)

CHECKPOINT_ROUND = _swarm("checkpoint_round", "gauge", "Round of the newest checkpoint on any peer's disk.")
CHECKPOINT_TIMESTAMP = _swarm("checkpoint_timestamp_seconds", "gauge", "When that checkpoint was written.")

PEER_INFO = _swarm(
    "peer_info", "info", "What a peer says about itself.", "peer_id", "role", "name", "version", "device"
)

SWARM_METRICS = (*_TABLE.specs, *(each.spec for each in IN_SWARM))
