"""Whom members ask for the roll: how one finds the others that is not where they are."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2PContext, PeerID, ServicerBase
from pydantic import BaseModel, ConfigDict

from dupt_swarm.network.averaging.exchange import RoundContext
from dupt_swarm.replica.log_entry import Count, Digest, PeerId

ASKED_MAX = 8
ANSWER_SECONDS = 0.5  # an answer may take

logger = logging.getLogger(__name__)


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class StateMessage(_Message):
    """A state at which a member looks for its group."""

    round: Count
    state: Digest


class CoordinatorMessage(_Message):
    """Whom the member asks for the roll; empty: nobody."""

    coordinator: PeerId | Literal[""] = ""


State = tuple[int, str]
"""A round's number, from 0, and the digest of the state that it began with."""


class Coordinators(ServicerBase):  # type: ignore[misc]
    """Tells others whom this peer asks, and asks them.

    Attributes:
        asked: who may coordinate a round, and its state; nobody: this peer does, or looks for no group.
    """

    def __init__(self, context: RoundContext) -> None:
        self._p2p, self._namespace = context.p2p, context.manifest.swarm_id
        self.asked: tuple[str, State] = ("", (-1, ""))

    async def open(self) -> None:
        """Begin to tell."""
        await self.add_p2p_handlers(self._p2p, namespace=self._namespace)

    async def rpc_coordinator(self, request: BytesValue, context: P2PContext) -> BytesValue:
        """Whom this peer asks for the roll of a state."""
        del context
        message, (coordinator, state) = StateMessage.model_validate_json(request.value), self.asked
        told = coordinator if state == (message.round, message.state) else ""
        return BytesValue(value=CoordinatorMessage(coordinator=told).model_dump_json().encode())

    async def of_most(self, members: Sequence[str], state: State) -> str:
        """Whom most of some of these ask for the roll of ``state``; empty: nobody."""
        asked = random.sample(members, min(ASKED_MAX, len(members)))
        named = Counter(await asyncio.gather(*(self._of(each, state) for each in asked)))
        return next((each for each, count in named.items() if 2 * count > len(asked)), "")

    async def _of(self, member: str, state: State) -> str:
        """Whom this one asks; empty: nobody, or it does not say."""
        stub = self.get_stub(self._p2p, PeerID.from_base58(member), namespace=self._namespace)
        message = StateMessage(round=state[0], state=state[1])
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reply = await stub.rpc_coordinator(BytesValue(value=message.model_dump_json().encode()))
            return CoordinatorMessage.model_validate_json(reply.value).coordinator
        except Exception as error:
            # It may fail in any way that libp2p knows.
            logger.debug("%s does not say whom it asks: %r", member, error)
            return ""
