"""The record: what a peer publishes about itself."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from dupt_swarm.command_line.printable import as_name
from dupt_swarm.node.reasons import FAILURES, REFUSED_MESSAGES, REJECTIONS
from dupt_swarm.replica.log_entry import PeerId
from dupt_swarm.settings import DATASET_PATTERN

Role = Literal["oracle", "bootstrap", "evaluator"]
PeerState = Literal[
    "starting", "syncing", "training", "averaging", "paused", "stopping", "serving", "evaluating"
]
# What a peer says from joining on, until it says something else: only oracles do.
JOINED: dict[Role, PeerState] = {"oracle": "starting", "bootstrap": "serving", "evaluator": "evaluating"}
AT_WORK: tuple[PeerState, ...] = ("training", "averaging")
Count = Annotated[int, Field(ge=0, lt=1 << 62)]
LOSS_MAX = BITS_PER_BYTE_MAX = 1e6
Loss = Annotated[float, Field(ge=0, le=LOSS_MAX)]
BitsPerByte = Annotated[float, Field(ge=0, le=BITS_PER_BYTE_MAX)]
Accuracy = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
SmallCount = Annotated[int, Field(ge=0, lt=1 << 32)]
Reach = Literal["direct", "relayed", "client"]
Address = Annotated[str, Field(max_length=160, pattern=r"^(/[A-Za-z0-9.:_-]+)+$")]
# Whatever a stranger calls itself, nothing in it is obeyed by a terminal or a log.
Line = Annotated[str, AfterValidator(as_name)]
SAMPLE_BYTES_MAX = 600  # of UTF-8, prompt and text together
EXPOSED_MAX = 2


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
    bits_per_byte: BitsPerByte | None = Field(
        default=None, description="of UTF-8, comparable between tokenizers; none of a task"
    )
    loss_nats: Loss = Field(description="per token, or per example of a task")
    accuracy: Accuracy | None = Field(default=None, description="of a task's answers; none of text")
    round: Count
    time: float = Field(ge=0, le=1e11, description="when it was measured")
    sample: SampleRecord | None = Field(default=None, description="of that state, if it was asked for one")

    @property
    def figure(self) -> float:
        """What to compare results on one dataset by; less is better."""
        return self.loss_nats if self.bits_per_byte is None else self.bits_per_byte


class PeerRecord(BaseModel):
    """A small statement of one peer, which it signs; times in seconds since the epoch."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)

    role: Role
    state: PeerState
    time: float = Field(ge=0, le=1e11)
    round: Count
    state_digest: str = Field(pattern="^[0-9a-f]{64}$")
    swarm_tokens: Count = Field(description="tokens in the replica state")
    round_tokens: Count = Field(default=0, description="own tokens since the last contribution")
    tokens_total: Count = Field(default=0, description="own tokens contributed, all sessions")
    tokens_per_second: float = Field(default=0.0, ge=0, le=1e12)
    loss: Loss | None = None
    heldout_loss: Loss | None = None
    group_size: int = Field(default=0, ge=0, le=1 << 20, description="peers in the last all-reduce")
    round_seconds: Seconds = Field(default=0.0, description="length of the last round")
    failed_rounds: Count = 0
    heldout_bits_per_byte: Loss | None = Field(default=None, description="of UTF-8")
    averaging_seconds: Seconds = Field(
        default=0.0, description="from the end of the last round to the new state"
    )
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
    checkpoint_time: float = Field(default=0.0, ge=0, le=1e11, description="when that was written")
    heldout_accuracy: Accuracy | None = Field(default=None, description="of a task's answers")
    evaluation: EvaluationRecord | None = Field(default=None, description="an evaluator's last one")
    round_sent_bytes: Count | None = Field(
        default=None, description="in the last round: from the end of the one before to its own"
    )
    round_received_bytes: Count | None = Field(default=None, description="likewise")
    utilization: float | None = Field(
        default=None, ge=0, le=1, description="part of its time that the last ten rounds left for training"
    )
    round_waiting_seconds: Seconds | None = Field(
        default=None, description="for which the trainer waited for its node in the last round"
    )
    waiting_seconds: Seconds | None = Field(default=None, description="likewise, since the peer started")
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

    def published(self) -> dict[str, Any]:
        """What is signed: plain lists, and no field that has its default."""
        return self.model_dump(mode="json", exclude_defaults=True) | {"time": self.time}

    @property
    def at_work(self) -> bool:
        """Whether it takes part in the rounds just now, if it is an oracle."""
        return self.state in AT_WORK
