"""The record: what a peer publishes about itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from dupt_swarm.command_line.printable import as_name
from dupt_swarm.fields import Count, Digest, PeerId
from dupt_swarm.node.reasons import FAILURES, REFUSED_MESSAGES, REJECTIONS
from dupt_swarm.settings import DATASET_PATTERN, URL_PATTERN, PublishedRole

PeerState = Literal[
    "starting", "syncing", "training", "averaging", "paused", "stopping", "serving", "evaluating"
]
# What a peer says from joining on, until it says something else: only oracles do.
JOINED: dict[PublishedRole, PeerState] = {
    "oracle": "starting",
    "bootstrap": "serving",
    "evaluator": "evaluating",
}
AT_WORK: tuple[PeerState, ...] = ("training", "averaging")


@dataclass(frozen=True)
class Metric:
    """A metric that shows a field of the records; see `dupt_swarm.metrics.record`, which makes them of these.

    Attributes:
        name: without the prefix.
        help: one sentence.
        kind: what Prometheus calls it.
        over: what the monitor exports: ``each``: the field of each peer, as ``dupt_swarm_peer_<name>``;
            ``median`` and so on: one figure for all oracles, ``dupt_swarm_<name>``; ``nothing``.
        own: whether a peer exports its field itself, too.
        everybody: whether peers have it that are no oracles.
    """

    name: str
    help: str
    kind: Literal["gauge", "counter"] = "gauge"
    over: Literal["each", "median", "min", "max", "nothing"] = "each"
    own: bool = False
    everybody: bool = False


LOSS_MAX = 1e6  # nats, or bits per byte
SPEED_MAX = 1e12
Loss = Annotated[float, Field(ge=0, le=LOSS_MAX)]
Accuracy = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Time = Annotated[float, Field(ge=0, le=1e11)]  # in seconds since the epoch
SmallCount = Annotated[int, Field(ge=0, lt=1 << 32)]
Reach = Literal["direct", "relayed", "client"]
Address = Annotated[str, Field(max_length=160, pattern=r"^(/[A-Za-z0-9.:_-]+)+$")]
# Whatever a stranger calls itself, nothing in it is obeyed by a terminal or a log.
Line = Annotated[str, AfterValidator(as_name)]
# `PeerRecord` names these fields once more, so their metrics are declared with the type.
Round = Annotated[Count, Metric("round", "Rounds in a peer's replica state.", own=True, everybody=True)]
Published = Annotated[
    Time,
    Metric("last_seen_timestamp_seconds", "When a peer last published a record.", everybody=True),
]
SAMPLE_BYTES_MAX = 600  # of UTF-8, prompt and text together
EXPOSED_MAX = 2
TASKS_MAX, TASK_VALUE_MAX = 8, 1e9


class SampleRecord(BaseModel):
    """What the model wrote of itself after a prompt; whoever shows it takes control characters out."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    prompt: str = Field(description="what the evaluator let it continue")
    text: str = Field(description="what followed")

    @model_validator(mode="after")
    def _short(self) -> Self:
        if len((self.prompt + self.text).encode()) > SAMPLE_BYTES_MAX:
            raise ValueError(f"prompt and text have more than {SAMPLE_BYTES_MAX} bytes")
        return self


class EvaluationRecord(BaseModel):
    """What an evaluator measured: the swarm's state of one round on text that no oracle trains on."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)

    dataset: str = Field(pattern=DATASET_PATTERN, description="what the evaluator calls its corpus")
    bits_per_byte: Loss | None = Field(
        default=None, description="of UTF-8, comparable between tokenizers; none of a task"
    )
    loss_nats: Loss = Field(description="per token, or per example of a task")
    accuracy: Accuracy | None = Field(
        default=None, description="of a task's answers, or of masked tokens; none of a decoder's text"
    )
    nsp_accuracy: Accuracy | None = Field(
        default=None, description="of an encoder's answers to whether a text follows on another"
    )
    round: Count
    time: Time = Field(description="when it was measured")
    sample: SampleRecord | None = Field(default=None, description="of that state, if it was asked for one")

    @property
    def figure(self) -> float:
        """What to compare results on one dataset by; less is better."""
        return self.loss_nats if self.bits_per_byte is None else self.bits_per_byte


class TaskResult(BaseModel):
    """One figure of lm-evaluation-harness, which an evaluator ran on the swarm's state of one round."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)

    task: str = Field(pattern=DATASET_PATTERN)
    metric: str = Field(pattern=DATASET_PATTERN, description="as the harness calls it, such as `acc`")
    value: float = Field(ge=-TASK_VALUE_MAX, le=TASK_VALUE_MAX)
    round: Count


