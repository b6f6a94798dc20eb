"""The peers that have signed what contradicts itself: kept with the proofs, also on disk, and passed on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgpack
from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.errors import FileError
from dupt_swarm.network.members.identity import NAME_BYTES, short_name
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.rpc import rpc
from dupt_swarm.replica.link import Word
from dupt_swarm.replica.plain import unpack
from dupt_swarm.replica.proof import PROOF_BYTES_MAX, Proof
from dupt_swarm.replica.signed import as_text, from_text

KEPT_MAX = 256
FILE_BYTES_MAX = 1 << 26  # most proofs have some 3 kB; two proposals of many contributions, more

logger = logging.getLogger(__name__)


class Acquaintances(Protocol):
    """The peers that this one deals with."""

    @property
    def voters(self) -> Collection[str]:
        """Ids of those who vote on the state that follows."""

    @property
    def mates(self) -> Collection[str]:
        """Ids of those who were in a group with this peer."""

    def expose(self, peer_id: str) -> None:
        """This peer has signed what contradicts itself: it is left out from now on."""


_Text = Annotated[str, Field(pattern="^[A-Za-z0-9+/=]*$", max_length=2 * PROOF_BYTES_MAX)]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    voters: Annotated[list[_Text], Field(max_length=KEPT_MAX)]
    others: Annotated[list[_Text], Field(max_length=KEPT_MAX)]


class Offences:
    """The proofs that this peer knows, one against each offender; whoever is named by one is left out.

    Keys cost nothing, and their owner may prove as much as it likes against each. So nobody's word fills the
    places with strangers: of what others pass on, only that is taken which is about a voter or about somebody
    who was in a group with this peer. A stranger harms nobody before it is one of these, and the proof is
    offered again then. When all places are taken, a voter takes that of the newest who never was one: to be
    one takes four rounds that counted. What finds no place is acted on until this process ends, and not kept.

    Attributes:
        news: set when there is a proof that was not there before.
    """

    def __init__(self, swarm_id: str, acquaintances: Acquaintances, path: Path) -> None:
        """Read ``path`` if it exists, and leave out peers that it has proofs against."""
        self._swarm_id, self._acquaintances, self._path = swarm_id, acquaintances, path
        self._voters: dict[str, Proof] = {}
        self._others: dict[str, Proof] = {}
        self.news = asyncio.Event()
        if path.exists():
            self._read(path)

    @property
    def proofs(self) -> dict[str, Proof]:
        """Those that are kept, by offender."""
        return self._voters | self._others

    @property
    def names(self) -> list[bytes]:
        """Short names of the offenders."""
        return list(map(short_name, self.proofs))

    def find(self, names: Collection[bytes]) -> list[Proof]:
        """The proofs against those of these names."""
        return [proof for peer, proof in self.proofs.items() if short_name(peer) in names]

    def wanted(self, names: Collection[bytes]) -> list[bytes]:
        """The names that this peer would take a proof against."""
        unknown = set(names).difference(self.names)
        if not unknown:
            return []
        self._note_voters()
        return [
            name
            for peer in self._known
            if (name := short_name(peer)) in unknown and self._has_place_for(peer)
        ]

    def expose(self, proofs: Iterable[Proof]) -> None:
        """Leave the offenders out, and keep the proofs where there is a place."""
        before = self.proofs
        self._note_voters()
        for proof in proofs:
            if proof.offender not in self.proofs:
                logger.warning("%s has contradicted itself: it is left out from now on", proof.offender)
                self._acquaintances.expose(proof.offender)
                self._keep(proof)
        if self.proofs != before:
            self.news.set()
            self._save()

    def expose_by(self, one: Word, other: Word) -> None:
        """Leave out whoever has signed these two words, which contradict each other."""
        self.expose([Proof.of(one, other)])

    def take(self, proofs: Iterable[Proof]) -> None:
        """What others pass on; what is about strangers is dropped."""
        known = self._known
        self.expose([proof for proof in proofs if proof.offender in known])

    @property
    def concerned(self) -> set[str]:
        """Ids of those that may be in a group with this peer and an offender."""
        return self._known.difference(self.proofs)

    @property
    def _known(self) -> set[str]:
        return {*self._acquaintances.voters, *self._acquaintances.mates}

    def _keep(self, proof: Proof) -> None:
        if not self._has_place_for(proof.offender):
            return
        if proof.offender not in self._acquaintances.voters:
            self._others[proof.offender] = proof
            return
        if len(self.proofs) >= KEPT_MAX:
            self._others.popitem()
        self._voters[proof.offender] = proof

    def _note_voters(self) -> None:
        """A peer that was no voter when it was exposed may have become one, where nobody knew."""
        for peer_id in [peer for peer in self._others if peer in self._acquaintances.voters]:
            self._voters[peer_id] = self._others.pop(peer_id)

    def _has_place_for(self, peer_id: str) -> bool:
        rivals = self._voters if peer_id in self._acquaintances.voters else self.proofs
        return len(rivals) < KEPT_MAX

    def _read(self, path: Path) -> None:
        """Take what is in the file; one that is damaged is set aside, as it must not end a start."""
        try:
            if path.stat().st_size > FILE_BYTES_MAX:
                raise ValueError("it is too long")
            kept = _File.model_validate_json(path.read_bytes())
            self._voters = self._checked(kept.voters)
            self._others = self._checked(kept.others)
            if len(self.proofs) > KEPT_MAX:
                raise ValueError("there are too many proofs in it")
        except (OSError, ValueError) as error:
            self._voters, self._others = {}, {}
            aside = path.with_name(f"{path.name}.damaged")
            with contextlib.suppress(OSError):
                path.replace(aside)
            logger.warning(
                "%s is damaged, and set aside as %s; others may tell again what it said: %s",
                *(path, aside.name, error),
            )
        for peer_id in self.proofs:
            self._acquaintances.expose(peer_id)
        if self.proofs:
            logger.info("known to have contradicted themselves, and left out: %d", len(self.proofs))

    def _checked(self, texts: Iterable[str]) -> dict[str, Proof]:
        proofs = (Proof.read(from_text(text), self._swarm_id) for text in texts)
        return {proof.offender: proof for proof in proofs}

    def _save(self) -> None:
        voters, others = (
            [as_text(proof.data) for proof in some.values()] for some in (self._voters, self._others)
        )
        text = _File(voters=voters, others=others).model_dump_json(indent=1)
        try:
            write_atomically(self._path, lambda file: file.write_text(text))
        except FileError as error:
            logger.warning("who has contradicted itself is not kept: %s", error)


ASK_SECONDS, ANSWER_SECONDS = 4.0, 5.0
PROOFS_MAX = 16  # in a message; whoever lacks more is told the rest later
ASKED_MAX = 16  # at once; each of them asks as many
MESSAGE_BYTES_MAX = PROOF_BYTES_MAX


@dataclass(frozen=True)
class ProofsMessage:
    """What two peers tell each other, in a request as in an answer.

    Attributes:
        known: names of those that the sender has a proof against.
        wanted: names of those that it would like to have one against.
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
        tree = unpack(data, KEPT_MAX)
        if not isinstance(tree, list) or len(tree) != 3:
            raise ValueError("not a message about proofs")
        known, wanted = _names_in(tree[0], KEPT_MAX), _names_in(tree[1], PROOFS_MAX)
        proofs = _list_in(tree[2], PROOFS_MAX)
        return cls(known, wanted, tuple(each if isinstance(each, bytes) else b"" for each in proofs))


