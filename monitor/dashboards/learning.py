"""Dashboard `learning`: the loss against tokens and time, the learning rate, and each oracle's loss."""

from __future__ import annotations

from dupt_swarm.metrics import swarm
from dupt_swarm.metrics.record import of_swarm
from monitor.dashboards.board import Choice, Dashboard, Row
from monitor.dashboards.panel import BITS, NATS, Panel, amounts, columns, counts, graph, lettered
from monitor.dashboards.query import Query, of_each_peer

NO_EVALUATOR = "No evaluator: start one with `dupt-peer evaluate`"
NO_TASK = "This swarm learns language, not a task"


def _against_tokens(title: str, text: str, unit: str, losses: dict[str, Query]) -> Panel:
    """Curves over the swarm's tokens instead of time; ``losses`` by legend."""
    return Panel(
        title,
        text,
        (Query("max({0})", swarm.TOKENS_TOTAL, history=True), *losses.values()),
        unit,
        kind="xychart",
        width=12,
        height=10,
        transformations=columns("Time", {"Value #A": "Tokens", **lettered(losses)}, hide=("Time",)),
        options={
            "mapping": "manual",
            "series": [
                {
                    "frame": {"matcher": {"id": "byIndex", "options": 0}},
                    "x": {"matcher": {"id": "byName", "options": "Tokens"}},
                    "y": {"matcher": {"id": "byName", "options": name}},
                }
                for name in losses
            ],
        },
    )


AGAINST_TOKENS = Row(
    "Against tokens",
    (
        _against_tokens(
            "Loss against tokens",
            "The curve for comparing runs: it does not depend on the peers' speed.",
            NATS,
            {
                "training": Query("max({0})", swarm.LOSS_NATS, history=True),
                "held out": Query("max({0})", of_swarm("heldout_loss_nats"), history=True),
            },
        ),
        _against_tokens(
            "Bits per byte against tokens",
            "The same, on held-out text. Evaluators lag some rounds behind.",
            BITS,
            {
                "evaluators": Query("min({0})", swarm.EVAL_BPB, history=True),
                "oracles": Query("max({0})", of_swarm("heldout_bpb"), history=True),
            },
        ),
    ),
)
AGAINST_TIME = Row(
    "Against time",
    (
        graph(
            "Loss",
            "Training loss, and the oracles' held-out loss. A growing gap between them is overfitting.",
            Query("{0}", swarm.LOSS_NATS, legend="training"),
            Query("{0}", of_swarm("heldout_loss_nats"), legend="held out"),
            unit=NATS,
        ),
        graph(
            "Learning rate",
            "Scheduled by the manifest at the swarm's round.",
            Query("{0}", swarm.LEARNING_RATE, legend="learning rate"),
            unit="sci",
        ),
        graph(
            "Tokens",
            "Tokens in the swarm's replica state.",
            Query("{0}", swarm.TOKENS_TOTAL, legend="tokens"),
            unit="short",
        ),
    ),
)
ORACLES = Row(
    "Oracles",
    (
        graph(
            "Loss of each oracle",
            "The oracles that contributed most. One that departs from the rest has a different kind of text, "
            "or a fault.",
            of_each_peer("{0}", of_swarm("peer_loss_nats")),
            unit=NATS,
            width=12,
            height=10,
        ),
        graph(
            "Distance to the swarm's loss",
            "Each oracle's loss minus the swarm's mean: what remains shows how its text differs.",
            of_each_peer(
                "({0} - on (run, instance) group_left () {1})", of_swarm("peer_loss_nats"), swarm.LOSS_NATS
            ),
            unit=NATS,
            width=12,
            height=10,
        ),
    ),
)
EVALUATION = Row(
    "Independent evaluation",
    (
        graph(
            "Bits per byte",
            "What independent evaluators measure, by their corpus.",
            Query("{0}", swarm.EVAL_BPB, legend="{{dataset}}"),
            unit=BITS,
            empty=NO_EVALUATOR,
        ),
        counts(
            "Rounds behind",
            "Rounds that the swarm has completed since the state that was last measured.",
            Query(
                "{0} - on (run, instance) group_right () {1}",
                swarm.ROUND,
                swarm.EVAL_ROUND,
                legend="{{dataset}}",
            ),
            empty=NO_EVALUATOR,
        ),
        graph(
            "Tasks",
            "Figures of lm-evaluation-harness that independent evaluators find, each in its own unit.",
            Query("{0}", swarm.EVAL_TASK, legend="{{task}} {{metric}}"),
            unit="none",
            width=12,
            empty="No tasks: give some with `dupt-peer evaluate --tasks`",
        ),
        amounts(
            "Measurement age",
            "Time since an evaluator last measured.",
            Query("time() - {0}", swarm.EVAL_TIMESTAMP, legend="{{dataset}}"),
            unit="s",
            empty=NO_EVALUATOR,
        ),
    ),
)
TASK = Row(
    "Task",
    (
        graph(
            "Accuracy",
            "Of a task's answers, masked tokens and next sentences: held out, and on evaluators' data sets.",
            Query("{0}", of_swarm("heldout_accuracy"), legend="held out"),
            Query("{0}", of_swarm("heldout_nsp_accuracy"), legend="held out, next sentences"),
            Query("{0}", swarm.EVAL_ACCURACY, legend="{{dataset}}"),
            unit="percentunit",
            width=12,
            defaults={"max": 1},
            empty=NO_TASK,
        ),
        _against_tokens(
            "Accuracy against tokens",
            "The same; each example counts for as many tokens as the model's context has.",
            "percentunit",
            {
                "evaluators": Query("min({0})", swarm.EVAL_ACCURACY, history=True),
                "oracles": Query("max({0})", of_swarm("heldout_accuracy"), history=True),
            },
        ),
    ),
)
LEARNING = Dashboard(
    "dupt-learning",
    "Learning",
    "What a dupt_swarm learns: loss against tokens and time, each oracle's, and independent measurements.",
    Choice("run", "Swarm", swarm.RUN_INFO),
    (AGAINST_TOKENS, AGAINST_TIME, ORACLES, EVALUATION, TASK),
)
