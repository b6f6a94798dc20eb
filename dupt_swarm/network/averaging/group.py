"""The group of a round that shares its contributions: who is in it, and who brings what."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.network.averaging.pledge import Accepting, Proof, Subject
from dupt_swarm.network.averaging.reports import Acceptance, Decision, Places, suffices
from dupt_swarm.network.averaging.roll import Roll, Statement
from dupt_swarm.replica.draw import drawn
from dupt_swarm.replica.voters import Voters


@dataclass(frozen=True)
class SharingGroup:
    """The members by place, in the order of their peer ids, so that contributions have one order for all.

    Attributes:
        swarm_id: of the swarm.
        roll: who they are.
        voters: of the state that the round begins with.
    """

    swarm_id: str
    roll: Roll
    voters: Voters

    @property
    def group_id(self) -> str:
        """Hexadecimal."""
        return self.roll.id

    @property
    def statements(self) -> tuple[Statement, ...]:
        """One of each member."""
        return self.roll.statements

    @property
    def members(self) -> list[str]:
        """Peer ids."""
        return self.roll.members

    @cached_property
    def digests(self) -> list[str]:
        """Of the contributions."""
        return [each.digest for each in self.statements]

    @cached_property
    def electors(self) -> frozenset[int]:
        """The places of those of whom more than half decide which contributions count.

        They are the voters among them; strangers do not hold up a round, unless there are only such.
        """
        voters = frozenset(place for place, peer in enumerate(self.members) if peer in self.voters)
        return voters or frozenset(range(len(self.members)))

    @cached_property
    def order(self) -> list[int]:
        """The places of those who coordinate the agreement, in an order that nobody chooses.

        They are of those who decide, as far as these can be called.
        """
        callable = {place for place, each in enumerate(self.statements) if each.callable}
        peers = (self.members[place] for place in callable & self.electors or callable)
        return [self.members.index(peer) for peer in drawn(peers, self.roll.lot)]

    def sign(self, me: str, key: RSAPrivateKey, acceptance: Acceptance) -> bytes:
        """It, with the signature of the owner of ``key``, whose peer id is ``me``."""
        subject = self._subject(acceptance.after)
        return Accepting.sign(subject, self._digest(acceptance.ballot, acceptance.choice), me, key).data

    def check_acceptance(self, place: int, acceptance: Acceptance) -> None:
        """Whether the member at ``place`` has signed it.

        Raises:
            ValueError: it has not.
        """
        if self._read(place, acceptance).subject != self._subject(acceptance.after):
            raise ValueError("an acceptance after another one")

    def check_decision(self, decision: Decision) -> None:
        """Whether more than half of the electors have signed that they accepted this list, and it may be one.

        Raises:
            ValueError: it is not so.
        """
        if not suffices(decision.choice, self.electors):
            raise ValueError("a list of few of the voters' contributions")
        if not self.electors.issuperset(decision.accepted):
            raise ValueError("a list that others than electors have accepted")
        if 2 * len(decision.accepted) <= len(self.electors):
            raise ValueError("a list that not more than half have accepted")
        for place, signed in zip(decision.accepted, decision.signed, strict=True):
            found = self._read(place, Acceptance(decision.ballot, decision.choice, signed=signed))
            if decision.ballot == 0 and found.subject != self._subject(None):
                raise ValueError("an acceptance after another one, in the first ballot")

    def _read(self, place: int, acceptance: Acceptance) -> Accepting:
        found = Accepting.read(acceptance.signed)
        if (found.maker, found.digest) != (
            self.members[place],
            self._digest(acceptance.ballot, acceptance.choice),
        ):
            raise ValueError("an acceptance of something else, or of somebody else")
        subject = self._subject(None)
        if replace(found.subject, roll=found.subject.roll[: len(subject.roll)]) != subject:
            raise ValueError("an acceptance in another group")
        return found

    def _subject(self, after: tuple[int, Places] | None) -> Subject:
        """An elector accepts one list as its first, and one after each: so it cannot deny any."""
        claim, before = self.roll.claim, "" if after is None else self._digest(*after)[: len(self.group_id)]
        return Subject(self.swarm_id, self.group_id + before, claim.round, claim.state)

    def _digest(self, ballot: int, choice: Places) -> str:
        """Of a list: of its makers, as anybody may state the digest of another's contribution."""
        text = " ".join([str(ballot), *(self.members[place] for place in choice)])
        return hashlib.sha256(text.encode()).hexdigest()


def contradictions(one: Decision, other: Decision) -> list[Proof]:
    """Against each elector that has accepted both of two lists, neither after the other; see `Proof`.

    As more than half have accepted each, somebody has accepted both. If the lists are of two ballots, it may
    honestly have done so: where the coordinator of the later one has ignored what binds it.
    """
    mine, theirs = (dict(zip(each.accepted, each.signed, strict=True)) for each in (one, other))
    both = [
        (Accepting.read(mine[place]), Accepting.read(theirs[place]))
        for place in sorted(mine.keys() & theirs.keys())
    ]
    return [
        Proof.of(first, second)
        for first, second in both
        if first.subject == second.subject and first.digest != second.digest
    ]
