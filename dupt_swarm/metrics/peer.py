"""The metrics of one peer, exported by itself with ``--metrics-addr``; those of its record are in `record`.

Only `INFO` says which swarm and which peer; Prometheus adds its `instance` label to every series.
"""

from __future__ import annotations

from dupt_swarm.metrics.record import IN_PEER
from dupt_swarm.metrics.spec import Table

STEP_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
AVERAGING_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
DOWNLOAD_BOUNDS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


_TABLE = Table("dupt_peer_")
_peer = _TABLE.add

BUILD_INFO = _peer(
    "build_info", "info", "The software that this peer runs.", "version", "torch", "hivemind", "python"
)
INFO = _peer("info", "info", "Which peer this is.", "run", "peer_id", "role", "name", "device")
START = _peer("start_timestamp_seconds", "gauge", "When this peer was started.")
STATE = _peer("state", "gauge", "1 for the state that this peer is in, 0 for all others.", "state")
PAUSED = _peer("paused_seconds_total", "counter", "Time for which this peer has been paused since its start.")
ROUND_LAG = _peer("round_lag", "gauge", "Rounds by which the swarm's newest replica state is ahead of ours.")
LEARNING_RATE = _peer(
    "learning_rate",
    "gauge",
    "Scheduled learning rate: of the inner steps, or of the outer step with `gradient`.",
)
TRAINED_TOKENS = _peer("trained_tokens_total", "counter", "Tokens trained on by inner steps since the start.")
INNER_STEPS = _peer("inner_steps_total", "counter", "Inner steps since the start.")
STEP_DURATION = _peer(
    "step_duration_seconds",
    "histogram",
    "Duration of each phase of an inner step. On CUDA device time, once the device has finished the step "
    "(the phase `data` is host time and overlaps it); elsewhere the time until the calls return.",
    "phase",
    bounds=STEP_BOUNDS,
)
LAST_STEP = _peer("last_step_timestamp_seconds", "gauge", "When the last inner step ended.")
AVERAGING_ROUNDS = _peer(
    "averaging_rounds_total", "counter", "Averaging attempts of this peer since its start."
)
AVERAGING_FAILED = _peer(
    "averaging_rounds_failed_total", "counter", "Averaging attempts that failed for this peer.", "reason"
)
AVERAGING_DURATION = _peer(
    "averaging_duration_seconds",
    "histogram",
    "Duration of finding the group, the exchange and the outer step together, failed attempts included.",
    bounds=AVERAGING_BOUNDS,
)
GROUP_SIZE = _peer(
    "averaging_group_size", "gauge", "Peers in the group of the last round, this one included."
)
LAST_ROUND = _peer("last_round_timestamp_seconds", "gauge", "When a round last succeeded for this peer.")
DOWNLOAD_DURATION = _peer(
    "state_download_duration_seconds",
    "histogram",
    "Duration of each download of a newer replica state, failed ones included; the one at joining is not "
    "counted.",
    bounds=DOWNLOAD_BOUNDS,
)
DOWNLOADS_FAILED = _peer(
    "state_downloads_failed_total",
    "counter",
    "Downloads of a newer replica state that no donor could complete.",
)
NETWORK_RECEIVE = _peer(
    "network_receive_bytes_total",
    "counter",
    "Payload bytes of all messages received from peers since the node's start, without the overhead of "
    "libp2p and the layers below it.",
)
NETWORK_TRANSMIT = _peer(
    "network_transmit_bytes_total",
    "counter",
    "Payload bytes of all messages sent to peers since the node's start, without the overhead of libp2p "
    "and the layers below it.",
)
REFUSED_MESSAGES = _peer(
    "refused_messages_total",
    "counter",
    "What this peer refused of others' messages since the node's start: whole messages, entries, calls; "
    "addresses that it did not dial, oracles that it did not wait for.",
    "reason",
)
KNOWN_PEERS = _peer("known_peers", "gauge", "Live peers that this peer sees, itself included.")
NODE_RESTARTS = _peer("node_restarts_total", "counter", "How often the node process was restarted.", "reason")
CHECKPOINT_SAVED = _peer("checkpoint_saved_timestamp_seconds", "gauge", "When the last checkpoint was saved.")
GPU_UTILIZATION = _peer(
    "gpu_utilization_ratio",
    "gauge",
    "Fraction of the last sampling period in which the GPU was busy, with any process.",
    "gpu",
)
GPU_MEMORY_USED = _peer("gpu_memory_used_bytes", "gauge", "GPU memory in use, by any process.", "gpu")
GPU_MEMORY_TOTAL = _peer("gpu_memory_total_bytes", "gauge", "Total GPU memory.", "gpu")
GPU_TEMPERATURE = _peer("gpu_temperature_celsius", "gauge", "Temperature of the GPU.", "gpu")
GPU_ENERGY = _peer(
    "gpu_energy_joules_total", "counter", "Energy used by the GPU since its driver was loaded.", "gpu"
)

PEER_METRICS = (*_TABLE.specs, *(each.spec for each in IN_PEER))
