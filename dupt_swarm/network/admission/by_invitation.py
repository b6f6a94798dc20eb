"""Admission by invitation: peers show each other their credentials before anything else.

Once to each peer before the first call, and again when that has forgotten, because it was started anew. Both
learn of each other's revocations on this occasion: each sends a digest of those that it knows, and where the
two differ, the statements themselves. Who learns something new tells everybody at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import msgpack
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2P, P2PContext, P2PHandlerError, PeerID, ServicerBase

from dupt_swarm.command_line.printable import one_line
from dupt_swarm.errors import AdmissionError, FileError
from dupt_swarm.network.admission.admission import Admission, Reply
from dupt_swarm.network.admission.guests import Guests
from dupt_swarm.network.p2p.frames import RefusedError
from dupt_swarm.network.p2p.lengths import METHODS
from dupt_swarm.network.p2p.plain_msgpack import unpack
from dupt_swarm.organiser import revocations
from dupt_swarm.organiser.invitation import TEXT_CHARS_MAX

# What strangers may call: who joins does not know yet whether this swarm wants invitations.
OPEN_METHODS = ("rpc_hello", "rpc_present")
# In whatever is said to a caller that is not admitted: it then shows its credential, if it has one.
NOT_INVITED = "not invited"
PRESENTED_BYTES_MAX = METHODS["rpc_present"].request
PRESENT_SECONDS = 10.0
PASS_ON_SECONDS = 2.0  # one peer is told again what everybody should know
_REASON = re.compile(rf"{NOT_INVITED}: (?P<reason>[\w ,.-]{{1,200}})")

logger = logging.getLogger(__name__)


class ByInvitation(ServicerBase, Admission):  # type: ignore[misc]
    """Refuses who has not shown a valid credential, and calls on nobody else."""

    def __init__(self, p2p: P2P, guests: Guests, credential: str, revoked: Path | None = None) -> None:
        """
        Args:
            p2p: the own daemon.
            guests: those who were admitted; this peer is one of them, or becomes it here.
            credential: its own.
            revoked: a file with the organiser's revocations, followed as it changes, and added to.
        """
        self._p2p, self._guests, self.credential, self._revoked = p2p, guests, credential, revoked
        self._own_id = str(p2p.peer_id)
        self._greeted: set[PeerID] = set()
        self._greeting: WeakValueDictionary[PeerID, asyncio.Lock] = WeakValueDictionary()
        self._news = asyncio.Event()
        self._refused_for = ""
        self._synced: int | None = None  # the file's time of change
        guests.admit(self._own_id, credential)
        self._follow_file()

    def objection(self, peer_id: str, method: str = "") -> str:
        """As inherited."""
        if _is_open(method) or peer_id == self._own_id:  # whatever others think of us, we go on
            return ""
        objection = self._guests.objection(peer_id)
        return f"{NOT_INVITED}: {objection}" if objection else ""

    def admit(self, peer_id: str, credential: str) -> str:
        """As inherited."""
        return "" if peer_id == self._own_id else self._guests.admit(peer_id, credential)

    async def call(self, peer: PeerID, method: str, attempt: Callable[[], Awaitable[Reply]]) -> Reply:
        """As inherited; the peer is shown our credential first, and shows its own.

        Raises:
            P2PHandlerError: one of us does not admit the other.
        """
        if _is_open(method):
            return await attempt()
        await self._approach(peer)
        try:
            return await attempt()
        except P2PHandlerError as error:
            if NOT_INVITED not in str(error):
                raise
        self._greeted.discard(peer)  # it was started anew
        await self._approach(peer)
        return await attempt()

    async def watch(self, peer: PeerID, replies: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """As inherited; if it refuses us, the next call shows our credential again."""
        try:
            async with aclosing(replies):
                async for reply in replies:
                    yield reply
        except P2PHandlerError as error:
            if NOT_INVITED in str(error):
                self._greeted.discard(peer)
            raise

    async def start(self) -> None:
        """As inherited."""
        await self.add_p2p_handlers(self._p2p)

    async def rpc_present(self, request: BytesValue, context: P2PContext) -> BytesValue:
        """Take the caller's credential and revocations, and give ours.

        Raises:
            RefusedError: it is not admitted.
            ValueError: the request is malformed.
        """
        shown = Presented.read(request.value)
        if objection := self._guests.admit(str(context.remote_id), shown.credential):
            raise self._refusal(f"{NOT_INVITED}: {objection}")
        self._take(shown.revoked)
        known = self._guests.revoked
        differ = shown.digest != revocations.digest(known)
        return BytesValue(value=self._presented(revocations.pack(known) if differ else b""))

    async def introduce(self, peer_ids: Sequence[str]) -> None:
        """As inherited."""
        approaching = (self._approach(PeerID.from_base58(each)) for each in peer_ids)
        outcomes = await asyncio.gather(*approaching, return_exceptions=True)
        refusals = [str(each) for each in outcomes if each is not None and NOT_INVITED in str(each)]
        if refusals and len(refusals) == len(outcomes):
            reason = reason_in(refusals[0])
            raise AdmissionError(
                f"the swarm does not admit this peer: {reason}; ask its organiser for another invitation",
                setting="invitation",
            )

    async def keep_forever(self) -> None:
        """Follow the file of revocations, and tell others: all of a new one, and always one of them."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(PASS_ON_SECONDS):
                    await self._news.wait()
            if self._file_changed:
                self._follow_file()
            everybody = self._news.is_set()
            self._news.clear()
            with suppress(Exception):  # p2pd may be about to be replaced
                await self._tell(everybody)

    async def _tell(self, everybody: bool) -> None:
        connected = [peer.peer_id for peer in await self._p2p.list_peers()]
        admitted = [peer for peer in connected if not self._guests.objection(str(peer))]
        told = admitted if everybody else random.sample(admitted, min(1, len(admitted)))
        await asyncio.gather(*map(self._present_to, told), return_exceptions=True)

    async def _approach(self, peer: PeerID) -> None:
        lock = self._greeting.setdefault(peer, asyncio.Lock())
        async with lock:  # many calls may begin at once
            if peer not in self._greeted:
                await self._present_to(peer)
                self._greeted.add(peer)
        self._see_admitted(peer, self._guests.objection(str(peer)))  # it may have been revoked since then

    async def _present_to(self, peer: PeerID) -> None:
        """Show our credential, and come to know the same revocations as ``peer``, in two calls at most."""
        shown = await self._show(peer, b"")
        self._take(shown.revoked)
        theirs, known = revocations.split(shown.revoked), self._guests.revoked
        if shown.digest != revocations.digest(known):
            missing = {each: statement for each, statement in known.items() if each not in theirs}
            self._take((await self._show(peer, revocations.pack(missing))).revoked)

    async def _show(self, peer: PeerID, revoked: bytes) -> Presented:
        """Show our credential with these revocations, and admit ``peer`` by its own."""
        try:
            async with asyncio.timeout(PRESENT_SECONDS):
                request = BytesValue(value=self._presented(revoked))
                reply = await self.get_stub(self._p2p, peer).rpc_present(request)
        except P2PHandlerError as error:
            self._note_refusal(peer, str(error))
            raise
        shown = Presented.read(reply.value)
        self._see_admitted(peer, self._guests.admit(str(peer), shown.credential))
        return shown

    def _note_refusal(self, peer: PeerID, message: str) -> None:
        """Say once in the log why others do not admit this peer any more: it goes on alone."""
        reason = reason_in(message)
        if NOT_INVITED in message and reason != self._refused_for:
            logger.warning("%s does not admit this peer: %s", peer, reason)
            self._refused_for = reason

    def _see_admitted(self, peer: PeerID, objection: str) -> None:
        if objection:
            raise self._refusal(f"{peer} is no peer of this swarm: {objection}")

    def _refusal(self, message: str) -> RefusedError:
        self._p2p.refused["invitation"] += 1
        return RefusedError(message)

    def _presented(self, revoked: bytes) -> bytes:
        return Presented(self.credential, revocations.digest(self._guests.revoked), revoked).to_bytes()

    def _take(self, revoked: bytes) -> None:
        """Revocations that another peer knows of."""
        try:
            news = self._guests.revoke(revoked)
        except ValueError as error:
            raise self._refusal(str(error)) from error
        if news:
            self._note_news()
            self._follow_file()

    @property
    def _file_changed(self) -> bool:
        if self._revoked is None:
            return False
        with suppress(OSError):  # there is none
            return self._revoked.stat().st_mtime_ns != self._synced
        return False

    def _follow_file(self) -> None:
        """Take what the file of revocations has, and add what it lacks."""
        if self._revoked is None:
            return
        with suppress(OSError):
            self._synced = self._revoked.stat().st_mtime_ns
        try:
            if self._guests.sync(self._revoked):
                self._note_news()
        except (FileError, ValueError) as error:
            logger.warning("the file of revocations is not kept: %s", error)

    def _note_news(self) -> None:
        logger.info("%d invitations have been revoked", len(self._guests.revoked))
        self._news.set()


