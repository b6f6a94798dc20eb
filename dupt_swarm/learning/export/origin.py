"""Where a model comes from, as its card tells it; names and figures are what other peers said."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """What an evaluator published; a figure is None where it gave none.

    Attributes:
        accuracy: of a task's answers, from 0 to 1.
        round: of the state that it measured, not necessarily the one at hand.
        evaluator: its name, or the end of its peer id.
    """

    dataset: str
    bits_per_byte: float | None
    loss_nats: float | None
    accuracy: float | None
    round: int
    evaluator: str


@dataclass(frozen=True)
class Origin:
    """The swarm and its state, and who had a part in it.

    Attributes:
        swarm_id: of the swarm that the model was taken from, whatever was made of it since.
        peers: names of those that gave one.
        pulled_at: when it was taken from the swarm, UTC, ISO 8601; empty: it is a checkpoint.
        version: of dupt_swarm, which took it.
        fine_tuned_digest: what the state became; empty: it is as it was.
    """

    swarm_id: str
    round: int
    swarm_tokens: int
    state_digest: str
    peers: tuple[str, ...] = ()
    evaluations: tuple[Measured, ...] = ()
    pulled_at: str = ""
    version: str = ""
    fine_tuned_digest: str = ""
