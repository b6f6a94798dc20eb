"""Dashboard `peer`: one oracle, from its own metrics: what it does, where its time goes, what fails."""

from __future__ import annotations

from dupt_swarm.metrics import peer
from dupt_swarm.metrics.record import of_peer
from monitor.dashboards.board import Choice, Dashboard, Row
from monitor.dashboards.panel import (
    BITS,
    NATS,
    TOKENS_PER_SECOND,
    Panel,
    about,
    amounts,
    counts,
    graph,
    override,
    stacked,
    stat,
)
from monitor.dashboards.query import RECENT, Query

NO_GPU = "No GPU"

NOW = Row(
    "Now",
    (
        stat("Round", "Rounds in this peer's replica state.", Query("{0}", of_peer("round")), "none"),
        stat(
            "Rounds behind",
            "Rounds by which the swarm's newest state is ahead. If more than a few for minutes, it cannot "
            "keep up.",
            Query("{0}", peer.ROUND_LAG),
            "none",
            steps=((None, "green"), (2.0, "yellow"), (5.0, "red")),
        ),
        stat(
            "Loss",
            "Mean training loss per token over the last steps.",
            Query("{0}", of_peer("loss_nats")),
            NATS,
        ),
        stat(
            "Tokens per second",
            "Tokens that its inner steps train on.",
            Query(f"rate({{0}}{RECENT})", peer.TRAINED_TOKENS),
            TOKENS_PER_SECOND,
        ),
        stat(
            "Contributed", "Its tokens in the swarm's state.", Query("{0}", of_peer("tokens_total")), "short"
        ),
        stat(
            "Since the last round",
            "Time since a round last succeeded for this peer.",
            Query("time() - {0}", peer.LAST_ROUND),
            "s",
        ),
        stat(
            "Known peers", "Live peers that it sees, itself included.", Query("{0}", peer.KNOWN_PEERS), "none"
        ),
        stat("Running for", "Time since it started.", Query("time() - {0}", peer.START), "s"),
    ),
)
TRAINING = Row(
    "Training",
    (
        Panel(
            "State",
            "What the peer does over time.",
            (Query("{0} == 1", peer.STATE, legend="{{state}}"),),
            "none",
            kind="state-timeline",
            width=24,
            height=6,
        ),
        graph(
            "Loss",
            "Training loss, and the loss on the held-out part of its corpus.",
            Query("{0}", of_peer("loss_nats"), legend="training"),
            Query("{0}", of_peer("heldout_loss_nats"), legend="held out"),
            unit=NATS,
            width=6,
        ),
        graph(
            "Bits per byte",
            "On the held-out part of its corpus.",
            Query("{0}", of_peer("heldout_bpb"), legend="held out"),
            unit=BITS,
            width=6,
        ),
        graph(
            "Accuracy",
            "Of a task's answers, masked tokens and next sentences, on what it holds out.",
            Query("{0}", of_peer("heldout_accuracy"), legend="held out"),
            Query("{0}", of_peer("heldout_nsp_accuracy"), legend="held out, next sentences"),
            unit="percentunit",
            width=6,
            defaults={"max": 1},
            empty="This swarm learns to continue texts, which is not right or wrong",
        ),
        graph(
            "Learning rate",
            "Scheduled by the manifest.",
            Query("{0}", peer.LEARNING_RATE, legend="learning rate"),
            unit="sci",
            width=6,
        ),
    ),
)
STEPS = Row(
    "Steps",
    (
        stacked(
            "Where the time of a step goes",
            "Mean duration of each phase of an inner step. Much `data` means that the disk cannot keep up.",
            Query(
                f"sum by (phase) (rate({{0.sum}}{RECENT})) / sum by (phase) (rate({{0.count}}{RECENT}))",
                peer.STEP_DURATION,
                legend="{{phase}}",
            ),
            unit="s",
        ),
        amounts(
            "Slow steps",
            "99th percentile of each phase's duration.",
            Query(
                f"histogram_quantile(0.99, sum by (phase, le) (rate({{0.bucket}}{RECENT})))",
                peer.STEP_DURATION,
                legend="{{phase}}",
            ),
            unit="s",
        ),
        graph(
            "Steps and tokens per second",
            "Inner steps (left axis), and the tokens that they train on (right axis).",
            Query(f"rate({{0}}{RECENT})", peer.INNER_STEPS, legend="steps/s"),
            Query(f"rate({{0}}{RECENT})", peer.TRAINED_TOKENS, legend="tokens/s"),
            unit="short",
            overrides=(override("tokens/s", custom__axisPlacement="right"),),
        ),
    ),
)
ROUNDS = Row(
    "Rounds",
    (
        amounts(
            "Duration of averaging",
            "Finding the group, exchange and outer step: median and 90th percentile, over 15 minutes.",
            Query(
                "histogram_quantile(0.5, sum by (le) (rate({0.bucket}[15m])))",
                peer.AVERAGING_DURATION,
                legend="median",
            ),
            Query(
                "histogram_quantile(0.9, sum by (le) (rate({0.bucket}[15m])))",
                peer.AVERAGING_DURATION,
                legend="90th percentile",
            ),
            unit="s",
        ),
        counts(
            "Group size",
            "Peers that averaged together in its last round.",
            Query("{0}", peer.GROUP_SIZE, legend="peers"),
        ),
        stacked(
            "Failed averagings",
            "By reason, beside all attempts, over 15 minutes. The contribution is kept for the next round.",
            Query("increase({0}[15m]) > 0", peer.AVERAGING_FAILED, legend="{{reason}}"),
            Query("increase({0}[15m])", peer.AVERAGING_ROUNDS, legend="all"),
            unit="none",
            overrides=(
                override("all", custom__stacking={"mode": "none", "group": "A"}, custom__fillOpacity=0),
            ),
        ),
        graph(
            "Time left for training",
            "Part of its time that the last ten rounds left for training. The rest went into waiting for the "
            "network, encoding contributions, and taking over new states.",
            Query("{0}", of_peer("utilization_ratio"), legend="training"),
            unit="percentunit",
            defaults={"max": 1},
        ),
        amounts(
            "Waiting for the network",
            "How long the trainer waited for its node, in the last round and over 15 minutes. Rounds that "
            "overlap with training leave hardly any.",
            Query("{0}", of_peer("round_waiting_seconds"), legend="last round"),
            Query("increase({0}[15m])", of_peer("waiting_seconds_total"), legend="15 minutes"),
            unit="s",
        ),
        amounts(
            "Bytes of a round",
            "Payload bytes of all messages in the last round: from the end of the one before to its own.",
            Query("{0}", of_peer("round_receive_bytes"), legend="received"),
            Query("{0}", of_peer("round_transmit_bytes"), legend="sent"),
            unit="decbytes",
        ),
    ),
)
NETWORK = Row(
    "Network",
    (
        amounts(
            "Traffic",
            "Payload bytes exchanged with other peers.",
            Query(f"rate({{0}}{RECENT})", peer.NETWORK_RECEIVE, legend="received"),
            Query(f"rate({{0}}{RECENT})", peer.NETWORK_TRANSMIT, legend="sent"),
            unit="Bps",
        ),
        amounts(
            "State downloads",
            "Mean time to download a newer state, over an hour. A peer that missed a round fetches it.",
            Query(
                "rate({0.sum}[1h]) / (rate({0.count}[1h]) > 0)", peer.DOWNLOAD_DURATION, legend="mean time"
            ),
            unit="s",
            empty="None in the last hour",
        ),
        amounts(
            "Failures",
            "Downloads of the state that no donor could complete, and restarts of the node process, over 15 "
            "minutes.",
            Query("increase({0}[15m])", peer.DOWNLOADS_FAILED, legend="downloads"),
            Query("increase({0}[15m])", peer.NODE_RESTARTS, legend="restarts: {{reason}}"),
            unit="none",
        ),
        graph(
            "Refused",
            "Messages, entries and calls of other peers that it refused, by reason, over 15 minutes: "
            "somebody sends what no peer of this program sends, or too much; or is there in its record only.",
            Query("increase({0}[15m]) > 0", peer.REFUSED_MESSAGES, legend="{{reason}}"),
            unit="none",
            empty="None",
        ),
    ),
)

