"""Proofs passed on directly between peers that know each other, as records are."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgpack

from dupt_swarm.network.averaging.offences import KEPT_MAX, Offences
from dupt_swarm.network.averaging.proof import Proof
from dupt_swarm.network.members.short_names import NAME_BYTES
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.plain_msgpack import unpack
from dupt_swarm.network.p2p.rpc import rpc

ANSWER_SECONDS = 5.0
PROOFS_MAX = 16  # in a message; whoever lacks more is told the rest later

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProofsMessage:
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
    def read(cls, data: bytes) -> ProofsMessage:
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


class Accusing:
    """Tells others against whom this peer has proofs, and gives and takes those that one of the two lacks.

    Names come first, so that nothing is sent twice. Who asks brings as well as takes: it may be the only one
    that saw both votes, and one that nobody can call.
    """

    def __init__(self, p2p: GuardedP2P, swarm_id: str, offences: Offences) -> None:
        self._p2p, self._swarm_id, self._offences = p2p, swarm_id, offences

    async def start(self) -> None:
        """Begin to answer other peers."""
        await self._p2p.serve(self)

    # 256 names; 16 proofs, whose signatures are checked
    @rpc(ProofsMessage, ProofsMessage, longest=(80_000, 80_000), seconds=ANSWER_SECONDS, calls=10)
    async def rpc_proofs(self, request: ProofsMessage, caller: str) -> ProofsMessage:
        """Take the proofs that the caller brings, and give those that it wants."""
        del caller
        self._take(request.proofs)
        return self._answer_to(request)

    async def ask(self, peer_id: str) -> None:
        """Bring ``peer_id`` and this peer to know the same.

        Raises:
            CallError: it does not answer, or with nonsense.
        """
        greeting = ProofsMessage(known=tuple(self._offences.names))
        mine = self._answer_to(await self._p2p.call(peer_id, Accusing.rpc_proofs, greeting))
        if mine.wanted or mine.proofs:
            self._take((await self._p2p.call(peer_id, Accusing.rpc_proofs, mine)).proofs)

    def _answer_to(self, told: ProofsMessage) -> ProofsMessage:
        offences = self._offences
        return ProofsMessage(
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