class Accusing:
    """Tells others which peers this one has proofs against; gives and takes those that one of the two lacks.

    Names come first, so that nothing is sent twice. A peer that asks brings as well as takes: it may be the
    only one that saw both words, and one that nobody can call.
    """

    def __init__(self, p2p: GuardedP2P, swarm_id: str, offences: Offences) -> None:
        self._p2p, self._swarm_id, self._offences = p2p, swarm_id, offences

    # 256 names; 16 proofs, whose signatures are checked
    @rpc(ProofsMessage, ProofsMessage, longest=(180_000, 180_000), seconds=ANSWER_SECONDS, calls=10)
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

    async def ask_forever(self, partners: Callable[[], Awaitable[Collection[str]]]) -> None:
        """Every few seconds ask those that ``partners`` names then; whoever fails does so alone."""
        while True:
            await asyncio.sleep(ASK_SECONDS * random.uniform(0.5, 1.5))
            with contextlib.suppress(Exception):  # p2pd may be about to be replaced
                await asyncio.gather(*map(self.ask, await partners()), return_exceptions=True)

    async def spread_forever(self) -> None:
        """Pass on what is new at once: as long as only some leave an offender out, groups fall apart."""
        while True:
            await self._offences.news.wait()
            self._offences.news.clear()
            others = list(self._offences.concerned - {str(self._p2p.peer_id)})
            some = random.sample(others, min(len(others), ASKED_MAX))
            await asyncio.gather(*map(self.ask, some), return_exceptions=True)

    def _answer_to(self, told: ProofsMessage) -> ProofsMessage:
        offences = self._offences
        return ProofsMessage(
            known=tuple(offences.names),
            wanted=tuple(offences.wanted(told.known)[:PROOFS_MAX]),
            proofs=_as_many(offences.find(told.wanted)),
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


def _as_many(proofs: Iterable[Proof]) -> tuple[bytes, ...]:
    """As many of them as fit into a message."""
    found: list[bytes] = []
    for proof in proofs:
        if len(found) == PROOFS_MAX:
            break
        if sum(map(len, found)) + len(proof.data) > MESSAGE_BYTES_MAX:
            continue
        found.append(proof.data)
    return tuple(found)


def _names_in(tree: object, most: int) -> tuple[bytes, ...]:
    names = _list_in(tree, most)
    if not all(isinstance(name, bytes) and len(name) == NAME_BYTES for name in names):
        raise ValueError("not a list of names")
    return tuple(names)


def _list_in(tree: object, most: int) -> list[Any]:
    if not isinstance(tree, list) or len(tree) > most:
        raise ValueError("not a list, or too long a one")
    return tree