GPU = Row(
    "GPU",
    (
        graph(
            "Utilization",
            "Fraction of the time in which the GPU is busy, with any process.",
            Query("{0}", peer.GPU_UTILIZATION, legend="GPU {{gpu}}"),
            unit="percentunit",
            width=6,
            defaults={"min": 0, "max": 1},
            empty=NO_GPU,
        ),
        amounts(
            "Memory",
            "In use by any process, and in total.",
            Query("{0}", peer.GPU_MEMORY_USED, legend="GPU {{gpu}}"),
            Query("{0}", peer.GPU_MEMORY_TOTAL, legend="GPU {{gpu}}, total"),
            unit="bytes",
            width=6,
            empty=NO_GPU,
        ),
        graph(
            "Temperature",
            "Most GPUs throttle above 85 °C.",
            Query("{0}", peer.GPU_TEMPERATURE, legend="GPU {{gpu}}"),
            unit="celsius",
            width=6,
            empty=NO_GPU,
        ),
        amounts(
            "Power",
            "Energy that the GPU uses per second.",
            Query(f"rate({{0}}{RECENT})", peer.GPU_ENERGY, legend="GPU {{gpu}}"),
            unit="watt",
            width=6,
            empty=NO_GPU,
        ),
    ),
)

ABOUT = Row(
    "About",
    (
        graph(
            "Time paused",
            "Fraction of the time in which it was paused.",
            Query(f"rate({{0}}{RECENT})", peer.PAUSED, legend="paused"),
            unit="percentunit",
            defaults={"min": 0, "max": 1},
        ),
        amounts(
            "Checkpoint age",
            "Time since its last checkpoint.",
            Query("time() - {0}", peer.CHECKPOINT_SAVED, legend="age"),
            unit="s",
            empty="None saved yet",
        ),
        amounts(
            "Time since the last step",
            "Time since an inner step ended. It grows while the peer is paused or waits.",
            Query("time() - {0}", peer.LAST_STEP, legend="age"),
            unit="s",
        ),
        about(
            "This peer",
            "The peer and the software that it runs.",
            peer.INFO,
            peer.BUILD_INFO,
            names={
                "name": "Name",
                "role": "Role",
                "run": "Swarm",
                "peer_id": "Peer",
                "device": "Device",
                "version": "Version",
                "torch": "torch",
                "hivemind": "hivemind",
                "python": "Python",
            },
        ),
    ),
)
PEER = Dashboard(
    "dupt-peer",
    "Peer",
    "One oracle from its own metrics (join --metrics-addr): state, steps, rounds, network, GPU.",
    Choice("instance", "Peer", peer.INFO),
    (NOW, TRAINING, STEPS, ROUNDS, NETWORK, GPU, ABOUT),
)
