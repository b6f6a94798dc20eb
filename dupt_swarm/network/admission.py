"""Which peers a swarm admits: all, or those that its organiser has invited."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

import msgpack
from hivemind.p2p import P2PHandlerError, PeerID

from dupt_swarm.errors import AdmissionError, FileError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.limits import OPEN, Admission, Answer
from dupt_swarm.network.p2p.rpc import CallError, Callers, Refusal, rpc
from dupt_swarm.network.task_group import wait_at_most
from dupt_swarm.organiser import revocations
from dupt_swarm.organiser.invitation import Invitation, Token, read_credential
from dupt_swarm.organiser.revocations import Revocations
from dupt_swarm.replica.plain import unpack
from dupt_swarm.settings import NodeSettings

logger = logging.getLogger(__name__)


class Guests:
    """The peers that have shown a credential of this swarm, by their ids.

    An invitation admits so many peers, first come, first served; peers that saw others come first may count
    differently. How many are remembered is bounded by what the organiser signed.

    What is learnt of revocations may be learnt in threads.

    Attributes:
        revoked: the organiser's statements that this peer has seen, by the invitations that they revoke.
    """

    def __init__(self, organiser: bytes, swarm_id: str, clock: Callable[[], float] = time.time) -> None:
        """``organiser`` is the public key; ``clock`` gives seconds since the epoch."""
        self._organiser, self._swarm_id, self._clock = organiser, swarm_id, clock
        self._guests: dict[str, tuple[str, Invitation]] = {}
        self.revoked: dict[bytes, bytes] = {}
        self._learning = threading.Lock()

    def admit(self, peer_id: str, credential: str) -> str:
        """Why ``credential`` does not admit the peer; empty: it does, and is remembered."""
        shown, _ = self._guests.get(peer_id, ("", None))
        if not credential or shown == credential:
            return self.objection(peer_id)
        try:
            invitation = read_credential(credential, self._organiser, peer_id)
        except ValueError as error:
            return str(error)
        problem = self._objection_to(invitation)
        uses = sum(known.key == invitation.key for _, known in self._guests.values())
        if not problem and uses >= invitation.uses:
            problem = f"the invitation has admitted {invitation.uses} peers already"
        if not problem:
            self._guests[peer_id] = credential, invitation
        return problem

    def objection(self, peer_id: str) -> str:
        """Why the peer is not admitted at this moment; empty: it is."""
        if peer_id not in self._guests:
            return "no credential was shown"
        return self._objection_to(self._guests[peer_id][1])

    def __contains__(self, peer_id: object) -> bool:
        return isinstance(peer_id, str) and not self.objection(peer_id)

    def revoke(self, packed: bytes) -> bool:
        """Whether something is new in these statements (see `revocations.pack`); they count from now on.

        Raises:
            ValueError: one is not the organiser's.
        """
        return self._learn(revocations.unpack(packed, self._organiser, self._swarm_id, self.revoked))

    def sync(self, path: Path) -> bool:
        """Whether something is new in the file ``path``; what it lacks is added to it.

        Raises:
            ValueError: it has something else in it.
            FileError: it lacks something and cannot be written; what it has counts all the same.
        """
        kept = revocations.load(path, self._organiser, self._swarm_id, self.revoked)
        news = self._learn(kept)
        if self.revoked.keys() - kept.keys():
            revocations.add(path, self.revoked, self._organiser, self._swarm_id)
        return news

    def _learn(self, found: Revocations) -> bool:
        with self._learning:
            new = [each for each in found if each not in self.revoked]
            room = revocations.IDS_MAX - len(self.revoked)
            if len(new) > room:
                logger.warning("%d revocations are not followed: there are too many", len(new) - room)
            self.revoked = self.revoked | {each: found[each] for each in new[:room]}
            return bool(new[:room])

    def _objection_to(self, invitation: Invitation) -> str:
        if invitation.id in self.revoked:
            return "the invitation has been revoked"
        return invitation.objection(self._swarm_id, self._clock())


PRESENT_SECONDS = 10.0
PASS_ON_SECONDS = 2.0  # one peer is told again what everybody should know


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
        """Read what another peer shows.

        Raises:
            ValueError: it is malformed.
        """
        match unpack(data):
            case [str() as credential, bytes() as digest, bytes() as revoked]:
                return cls(credential, digest, revoked)
        raise ValueError("no credential")

    def pack(self) -> bytes:
        """As it travels."""
        return bytes(msgpack.packb([self.credential, self.digest, self.revoked]))


class ByInvitation(Admission):
    """Refuses who has not shown a valid credential, and calls on nobody else.

    Peers show each other their credentials once before the first call, and again when the other has
    forgotten, because it was started anew. Both learn of each other's revocations on this occasion: each
    sends a digest of those that it knows, and where the two differ, the statements themselves. A peer
    that learns something new tells everybody at once.
    """

    def __init__(self, p2p: GuardedP2P, guests: Guests, credential: str, revoked: Path | None = None) -> None:
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
        if self._follow_file():
            self._note_news()

    def objection(self, peer_id: str) -> str:
        """As inherited."""
        # Whatever others think of us, we go on.
        return "" if peer_id == self._own_id else self._guests.objection(peer_id)

    def admit(self, peer_id: str, credential: str) -> str:
        """As inherited."""
        return "" if peer_id == self._own_id else self._guests.admit(peer_id, credential)

    async def call(self, peer: PeerID, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
        """As inherited; the peer is shown our credential first, and shows its own.

        Raises:
            CallError: one of us does not admit the other.
        """
        await self._approach(peer)
        try:
            return await attempt()
        except P2PHandlerError as error:
            # hivemind's own methods do not say why they refuse.
            if isinstance(error, CallError) and error.refusal is not Refusal.NOT_INVITED:
                raise
        self._greeted.discard(peer)  # it was started anew
        await self._approach(peer)
        return await attempt()

    def refused_by(self, peer: PeerID) -> None:
        """As inherited; the next call shows our credential again."""
        self._greeted.discard(peer)

    # A credential, and whatever has been revoked.
    @rpc(
        *(Presented, Presented),
        longest=(75_000, 75_000),
        callers=Callers.ANYBODY,
        seconds=PRESENT_SECONDS,
        calls=5,
    )
    async def rpc_present(self, request: Presented, caller: str) -> Presented:
        """Take the caller's credential and revocations, and give ours."""
        if objection := self._guests.admit(caller, request.credential):
            raise self._p2p.refusal("invitation", Refusal.NOT_INVITED, objection)
        await self._take(request.revoked)
        known = self._guests.revoked
        differ = request.digest != revocations.digest(known)
        return self._presented(revocations.pack(known) if differ else b"")

    async def introduce(self, peer_ids: Sequence[str]) -> None:
        """As inherited."""
        approaching = (self._approach(PeerID.from_base58(each)) for each in peer_ids)
        outcomes = await asyncio.gather(*approaching, return_exceptions=True)
        refusals = [each for each in outcomes if _is_not_invited(each)]
        if refusals and len(refusals) == len(outcomes):
            raise AdmissionError(
                f"the swarm does not admit this peer: {refusals[0]}; "
                "ask its organiser for another invitation",
                setting="invitation",
            )

    async def keep_forever(self) -> None:
        """Follow the file of revocations, and tell others: all of a new one, and always one of them."""
        while True:
            await wait_at_most(self._news, PASS_ON_SECONDS)
            if self._file_changed:
                await self._follow()
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
        await self._take(shown.revoked)
        theirs, known = revocations.split(shown.revoked), self._guests.revoked
        if shown.digest != revocations.digest(known):
            missing = {each: statement for each, statement in known.items() if each not in theirs}
            await self._take((await self._show(peer, revocations.pack(missing))).revoked)

    async def _show(self, peer: PeerID, revoked: bytes) -> Presented:
        """Show our credential with these revocations, and admit ``peer`` by its own."""
        try:
            shown = await self._p2p.call(peer, ByInvitation.rpc_present, self._presented(revoked))
        except CallError as error:
            self._note_refusal(peer, error)
            raise
        self._see_admitted(peer, self._guests.admit(str(peer), shown.credential))
        return shown

    def _note_refusal(self, peer: PeerID, error: CallError) -> None:
        """Say once in the log why others do not admit this peer any more: it goes on alone."""
        if _is_not_invited(error) and error.detail != self._refused_for:
            logger.warning("%s does not admit this peer: %s", peer, error.detail)
            self._refused_for = error.detail

    def _see_admitted(self, peer: PeerID, objection: str) -> None:
        if objection:
            detail = f"{peer} is no peer of this swarm: {objection}"
            raise self._p2p.refusal("invitation", Refusal.NOT_ALLOWED, detail)

    def _presented(self, revoked: bytes) -> Presented:
        return Presented(self.credential, revocations.digest(self._guests.revoked), revoked)

    async def _take(self, revoked: bytes) -> None:
        """Revocations that another peer knows of: verified in a thread, as there may be many."""
        try:
            news = bool(revoked) and await asyncio.to_thread(self._guests.revoke, revoked)
        except ValueError as error:
            raise self._p2p.refusal("invitation", Refusal.NOT_INVITED, str(error)) from error
        if news:
            self._note_news()
            await self._follow()

    @property
    def _file_changed(self) -> bool:
        if self._revoked is None:
            return False
        with suppress(OSError):  # there is none
            return self._revoked.stat().st_mtime_ns != self._synced
        return False

    async def _follow(self) -> None:
        """`_follow_file` in a thread, as others may hold the file, and there may be many to verify."""
        if await asyncio.to_thread(self._follow_file):
            self._note_news()

    def _follow_file(self) -> bool:
        """Take what the file of revocations has, and add what it lacks; whether something was news."""
        if self._revoked is None:
            return False
        with suppress(OSError):
            self._synced = self._revoked.stat().st_mtime_ns
        try:
            return self._guests.sync(self._revoked)
        except (FileError, ValueError) as error:
            logger.warning("the file of revocations is not kept: %s", error)
            return False

    def _note_news(self) -> None:
        logger.info("%d invitations have been revoked", len(self._guests.revoked))
        self._news.set()


def _is_not_invited(outcome: object) -> bool:
    return isinstance(outcome, CallError) and outcome.refusal is Refusal.NOT_INVITED


def build_admission(p2p: GuardedP2P, settings: NodeSettings, manifest: Manifest) -> Admission:
    """How the peer of this daemon comes to the swarm, and lets others come.

    Whether its invitation counts is for others to say: `check_invited` tells beforehand, as far as it can.
    """
    if manifest.admission.kind == "open":
        return OPEN
    guests = Guests(bytes.fromhex(manifest.admission.organiser), manifest.swarm_id)
    p2p.limits.invited = guests  # strangers take nothing of what is theirs
    token = settings.invitation
    credential = Token.parse(token).credential(str(p2p.peer_id)) if token else ""
    return ByInvitation(p2p, guests, credential, settings.revoked)
