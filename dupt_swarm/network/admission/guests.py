"""Who may come to a swarm that admits by invitation, as far as this peer has seen."""

from __future__ import annotations

import time
from collections.abc import Callable

from dupt_swarm.organiser.invitation import Invitation, read_credential
from dupt_swarm.organiser.revocations import Revocations


class Guests:
    """The peers that have shown a credential of this swarm, by their ids.

    An invitation admits so many peers, first come, first served; peers that saw others come first may count
    differently. How many are remembered is bounded by what the organiser signed.

    Attributes:
        revocations: the newest list that this peer has seen.
    """

    def __init__(self, organiser: bytes, swarm_id: str, clock: Callable[[], float] = time.time) -> None:
        """``organiser`` is the public key; ``clock`` gives seconds since the epoch."""
        self._organiser, self._swarm_id, self._clock = organiser, swarm_id, clock
        self._guests: dict[str, tuple[str, Invitation]] = {}
        self.revocations = Revocations()

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

    def revoke(self, signed: bytes) -> bool:
        """Whether this is a newer list of revocations, which counts from now on.

        Raises:
            ValueError: it is not the organiser's.
        """
        if signed == self.revocations.signed:
            return False
        other = Revocations.read(signed, self._organiser, self._swarm_id)
        if other.counter <= self.revocations.counter:
            return False
        self.revocations = other
        return True

    def _objection_to(self, invitation: Invitation) -> str:
        if invitation.id in self.revocations.ids:
            return "the invitation has been revoked"
        return invitation.objection(self._swarm_id, self._clock())

    def _uses(self, invitation: Invitation, but: str) -> int:
        """How many others came by it."""
        others = (known for peer_id, (_, known) in self._guests.items() if peer_id != but)
        return sum(known.key == invitation.key for known in others)