@dataclass(frozen=True)
class Presented:
    """What peers show each other; nothing in it is checked.

    Attributes:
        credential: as of `organiser.invitation`.
        digest: of all revocations that the peer knows.
        revoked: statements that the other may lack, as of `revocations.pack`.
    """

    credential: str
    digest: bytes
    revoked: bytes

    @classmethod
    def read(cls, data: bytes) -> Presented:
        """Read it as it was sent.

        Raises:
            ValueError: it is malformed.
        """
        if len(data) > PRESENTED_BYTES_MAX:
            raise ValueError("a credential is too long")
        match unpack(data):
            case [str() as credential, bytes() as digest, bytes() as revoked] if (
                len(credential) <= TEXT_CHARS_MAX and len(revoked) <= revocations.BYTES_MAX
            ):
                return cls(credential, digest, revoked)
        raise ValueError("no credential")

    def to_bytes(self) -> bytes:
        """As it is sent."""
        return bytes(msgpack.packb([self.credential, self.digest, self.revoked]))


def reason_in(message: str) -> str:
    """Why a peer says that it does not admit this one; hivemind puts its own words around it."""
    found = _REASON.search(message)
    return found["reason"] if found else one_line(message)


def _is_open(method: str) -> bool:
    return method.rpartition(".")[2] in OPEN_METHODS
