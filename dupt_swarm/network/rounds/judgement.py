"""Asking the trainer whether a state that was computed is to be accepted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from torch import Tensor

from dupt_swarm.node.messages import Candidate
from dupt_swarm.replica.state import ReplicaState

logger = logging.getLogger(__name__)

# The trainer looks between two micro-batches. Whoever cannot look in time accepts what it has computed.
JUDGE_SECONDS = 10.0
PART_OF_DECIDING = 0.5


class Judgement:
    """Asks the trainer, and waits for its answer.

    Attributes:
        asked: whether the trainer judges now.
    """

    def __init__(
        self, tell: Callable[[Candidate], None], place: Callable[[Tensor], int], seconds: float
    ) -> None:
        """Begin.

        Args:
            tell: passes a candidate to the trainer.
            place: where in the shared memory a vector lies.
            seconds: for which the others wait.
        """
        self._tell, self._place = tell, place
        self._seconds = min(JUDGE_SECONDS, PART_OF_DECIDING * seconds)
        self._waiting: tuple[str, asyncio.Future[bool]] | None = None
        self.asked = False

    async def accepts(self, state: ReplicaState) -> bool:
        """Whether to accept ``state``; yes, while the trainer does not judge."""
        if not self.asked:
            return True
        answer = asyncio.get_running_loop().create_future()
        self._waiting = state.digest, answer
        self._tell(Candidate(state.digest, self._place(state.anchor)))
        try:
            async with asyncio.timeout(self._seconds):
                accepted = bool(await answer)
        except TimeoutError:
            logger.info("round %d: the trainer did not look at it in time", state.round)
            return True
        finally:
            self._waiting = None
        if not accepted:
            logger.warning("round %d does harm to our held-out text: we refuse it", state.round)
        return accepted

    def hear(self, digest: str, *, accepted: bool) -> None:
        """The trainer's answer; one that comes too late is of no use."""
        if self._waiting is not None and self._waiting[0] == digest and not self._waiting[1].done():
            self._waiting[1].set_result(accepted)
