"""Who may come to a swarm that admits by invitation, as far as this peer has seen."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from dupt_swarm.organiser import revocations
from dupt_swarm.organiser.invitation import Invitation, read_credential
from dupt_swarm.organiser.revocations import Revocations

logger = logging.getLogger(__name__)


class Guests:
    """The peers that have shown a credential of this swarm, by their ids.

    An invitation admits so many peers, first come, first served; peers that saw others come first may count
    differently. How many are remembered is bounded by what the organiser signed.

    Attributes:
        revoked: the organiser's statements that this peer has seen, by the invitations that they revoke.
    """

    def __init__(self, organiser: bytes, swarm_id: str, clock: Callable[[], float] = time.time) -> None:
        """``organiser`` is the public key; ``clock`` gives seconds since the epoch."""
        self._organiser, self._swarm_id, self._clock = organiser, swarm_id, clock
        self._guests: dict[str, tuple[str, Invitation]] = {}
        self.revoked: dict[bytes, bytes] = {}

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
        if not problem and self._uses(invitation, peer_id) >= invitation.uses:
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
        new = [each for each in found if each not in self.revoked]
        room = revocations.IDS_MAX - len(self.revoked)
        if len(new) > room:
            logger.warning("%d revocations are not followed: there are too many", len(new) - room)
        self.revoked |= {each: found[each] for each in new[:room]}
        return bool(new[:room])

    def _objection_to(self, invitation: Invitation) -> str:
        if invitation.id in self.revoked:
            return "the invitation has been revoked"
        return invitation.objection(self._swarm_id, self._clock())

    def _uses(self, invitation: Invitation, but: str) -> int:
        """How many others came by it."""
        others = (known for peer_id, (_, known) in self._guests.items() if peer_id != but)
        return sum(known.key == invitation.key for known in others)
