"""How an oracle is doing; plain data."""

from __future__ import annotations

from dataclasses import dataclass

from dupt_swarm.learning.evaluation import Evaluation
from dupt_swarm.node.messages import RoundResult
from dupt_swarm.node.progress import RoundProgress


@dataclass(frozen=True)
class Status:
    """How the oracle is doing; for the screen, the log and the record.

    ``paused_until`` is in seconds since the epoch; None: not paused, or until somebody says `resume`.
    """

    state: str
    round: int
    progress: RoundProgress
    rounds_done: int
    tokens_per_second: float
    contributed_tokens: int
    loss: float | None
    first: Evaluation | None
    latest: Evaluation | None
    last_round: RoundResult | None
    failed_rounds: int
    paused_until: float | None = None
