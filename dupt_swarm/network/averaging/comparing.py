"""Receipts compared by members that come to two states: who of the reducers has told them two averages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2P, P2PContext, PeerID, ServicerBase
from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.network.averaging.proof import Proof
from dupt_swarm.network.averaging.receipt import Receipt
from dupt_swarm.network.averaging.roll import Roll
from dupt_swarm.network.members.signed import as_text, from_text
from dupt_swarm.replica.log_entry import MEMBERS_MAX, Digest, Signed

ASKED_MAX = 4  # at once
COMPARE_SECONDS = 2.0
RECEIPTS_MAX = 16  # in an answer
ROLLS_MAX = 4  # others may be slower to see that they are outvoted

logger = logging.getLogger(__name__)


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class CompareMessage(_Message):
    """The ids of the receipts that a member has of its group."""

    roll: Annotated[str, Field(pattern="^[0-9a-f]{2,80}$")]
    known: Annotated[list[Digest], Field(max_length=MEMBERS_MAX)]


class ReceiptsMessage(_Message):
    """Receipts that it has not."""

    receipts: Annotated[list[Signed], Field(max_length=RECEIPTS_MAX)]


async def ask_some(
    roll: Roll, others: Container[str], ask: Callable[[str], Awaitable[list[Proof]]]
) -> list[Proof]:
    """What a few of ``others``, members of the group of ``roll``, prove: one proof against each offender."""
    asked = [each.maker for each in roll.drawn if each.callable and each.maker in others][:ASKED_MAX]
    found = await asyncio.gather(*map(ask, asked))
    return list({proof.offender: proof for proofs in found for proof in proofs}.values())


@dataclass(frozen=True)
class _Kept:
    members: frozenset[str]
    receipts: Mapping[str, Receipt]  # by reducer


class Comparing(ServicerBase):  # type: ignore[misc]
    """Asks members of our groups for receipts that differ from ours, and answers those who ask."""

    def __init__(self, p2p: P2P, swarm_id: str) -> None:
        self._p2p, self._namespace = p2p, swarm_id
        self._kept: dict[str, _Kept] = {}  # by roll

    async def start(self) -> None:
        """Begin to answer."""
        await self.add_p2p_handlers(self._p2p, namespace=self._namespace)

    def keep(self, roll: Roll, receipts: Mapping[str, Receipt]) -> None:
        """What the reducers of this group have signed here, each for its share."""
        self._kept[roll.id] = _Kept(frozenset(roll.members), receipts)
        for roll_id in list(self._kept)[:-ROLLS_MAX]:
            del self._kept[roll_id]

    async def compare(self, roll: Roll, others: Collection[str]) -> list[Proof]:
        """Ask a few of ``others``, members of the group of ``roll``, in an order that nobody chooses.

        Returns:
            One proof against each reducer that has signed two receipts. Whoever is silent, or tells nonsense,
            is left out.
        """
        return await ask_some(roll, others, lambda peer: self._ask(peer, roll.id))

    async def rpc_receipts(self, request: BytesValue, context: P2PContext) -> BytesValue:
        """Those that a member of one of our groups has not."""
        message = CompareMessage.model_validate_json(request.value)
        kept = self._kept[message.roll]
        if str(context.remote_id) not in kept.members:
            raise ValueError("receipts of another group")
        new = [as_text(each.data) for each in kept.receipts.values() if each.id not in message.known]
        return BytesValue(value=ReceiptsMessage(receipts=new[:RECEIPTS_MAX]).model_dump_json().encode())

    async def _ask(self, peer: str, roll_id: str) -> list[Proof]:
        mine = self._kept[roll_id].receipts
        message = CompareMessage(roll=roll_id, known=[each.id for each in mine.values()])
        stub = self.get_stub(self._p2p, PeerID.from_base58(peer), namespace=self._namespace)
        try:
            async with asyncio.timeout(COMPARE_SECONDS):
                reply = await stub.rpc_receipts(BytesValue(value=message.model_dump_json().encode()))
            return self._proofs(mine, ReceiptsMessage.model_validate_json(reply.value).receipts)
        except Exception as error:
            # It may fail in any way that libp2p knows.
            logger.debug("%s tells no receipts: %r", peer, error)
            return []

    def _proofs(self, mine: Mapping[str, Receipt], told: Iterable[str]) -> list[Proof]:
        """What those that we were told prove; each that proves nothing is dropped alone."""
        proofs = []
        for text in told:
            try:
                other = Receipt.read(from_text(text))
                if other.maker in mine:
                    proofs.append(Proof.of(mine[other.maker], other))
            except ValueError as error:
                logger.debug("a receipt is refused: %s", error)
                self._p2p.refused["form"] += 1
        return proofs