class RecordUpdate(BaseModel):
    """Some fields of the own record, with new values: those that it is made with.

    Every field of a record is declared here, once: its type and limits, what it means, and the metrics that
    show it. What has no `Metric` is in none, or in one that `dupt_swarm.metrics` names by hand.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)

    role: PublishedRole = "oracle"
    state: PeerState = "starting"
    time: Published = Field(default=0.0, description="when it was published")
    round: Round = 0
    state_digest: Digest = ""
    swarm_tokens: Count = Field(default=0, description="tokens in the replica state")
    round_tokens: Count = Field(default=0, description="own tokens since the last contribution")
    tokens_total: Annotated[
        Count,
        Metric(
            "tokens_total",
            "Tokens that an oracle has contributed, earlier sessions included.",
            kind="counter",
            own=True,
        ),
    ] = Field(default=0, description="own tokens contributed, all sessions")
    tokens_per_second: float = Field(default=0.0, ge=0, le=SPEED_MAX)
    loss: Annotated[
        Loss | None,
        Metric("loss_nats", "Mean training loss per token of an oracle's last steps.", own=True),
        Metric("loss_median_nats", "Median training loss per token of the oracles.", over="median"),
        Metric("loss_min_nats", "Lowest training loss per token of any oracle.", over="min"),
        Metric("loss_max_nats", "Highest training loss per token of any oracle.", over="max"),
    ] = None
    heldout_loss: Annotated[
        Loss | None,
        Metric(
            "heldout_loss_nats",
            "Held-out loss per token, on the part of the corpus that is not trained on.",
            over="nothing",
            own=True,
        ),
        Metric("heldout_loss_nats", "Median held-out loss per token of the oracles.", over="median"),
    ] = None
    group_size: Annotated[
        SmallCount | None,
        Metric("group_size_min", "Smallest group in which a live oracle last averaged.", over="min"),
        Metric("group_size_max", "Largest group in which a live oracle last averaged.", over="max"),
    ] = Field(default=None, description="peers in the last average")
    round_seconds: Annotated[
        Seconds | None,
        Metric(
            "round_duration_seconds", "Duration of the last round, median over the oracles.", over="median"
        ),
    ] = Field(default=None, description="length of the last round")
    failed_rounds: Annotated[
        Count, Metric("failed_rounds_total", "Rounds that failed for an oracle.", kind="counter")
    ] = 0
    heldout_bits_per_byte: Annotated[
        Loss | None,
        # promtool's linter takes `bits` in a name for a wrong unit.
        Metric(
            "heldout_bpb",
            "Held-out bits per byte (BPB), on the part of the corpus that is not trained on.",
            over="nothing",
            own=True,
        ),
        Metric("heldout_bpb", "Median held-out bits per byte (BPB) of the oracles.", over="median"),
    ] = Field(default=None, description="of UTF-8")
    averaging_seconds: Annotated[
        Seconds | None,
        Metric(
            "averaging_duration_seconds",
            "Duration of the last averaging, median over the oracles.",
            over="median",
        ),
        Metric(
            "averaging_duration_max_seconds",
            "Duration of the last averaging, longest of any oracle.",
            over="max",
        ),
    ] = Field(default=None, description="from the end of the last round to the new state")
    averaged_rounds: SmallCount = Field(default=0, description="succeeded since the peer started")
    failures: tuple[SmallCount, ...] = Field(
        default=(), max_length=len(FAILURES), description="rounds that failed, in the order of FAILURES"
    )
    rejections: tuple[SmallCount, ...] = Field(
        default=(), max_length=len(REJECTIONS), description="contributions, in the order of REJECTIONS"
    )
    refused: tuple[SmallCount, ...] = Field(
        default=(),
        max_length=len(REFUSED_MESSAGES),
        description="messages of others, and what was in them, in the order of REFUSED_MESSAGES",
    )
    exposed: tuple[PeerId, ...] = Field(
        default=(), max_length=EXPOSED_MAX, description="ids of who has contradicted itself, the last ones"
    )
    checkpoint_round: Count | None = Field(default=None, description="of the newest one on its disk")
    checkpoint_time: Time = Field(default=0.0, description="when that was written")
    heldout_accuracy: Annotated[
        Accuracy | None,
        Metric(
            "heldout_accuracy",
            "Accuracy of a task's answers or of masked tokens, on what is not trained on, 0 to 1.",
            over="nothing",
            own=True,
        ),
        Metric(
            "heldout_accuracy",
            "Median accuracy of a task's answers or of masked tokens, on what the oracles hold out, 0 to 1.",
            over="median",
        ),
    ] = Field(default=None, description="of a task's answers, or of masked tokens")
    heldout_nsp_accuracy: Annotated[
        Accuracy | None,
        Metric(
            "heldout_nsp_accuracy",
            "Accuracy of whether a text follows on another, on what is not trained on, 0 to 1.",
            over="nothing",
            own=True,
        ),
        Metric(
            "heldout_nsp_accuracy",
            "Median accuracy of whether a text follows on another, on what the oracles hold out, 0 to 1.",
            over="median",
        ),
    ] = Field(default=None, description="of whether a text follows on another")
    evaluation: EvaluationRecord | None = Field(default=None, description="an evaluator's last one")
    tasks: tuple[TaskResult, ...] = Field(
        default=(), max_length=TASKS_MAX, description="an evaluator's last results of tasks"
    )
    published_at: str = Field(
        default="",
        pattern=URL_PATTERN,
        description="where others find the states that an evaluator publishes",
    )
    round_sent_bytes: Annotated[
        Count | None,
        Metric(
            "round_transmit_bytes",
            "Payload bytes of all messages that an oracle sent in its last round: from the end of the one "
            "before to its own.",
            own=True,
        ),
    ] = None
    round_received_bytes: Annotated[
        Count | None,
        Metric(
            "round_receive_bytes",
            "Payload bytes of all messages that an oracle received in its last round, likewise.",
            own=True,
        ),
    ] = None
    utilization: Annotated[
        float | None,
        Field(ge=0, le=1),
        Metric(
            "utilization_ratio",
            "Part of its time that the last ten rounds left an oracle for training, 0 to 1: tokens per "
            "second over whole rounds ÷ tokens per second while stepping.",
            own=True,
        ),
        Metric(
            "utilization_ratio",
            "Part of their time that the last ten rounds left the oracles for training, 0 to 1, median.",
            over="median",
        ),
    ] = None
    round_waiting_seconds: Annotated[
        Seconds | None,
        Metric(
            "round_waiting_seconds",
            "Time for which an oracle's trainer waited for its node, and so for the network, in its last "
            "round.",
            own=True,
        ),
    ] = None
    waiting_seconds: Annotated[
        Seconds | None,
        Metric(
            "waiting_seconds_total",
            "Time for which an oracle's trainer has waited for its node, and so for the network, since its "
            "start.",
            kind="counter",
            own=True,
        ),
    ] = None
    name: Line = Field(default="", max_length=40)
    version: Line = Field(default="", max_length=20)
    device: Line = Field(default="", max_length=60)
    credential: str = Field(
        default="",
        max_length=400,
        pattern="^[A-Za-z0-9_-]*$",
        description="where a swarm admits by invitation",
    )
    reach: Reach = Field(default="direct", description="how others can reach this peer")
    addresses: tuple[Address, ...] = Field(
        default=(), max_length=3, description="multiaddrs without the peer id, the best first"
    )

    @property
    def given(self) -> dict[str, Any]:
        """The fields that it was made with."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    def __or__(self, later: RecordUpdate) -> RecordUpdate:
        """Both, where ``later`` counts for what they have in common."""
        return self.model_copy(update=later.given)


class PeerRecord(RecordUpdate):
    """A small statement of one peer, which it signs; times in seconds since the epoch."""

    role: PublishedRole
    state: PeerState
    time: Published
    round: Round
    state_digest: Digest
    swarm_tokens: Count

    def published(self) -> dict[str, Any]:
        """What is signed: plain lists, and no field that has its default."""
        return self.model_dump(mode="json", exclude_defaults=True) | {"time": self.time}

    @property
    def at_work(self) -> bool:
        """Whether it takes part in the rounds just now, if it is an oracle."""
        return self.state in AT_WORK


def publishable(loss: float | None) -> float | None:
    """What a record may hold: others would refuse one that is not finite, or beyond all measure."""
    return loss if loss is not None and 0 <= loss <= LOSS_MAX else None


def plain_name(text: str) -> str:
    """``text`` as others accept it for a name in a record; empty if nothing of it is left."""
    return re.sub("[^A-Za-z0-9._-]+", "-", text).strip("-._")[:40]
