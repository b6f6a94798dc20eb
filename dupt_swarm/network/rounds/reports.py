"""What members tell each other while they decide what follows a state.

Members only ask, so nobody has to be able to call them: a `Report` goes to the coordinator, an `Answer` comes
back. Both say all that there is to say, each time, so it does no harm when one is lost, late or repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

from dupt_swarm.replica.link import Acceptance, Link, Promise, Proposal, Word


@dataclass(frozen=True)
class Pace:
    """How long members wait for one another, in seconds.

    Attributes:
        gather: for the last ones, once a quorum has come.
        exchange: for contributions, once all have come.
        silence: for a peer that does not answer.
    """

    gather: float
    exchange: float
    silence: float


@dataclass(frozen=True)
class Report:
    """What a member tells the coordinator of its ballot.

    Attributes:
        promise: its word for this ballot.
        basis: the proposal that it had accepted before, as its promise shows.
        held: digests of the contributions that it holds.
        acceptance: of this ballot's proposal.
        refuses: whether it has refused that for good.
        leaves: of others who have left, as far as it knows.
    """

    promise: Promise
    basis: Proposal | None = None
    held: frozenset[str] = frozenset()
    acceptance: Acceptance | None = None
    refuses: bool = False
    leaves: tuple[Report, ...] = ()

    @property
    def words(self) -> list[Word]:
        """All that is in it, of whoever has said it."""
        said: list[Word] = [self.promise] if self.acceptance is None else [self.promise, self.acceptance]
        return said + _words_behind(self.basis, self.leaves)


@dataclass(frozen=True)
class Answer:
    """What a peer answers.

    Attributes:
        ballot: the one that it has come to; of a remnant's coordinator, the number of its attempt.
        weak: whether it is one of a remnant.
        roll: promises of those who have come to it as the coordinator; they bring what is to be fetched.
        closed: whether it waits for nobody else.
        held: digests of the contributions that it holds.
        proposal: what it proposes.
        link: what was decided, if it knows.
        leaves: of those who have left, as far as it knows.
    """

    ballot: int
    weak: bool = False
    roll: tuple[Promise, ...] = ()
    closed: bool = False
    held: frozenset[str] = frozenset()
    proposal: Proposal | None = None
    link: Link | None = None
    leaves: tuple[Report, ...] = ()

    @property
    def words(self) -> list[Word]:
        """All that is in it, of whoever has said it."""
        decided = () if self.link is None else self.link.words
        return [*self.roll, *decided, *_words_behind(self.proposal, self.leaves)]


def _words_behind(proposal: Proposal | None, leaves: tuple[Report, ...]) -> list[Word]:
    """Those of a proposal and of all that bind it, and those of leaves.

    What others have left with comes last: of each maker only the first ones count, see `Evidence`.
    """
    found: list[Word] = []
    while proposal is not None:
        found += (proposal, *proposal.promises)
        proposal = proposal.basis
    found += (each.promise for each in leaves)
    return found + [word for each in leaves for word in _words_behind(each.basis, each.leaves)]
