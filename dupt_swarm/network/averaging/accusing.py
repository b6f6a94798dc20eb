"""Proofs passed on directly between peers that know each other, as records are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgpack
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2P, P2PContext, PeerID, ServicerBase

from dupt_swarm.network.averaging.offences import KEPT_MAX, Offences
from dupt_swarm.network.averaging.proof import Proof
from dupt_swarm.network.members.short_names import NAME_BYTES
from dupt_swarm.network.p2p.plain_msgpack import unpack

ANSWER_SECONDS = 5.0
PROOFS_MAX = 16  # in a message; whoever lacks more is told the rest later

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Message:
    """What two peers tell each other, in a request as in an answer.

    Attributes:
        known: names of those against whom the sender has a proof.
        wanted: names of those against whom it would like to have one.
        proofs: that the other one wanted, still to be checked; empty: what was there cannot be one.
    """

    known: tuple[bytes, ...] = ()
    wanted: tuple[bytes, ...] = ()
    proofs: tuple[bytes, ...] = ()

    def pack(self) -> bytes:
        """As it travels."""
        return bytes(msgpack.packb([self.known, self.wanted, self.proofs]))

    @classmethod
    def read(cls, data: bytes) -> Message:
        """Read another peer's; a proof in it that is malformed spoils no others.

        Raises:
            ValueError: it is malformed, or there is more in it than may be.
        """
        tree = unpack(data)
        if not isinstance(tree, list) or len(tree) != 3:
            raise ValueError("not a message about proofs")
        known, wanted = _names_in(tree[0], KEPT_MAX), _names_in(tree[1], PROOFS_MAX)
        proofs = _list_in(tree[2], PROOFS_MAX)
        return cls(known, wanted, tuple(each if isinstance(each, bytes) else b"" for each in proofs))


class Accusing(ServicerBase):  # type: ignore[misc]
    """Tells others against whom this peer has proofs, and gives and takes those that one of the two lacks.

    Names come first, so that nothing is sent twice. Who asks brings as well as takes: it may be the only one
    that saw both votes, and one that nobody can call.
    """

    def __init__(self, p2p: P2P, swarm_id: str, offences: Offences) -> None:
        self._p2p, self._swarm_id, self._offences = p2p, swarm_id, offences

    async def start(self) -> None:
        """Begin to answer other peers."""
        await self.add_p2p_handlers(self._p2p)

    async def rpc_proofs(self, request: BytesValue, _context: P2PContext) -> BytesValue:
        """Take the proofs that the caller brings, and give those that it wants.

        Raises:
            ValueError: the request is malformed.
        """
        told = Message.read(request.value)
        self._take(told.proofs)
        return BytesValue(value=self._answer_to(told).pack())

    async def ask(self, peer_id: str) -> None:
        """Bring ``peer_id`` and this peer to know the same.

        Raises:
            Exception: it does not answer, or with nonsense; libp2p has many types of its own.
        """
        async with asyncio.timeout(ANSWER_SECONDS):
            mine = self._answer_to(await self._call(peer_id, Message(known=tuple(self._offences.names))))
            if mine.wanted or mine.proofs:
                self._take((await self._call(peer_id, mine)).proofs)

    async def _call(self, peer_id: str, message: Message) -> Message:
        stub = self.get_stub(self._p2p, PeerID.from_base58(peer_id))
        reply = await stub.rpc_proofs(BytesValue(value=message.pack()))
        try:
            return Message.read(reply.value)
        except ValueError:
            self._p2p.refused["form"] += 1
            raise

    def _answer_to(self, told: Message) -> Message:
        offences = self._offences
        return Message(
            known=tuple(offences.names),
            wanted=tuple(offences.wanted(told.known)[:PROOFS_MAX]),
            proofs=tuple(proof.data for proof in offences.find(told.wanted)[:PROOFS_MAX]),
        )

    def _take(self, proofs: Iterable[bytes]) -> None:
        """Check them; each that proves nothing is dropped alone."""
        valid = []
        for data in proofs:
            try:
                valid.append(Proof.read(data, self._swarm_id))
            except ValueError as error:
                logger.debug("a proof is refused: %s", error)
                self._p2p.refused["form"] += 1
        self._offences.take(valid)


def _names_in(tree: object, most: int) -> tuple[bytes, ...]:
    names = _list_in(tree, most)
    if not all(isinstance(name, bytes) and len(name) == NAME_BYTES for name in names):
        raise ValueError("not a list of names")
    return tuple(names)


def _list_in(tree: object, most: int) -> list[Any]:
    if not isinstance(tree, list) or len(tree) > most:
        raise ValueError("not a list, or too long a one")
    return tree
