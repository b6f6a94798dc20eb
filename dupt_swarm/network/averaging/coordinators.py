"""Whom members ask for the roll: how one finds the others that is not where they are."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from dupt_swarm.network.averaging.exchange import RoundContext
from dupt_swarm.network.p2p.rpc import CallError, Message, rpc
from dupt_swarm.replica.log_entry import Count, Digest, PeerId

ASKED_MAX = 8
ANSWER_SECONDS = 0.5  # an answer may take

logger = logging.getLogger(__name__)


class StateMessage(Message):
    """A state at which a member looks for its group."""

    round: Count
    state: Digest


class CoordinatorMessage(Message):
    """Whom the member asks for the roll; empty: nobody."""

    coordinator: PeerId | Literal[""] = ""


State = tuple[int, str]
"""A round's number, from 0, and the digest of the state that it began with."""


class Coordinators:
    """Tells others whom this peer asks, and asks them.

    Attributes:
        asked: who may coordinate a round, and its state; nobody: this peer does, or looks for no group.
    """

    def __init__(self, context: RoundContext) -> None:
        self._p2p = context.p2p
        self.asked: tuple[str, State] = ("", (-1, ""))

    async def open(self) -> None:
        """Begin to tell."""
        await self._p2p.serve(self)

    @rpc(StateMessage, CoordinatorMessage, longest=(256, 256), seconds=ANSWER_SECONDS, urgent=True)
    async def rpc_coordinator(self, request: StateMessage, caller: str) -> CoordinatorMessage:
        """Whom this peer asks for the roll of a state."""
        del caller
        coordinator, state = self.asked
        return CoordinatorMessage(coordinator=coordinator if state == (request.round, request.state) else "")

    async def of_most(self, members: Sequence[str], state: State) -> str:
        """Whom most of some of these ask for the roll of ``state``; empty: nobody."""
        asked = random.sample(members, min(ASKED_MAX, len(members)))
        named = Counter(await asyncio.gather(*(self._of(each, state) for each in asked)))
        return next((each for each, count in named.items() if 2 * count > len(asked)), "")

    async def _of(self, member: str, state: State) -> str:
        """Whom this one asks; empty: nobody, or it does not say."""
        message = StateMessage(round=state[0], state=state[1])
        try:
            return (await self._p2p.call(member, Coordinators.rpc_coordinator, message)).coordinator
        except CallError as error:
            logger.debug("%s does not say whom it asks: %s", member, error)
            return ""
