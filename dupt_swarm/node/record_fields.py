"""Fields of the own record, as keyword arguments: mypy sees that they exist and have the right types."""

from __future__ import annotations

from typing import TypedDict

from dupt_swarm.node.record import PeerState, Reach, Role


class SampleFields(TypedDict):
    """A `SampleRecord`, before it is checked."""

    prompt: str
    text: str


class EvaluationFields(TypedDict):
    """An `EvaluationRecord`, before it is checked."""

    dataset: str
    bits_per_byte: float | None
    loss_nats: float
    accuracy: float | None
    round: int
    time: float
    sample: SampleFields | None


class Whereabouts(TypedDict):
    """How, and at which addresses, others call this peer."""

    reach: Reach
    addresses: tuple[str, ...]


class RoundFields(TypedDict, total=False):
    """How this peer's rounds ended."""

    group_size: int
    averaging_seconds: float
    round_seconds: float
    averaged_rounds: int
    failures: tuple[int, ...]
    rejections: tuple[int, ...]
    round_sent_bytes: int | None
    round_received_bytes: int | None


class CostFields(TypedDict):
    """How long rounds hold up this peer's trainer."""

    utilization: float | None
    round_waiting_seconds: float | None
    waiting_seconds: float | None


class RecordFields(TypedDict, total=False):
    """What a peer may change of its `PeerRecord`: everything but its time and credential."""

    role: Role
    state: PeerState
    round: int
    state_digest: str
    swarm_tokens: int
    round_tokens: int
    tokens_total: int
    tokens_per_second: float
    loss: float | None
    heldout_loss: float | None
    group_size: int
    round_seconds: float
    failed_rounds: int
    heldout_bits_per_byte: float | None
    averaging_seconds: float
    averaged_rounds: int
    failures: tuple[int, ...]
    rejections: tuple[int, ...]
    refused: tuple[int, ...]
    exposed: tuple[str, ...]
    checkpoint_round: int | None
    checkpoint_time: float
    heldout_accuracy: float | None
    evaluation: EvaluationFields | None
    round_sent_bytes: int | None
    round_received_bytes: int | None
    utilization: float | None
    round_waiting_seconds: float | None
    waiting_seconds: float | None
    name: str
    version: str
    device: str
    reach: Reach
    addresses: tuple[str, ...]
