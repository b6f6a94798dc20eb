"""Dashboard `swarm`: is it alive, does it learn, who contributes, what is wrong."""

from __future__ import annotations

from dupt_swarm.metrics import monitor, swarm
from dupt_swarm.metrics.record import of_swarm
from monitor.dashboards.board import Choice, Dashboard, Row
from monitor.dashboards.panel import (
    BITS,
    NATS,
    TOKENS_PER_SECOND,
    Panel,
    about,
    amounts,
    columns,
    counts,
    graph,
    lettered,
    override,
    stacked,
    stat,
)
from monitor.dashboards.query import Query, of_each_peer

# They come all at once at the end of a round, which may last an hour.
INTO_THE_STATE = "Tokens that entered the swarm's state, mean rate over three hours."
SPEED = "rate({0}[3h]) and {0}"
REASONS = "max by (reason) (increase({0}[15m])) > 0"
AGES = ((None, "green"), (60.0, "yellow"), (120.0, "red"))

NOW = Row(
    "Now",
    (
        stat(
            "Peers",
            "Live peers of all roles. Training needs at least two oracles.",
            Query("max(sum by (instance) ({0}))", swarm.PEERS),
            "none",
            steps=((None, "red"), (2.0, "yellow"), (3.0, "green")),
        ),
        stat("Round", "Rounds that the swarm has completed.", Query("{0}", swarm.ROUND), "none"),
        stat(
            "Since the last round",
            "Time since the monitor saw the round advance, as a fraction of the longest that the manifest "
            "allows; red is more than twice that.",
            Query("(time() - {0}) / {1}", swarm.LAST_ROUND_TIMESTAMP, swarm.ROUND_LIMIT_SECONDS),
            "percentunit",
            steps=((None, "green"), (1.0, "yellow"), (2.0, "red")),
        ),
        stat(
            "Loss",
            "Mean training loss per token, as the oracles report it.",
            Query("{0}", swarm.LOSS_NATS),
            NATS,
        ),
        stat(
            "Bits per byte",
            "On held-out text: the evaluators' figure if there is one, else the oracles'. Comparable between "
            "tokenizers.",
            Query("min({0}) or max({1})", swarm.EVAL_BPB, of_swarm("heldout_bpb")),
            BITS,
        ),
        stat("Tokens per second", INTO_THE_STATE, Query(SPEED, swarm.TOKENS_TOTAL), TOKENS_PER_SECOND),
        stat(
            "Failed averagings",
            "Fraction of the last hour's averagings that failed for an oracle. Its contribution is kept.",
            Query(
                "sum(increase({0}[1h])) / sum(increase({1}[1h]))",
                swarm.AVERAGING_ROUNDS_FAILED,
                swarm.AVERAGING_ROUNDS,
            ),
            "percentunit",
            steps=((None, "green"), (0.1, "yellow"), (0.3, "red")),
            empty="None yet",
        ),
        stat(
            "Data age",
            "Time since the monitor last read the swarm's records.",
            Query("time() - ({0} and on (instance) {1})", monitor.LAST_REFRESH, swarm.RUN_INFO),
            "s",
            steps=AGES,
            empty="No monitor",
        ),
    ),
)
LEARNING = Row(
    "Learning",
    (
        graph(
            "Loss and its spread",
            "Mean training loss of the oracles, with the lowest and the highest of any. A wide band is no "
            "fault: corpora differ.",
            Query("{0}", of_swarm("loss_min_nats"), legend="lowest"),
            Query("{0}", of_swarm("loss_max_nats"), legend="highest"),
            Query("{0}", swarm.LOSS_NATS, legend="mean"),
            Query("{0}", of_swarm("heldout_loss_nats"), legend="held out"),
            unit=NATS,
            width=12,
            overrides=(
                override("highest", custom__fillBelowTo="lowest", custom__fillOpacity=15),
                override("mean", custom__lineWidth=2),
            ),
        ),
        graph(
            "Bits per byte",
            "What independent evaluators measure, beside what the oracles report of their own held-out text. "
            "If the evaluators' figure rises while the oracles' falls, the oracles overfit, or lie.",
            Query("{0}", swarm.EVAL_BPB, legend="evaluator: {{dataset}}"),
            Query("{0}", of_swarm("heldout_bpb"), legend="oracles"),
            unit=BITS,
            width=12,
        ),
    ),
)
ROUNDS = Row(
    "Rounds",
    (
        amounts(
            "Round progress",
            "Tokens trained on in this round, as a fraction of those that end it: one tooth per round.",
            Query("{0} / {1}", swarm.ROUND_TOKENS, swarm.ROUND_TARGET_TOKENS, legend="progress"),
            unit="percentunit",
        ),
        amounts(
            "Duration of rounds",
            "Median over the oracles, and the manifest's limit.",
            Query("{0}", of_swarm("round_duration_seconds"), legend="last round"),
            Query("{0}", swarm.ROUND_LIMIT_SECONDS, legend="limit"),
            unit="s",
        ),
        amounts(
            "Tokens per second",
            INTO_THE_STATE,
            Query(SPEED, swarm.TOKENS_TOTAL, legend="swarm"),
            unit=TOKENS_PER_SECOND,
        ),
    ),
)
AVERAGING = Row(
    "Averaging",
    (
        stacked(
            "Averagings by outcome",
            "How averagings ended for the oracles, over 15 minutes.",
            Query(
                "max(sum by (instance) (increase({0}[15m])) - sum by (instance) (increase({1}[15m])))",
                swarm.AVERAGING_ROUNDS,
                swarm.AVERAGING_ROUNDS_FAILED,
                legend="succeeded",
            ),
            Query(REASONS, swarm.AVERAGING_ROUNDS_FAILED, legend="{{reason}}"),
            unit="none",
        ),
        amounts(
            "Duration of averaging",
            "From the end of a round to the new state: the last averaging of each oracle.",
            Query("{0}", of_swarm("averaging_duration_seconds"), legend="median"),
            Query("{0}", of_swarm("averaging_duration_max_seconds"), legend="slowest"),
            unit="s",
        ),
        counts(
            "Group sizes",
            "How many oracles averaged together, beside how many are at work. If groups are smaller, some "
            "oracles did not find the others in time.",
            Query("{0}", of_swarm("group_size_min"), legend="smallest group"),
            Query("{0}", of_swarm("group_size_max"), legend="largest group"),
            Query(
                'max(sum by (instance) ({0:role="oracle", state=~"training|averaging"}))',
                swarm.PEERS,
                legend="oracles",
            ),
        ),
        graph(
            "Time left for training",
            "Part of their time that the last ten rounds left the oracles for training. The rest went into "
            "waiting for the network, encoding contributions, and taking over new states.",
            Query("{0}", of_swarm("utilization_ratio"), legend="median"),
            of_each_peer("{0}", of_swarm("peer_utilization_ratio")),
            unit="percentunit",
            width=12,
            defaults={"max": 1},
            overrides=(override("median", custom__lineWidth=2),),
        ),
        amounts(
            "Waiting for the network",
            "Part of its time for which each oracle's trainer waited for its node, over 15 minutes. Rounds "
            "that overlap with training leave hardly any.",
            of_each_peer("rate({0}[15m])", of_swarm("peer_waiting_seconds_total")),
            unit="percentunit",
            width=12,
        ),
    ),
)
EACH = "max by (peer_id) ({0})"
MEAN = "max by (peer_id) (avg_over_time({0}[1h]) and {0})"
FIGURES = {
    "Tokens": Query(EACH, of_swarm("peer_tokens_total"), table=True),
    "Share": Query(f"{EACH} / scalar(sum({EACH}))", of_swarm("peer_tokens_total"), table=True),
    "Loss": Query(EACH, of_swarm("peer_loss_nats"), table=True),
    "Round": Query(EACH, of_swarm("peer_round"), table=True),
    "Failed rounds": Query(EACH, of_swarm("peer_failed_rounds_total"), table=True),
    "Last seen": Query(f"{EACH} * 1000", of_swarm("peer_last_seen_timestamp_seconds"), table=True),
    "Sent per round": Query(MEAN, of_swarm("peer_round_transmit_bytes"), table=True),
    "Received per round": Query(MEAN, of_swarm("peer_round_receive_bytes"), table=True),
    "Waited in last round": Query(EACH, of_swarm("peer_round_waiting_seconds"), table=True),
}
LABELS = {"role": "Role", "device": "Device", "version": "Version"}
CONTRIBUTIONS = Row(
    "Contributions",
    (
        Panel(
            "Peers",
            "The peers that contributed most, up to the monitor's --max-peer-series. Peers choose their own "
            "names. Bytes per round are means over the last hour.",
            (
                Query("group by (peer_id, name, role, device, version) ({0})", swarm.PEER_INFO, table=True),
                *FIGURES.values(),
            ),
            "none",
            kind="table",
            width=24,
            height=10,
            empty="–",
            transformations=columns(
                "peer_id",
                {"name": "Name", "peer_id": "Peer", **lettered(FIGURES), **LABELS},
                hide=("Value #A", "Time", *(f"Time {number}" for number in range(1, 11))),
            ),
            overrides=(
                override("Tokens", unit="short"),
                override("Share", unit="percentunit", min=0, max=1, custom__cellOptions={"type": "gauge"}),
                override("Loss", unit=NATS, decimals=3),
                override("Last seen", unit="dateTimeFromNow"),
                override("Sent per round", unit="decbytes"),
                override("Received per round", unit="decbytes"),
                override("Waited in last round", unit="s", decimals=1),
            ),
        ),
    ),
)
HEALTH = Row(
    "Health",
    (
        stacked(
            "Oracles by state",
            "Live oracles by what they are doing.",
            Query('max by (state) ({0:role="oracle"}) > 0', swarm.PEERS, legend="{{state}}"),
            unit="none",
        ),
        counts(
            "Other peers",
            "Peers that hold and serve the state without training, and peers that nobody can dial.",
            Query(
                'max by (role) (sum by (instance, role) ({0:role!="oracle"}))', swarm.PEERS, legend="{{role}}"
            ),
            Query("{0}", swarm.PEERS_UNREACHABLE, legend="unreachable"),
        ),
        counts(
            "Contributors",
            "All whose contributions ever counted, by the links of the rounds.",
            Query("{0}", swarm.CONTRIBUTORS, legend="contributors"),
        ),
        stacked(
            "Versions",
            "Live peers by software version.",
            Query("max by (version) ({0})", swarm.PEER_VERSIONS, legend="{{version}}"),
            unit="none",
        ),
        counts(
            "Diverging replicas",
            "Peers whose state differs from that of most peers in the same round. They fetch the right one "
            "by themselves; anything above zero for minutes is a fault.",
            Query("{0}", swarm.DIGESTS_DISAGREEING, legend="peers"),
        ),
        stacked(
            "Rejected",
            "Contributions that peers left out of an average, messages, calls and entries that they refused, "
            "and records that the monitor rejected, by reason, over 15 minutes.",
            Query(REASONS, swarm.REJECTED_CONTRIBUTIONS, legend="contribution: {{reason}}"),
            Query(REASONS, swarm.REFUSED_MESSAGES, legend="message: {{reason}}"),
            Query(REASONS, swarm.INVALID_RECORDS, legend="record: {{reason}}"),
            unit="none",
            empty="None",
        ),
        counts(
            "Left out for good",
            "Peers that have signed what contradicts itself, by id: how many others leave them out.",
            Query("{0}", swarm.EXPOSING_PEERS, legend="{{peer_id}}"),
            empty="Nobody",
        ),
        counts(
            "Unsaved rounds",
            "Rounds since the newest checkpoint on any peer's disk.",
            Query("{0} - {1}", swarm.ROUND, swarm.CHECKPOINT_ROUND, legend="rounds"),
        ),
        amounts(
            "Checkpoint age",
            "Time since the newest checkpoint was written. It grows while nothing new is learned.",
            Query("time() - {0}", swarm.CHECKPOINT_TIMESTAMP, legend="age"),
            unit="s",
        ),
        amounts(
            "Refresh duration",
            "How long the monitor takes to read all records.",
            Query(
                "{0} and on (instance) {1}", monitor.REFRESH_DURATION, swarm.RUN_INFO, legend="{{instance}}"
            ),
            unit="s",
        ),
        amounts(
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
        ),
        about(
            "This swarm",
            "What the swarm trains, and the manifest that all its peers share.",
            swarm.RUN_INFO,
            monitor.BUILD_INFO,
            names={
                "run": "Swarm",
                "model": "Model",
                "manifest_sha256": "Manifest (SHA-256)",
                "instance": "Monitor",
                "version": "Monitor's version",
            },
        ),
    ),
)

SWARM = Dashboard(
    "dupt-swarm",
    "Swarm",
    "A dupt_swarm at a glance: is it alive, does it learn, who contributes, what is wrong.",
    Choice("run", "Swarm", swarm.RUN_INFO),
    (NOW, LEARNING, ROUNDS, AVERAGING, CONTRIBUTIONS, HEALTH),
)
