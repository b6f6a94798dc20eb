"""An oracle's status; plain data."""

from __future__ import annotations

from dataclasses import dataclass

from dupt_swarm.learning.quality import Quality
from dupt_swarm.node.messages import LedgerPlace, RoundResult
from dupt_swarm.node.progress import RoundProgress


@dataclass(frozen=True)
class Activity:
    """What an oracle does at this moment, and how far it is; ``total`` 0 or 1: there is nothing to tell."""

    name: str
    done: int = 0
    total: int = 0
    unit: str = ""

    def __str__(self) -> str:
        """Such as ``evaluating 3 of 18 batches``."""
        return (
            f"{self.name} {self.done} of {self.total} {self.unit}".rstrip() if self.total > 1 else self.name
        )


STARTING, PAUSED, AVERAGING = Activity("starting"), Activity("paused"), Activity("averaging")
HANDING_OVER, RESTING = Activity("handing over"), Activity("resting")


@dataclass(frozen=True)
class Status:
    """The oracle's status, for screen, log and record.

    ``state`` is what its record says, ``activity`` what it does at this very moment. ``paused_until`` is in
    seconds since the epoch; None: not paused, or until somebody says `resume`. ``waits``: it is paused since
    others use the machine. ``ledger_place``: what this peer has given ever; None: that is not known yet.
    """

    state: str
    round: int
    progress: RoundProgress
    rounds_done: int
    tokens_per_second: float
    contributed_tokens: int
    loss: float | None
    first: Quality | None
    latest: Quality | None
    last_round: RoundResult | None
    failed_rounds: int
    paused_until: float | None = None
    waits: bool = False
    ledger_place: LedgerPlace | None = None
    activity: Activity = STARTING
