"""Words that decide which state follows another, and the link of the chain of rounds that they make.

Ballots run over all attempts to leave one state. Whoever takes part promises for a ballot to accept nothing
in an earlier one; who leaves the state promises so for all later ones. The coordinator of the ballot proposes
a choice, for which its promises are evidence; whoever accepts signs for the state that follows. Accepted by a
quorum of the state's electorate, that is a *link*, and a strong one: while nobody lies no second one leaves
the state. A liar can bring about a second only by words that contradict each other: see `contradict`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from dupt_swarm.replica.draw import drawn
from dupt_swarm.replica.electorate import Electorate

# A proposal repeats the one that binds it, and so on; more of them than a state needs that is ever left.
BASES_MAX = 16
BROUGHT_MAX = 256  # contributions to a round


@dataclass(frozen=True, slots=True)
class Brought:
    """A contribution, as its maker states it.

    Attributes:
        maker: its peer id.
        digest: of its blob.
        tokens: that it stands for.
    """

    maker: str
    digest: str
    tokens: int


@dataclass(frozen=True)
class Choice:
    """What follows from a state, but for the arithmetic.

    Attributes:
        brought: the contributions, in the order of the arithmetic.
        left: ids of those who have left, sorted: they are not of the next electorate.
        weak: whether less than a quorum decides; see `Electorate.after`.
    """

    brought: tuple[Brought, ...]
    left: tuple[str, ...] = ()
    weak: bool = False

    @cached_property
    def id(self) -> str:
        """SHA-256 of it, hexadecimal: what acceptances name it by."""
        rows = [f"{each.maker} {each.digest} {each.tokens}" for each in self.brought]
        text = "\n".join([*rows, " ".join(self.left), str(self.weak)])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def makers(self) -> tuple[str, ...]:
        """Ids of those who have made the contributions."""
        return tuple(each.maker for each in self.brought)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What somebody accepts: a ballot's proposal, by the id of its choice, and the state that follows."""

    ballot: int
    choice: str
    after: str


@dataclass(frozen=True, slots=True)
class Word:
    """What a peer signs of how a state is left.

    Attributes:
        maker: its peer id.
        state: digest of the state.
        ballot: in which it says this.
        signed: it, with its maker's signature.
    """

    maker: str
    state: str
    ballot: int
    signed: bytes = field(default=b"", compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Promise(Word):
    """To accept nothing in an earlier ballot.

    Attributes:
        brought: its maker's contribution, if it has one.
        accepted: what it had accepted last when it came to this ballot.
        refused: the choices that it will never accept: sorted ids.
        leaves: whether it promises this for all later ballots too, and signs nothing more.
        callable: whether others can call it.
    """

    brought: Brought | None = None
    accepted: Accepted | None = None
    refused: tuple[str, ...] = ()
    leaves: bool = False
    callable: bool = True


@dataclass(frozen=True, slots=True)
class Proposal(Word):
    """What the ballot's coordinator proposes.

    Attributes:
        choice: what it proposes.
        promises: of a quorum for this ballot, of those who have left, and of all who bring what is chosen.
        basis: the proposal that binds it; see `binding`.
    """

    choice: Choice
    promises: tuple[Promise, ...] = field(default=(), compare=False)
    basis: Proposal | None = field(default=None, compare=False)

    @property
    def leaves(self) -> tuple[Promise, ...]:
        """The promises of those who have left."""
        return tuple(each for each in self.promises if each.leaves)

    @property
    def left(self) -> frozenset[str]:
        """Ids of those who have left."""
        return frozenset(each.maker for each in self.leaves)


@dataclass(frozen=True, slots=True)
class Acceptance(Word):
    """To accept a proposal, by one who has computed the state that follows, and judged it.

    Attributes:
        choice: its id.
        after: digest of the state that follows.
        dropped: ids of those whose contributions count for nothing in it, in order.
        weak: whether the choice is.
    """

    choice: str
    after: str
    dropped: tuple[str, ...] = ()
    weak: bool = False

    @property
    def accepted(self) -> Accepted:
        """What it accepts, without its maker."""
        return Accepted(self.ballot, self.choice, self.after)

    @property
    def outcome(self) -> tuple[str, tuple[str, ...]]:
        """What it says that the choice leads to: the state, and who is dropped."""
        return self.after, self.dropped


@dataclass(frozen=True, slots=True)
class Link:
    """What a round leaves.

    Attributes:
        state: digest of the state before.
        ballot: in which it was decided.
        choice: what went into the round.
        after: digest of the state that follows.
        leaves: promises of those who have left, so that a quorum is more than half of the others.
        acceptances: that make it, by one of each.
        average: digest of the average's blob, as whoever keeps it says, where only that is kept.
    """

    state: str
    ballot: int
    choice: Choice
    after: str
    leaves: tuple[Promise, ...]
    acceptances: tuple[Acceptance, ...]
    average: str = field(default="", compare=False)

    @property
    def counting(self) -> tuple[Brought, ...]:
        """The contributions that are in the state that follows."""
        return tuple(each for each in self.choice.brought if each.maker not in self.dropped)

    @property
    def counted(self) -> tuple[str, ...]:
        """Ids of those whose contributions are in the state that follows."""
        return tuple(each.maker for each in self.counting)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Ids of those whose contributions count for nothing in it."""
        return self.acceptances[0].dropped

    @property
    def outcome(self) -> tuple[str, tuple[str, ...]]:
        """See `Acceptance.outcome`."""
        return self.after, self.dropped

    def electorate(self, before: Electorate) -> Electorate:
        """The electorate of the state that follows, from the one of the state before."""
        return before.after(self.counted, self.choice.left, weak=self.choice.weak)

    @property
    def makers(self) -> frozenset[str]:
        """Ids of those who have accepted it."""
        return frozenset(each.maker for each in self.acceptances)

    @property
    def left(self) -> frozenset[str]:
        """Ids of those who have left, as counted for the quorum."""
        return frozenset(each.maker for each in self.leaves)

    @property
    def words(self) -> tuple[Word, ...]:
        """All that was signed for it."""
        return *self.leaves, *self.acceptances

    def joined(self, other: Link, members: Collection[str]) -> Link:
        """This weak link, with what else ``members`` have signed for it in ``other``, if that is alike."""
        if other.outcome != self.outcome:
            return self
        more = [each for each in other.acceptances if each.maker in members and each.maker not in self.makers]
        acceptances = tuple(sorted((*self.acceptances, *more), key=lambda each: each.maker))
        return replace(self, acceptances=acceptances)

    def check(self, electorate: Electorate) -> None:
        """Whether it is one that leaves the state of this ``electorate``; signatures are checked elsewhere.

        Raises:
            ValueError: it is none; says why.
        """
        if not self.acceptances or not self.choice.brought:
            raise ValueError("a link that nobody has accepted, or into which nothing went")
        found = {(each.state, each.choice, each.after, each.dropped, each.weak) for each in self.acceptances}
        if found != {(self.state, self.choice.id, self.after, self.dropped, self.choice.weak)}:
            raise ValueError("a link with acceptances of something else")
        if len(self.makers) < len(self.acceptances):
            raise ValueError("a link that somebody has accepted twice")
        if self.choice.weak:
            return
        if any(each.ballot != self.ballot for each in self.acceptances):
            raise ValueError("a strong link with acceptances of several ballots")
        if not all(each.leaves and each.state == self.state for each in self.leaves):
            raise ValueError("a link with a leave that is none")
        if any(each.ballot > self.ballot for each in self.leaves) or self.makers & self.left:
            raise ValueError("a link that counts as left who had not")
        if not electorate.is_quorum(self.makers, self.left):
            raise ValueError("a strong link that less than a quorum has accepted")
        if not self.makers | self.left <= electorate.members:
            raise ValueError("a strong link signed by strangers, too")

    def worth(self, electorate: Electorate) -> tuple[bool, int, str]:
        """Where branches part, the one wins whose first link has the greatest."""
        return not self.choice.weak, len(self.makers & electorate.members), self.after


def brought_by(promises: Iterable[Promise]) -> tuple[Brought, ...]:
    """The contributions of those who have promised, in the order of the arithmetic."""
    found = (each.brought for each in promises if each.brought is not None)
    return tuple(sorted(found, key=lambda each: each.maker))


def coordinator_of(electorate: Electorate, state: str, ballot: int) -> str:
    """The coordinator of a ballot, drawn from the state; empty where there are no voters."""
    order = _coordinators(electorate.members, state)
    return order[ballot % len(order)] if order else ""


# Members ask for it again and again while they leave a state.
@lru_cache(maxsize=64)
def _coordinators(members: frozenset[str], state: str) -> tuple[str, ...]:
    return tuple(drawn(members, state))


def binding(electorate: Electorate, promises: Collection[Promise]) -> frozenset[Accepted]:
    """What may have been decided already, as far as these promises tell, which are of a quorum and of leaves.

    That is what was accepted last, unless half of those who decide refuse it for good, and nobody who has
    left has accepted it. One of it must be proposed again; more than one shows that a coordinator has lied.
    """
    counted = [each for each in promises if each.maker in electorate]
    shown = [each.accepted for each in counted if each.accepted is not None]
    last = max((each.ballot for each in shown), default=-1)
    deciding = electorate.deciding({each.maker for each in counted if each.leaves})

    def is_dead(choice: str) -> bool:
        refusing = {each.maker for each in counted if choice in each.refused}
        by_leavers = any(
            each.leaves and each.accepted is not None and each.accepted.choice == choice for each in counted
        )
        return 2 * len(refusing & deciding) >= len(deciding) and not by_leavers

    return frozenset(each for each in shown if each.ballot == last and not is_dead(each.choice))


def check_proposal(proposal: Proposal, electorate: Electorate) -> None:
    """Whether it may be accepted, if what it names is what it should be; signatures are checked elsewhere.

    Raises:
        ValueError: its coordinator lies; says how.
    """
    for number, each in enumerate(_with_bases(proposal)):
        if number >= BASES_MAX:
            raise ValueError("a proposal with too many before it")
        _check_one(each, electorate)


def _with_bases(proposal: Proposal) -> Iterator[Proposal]:
    each: Proposal | None = proposal
    while each is not None:
        yield each
        each = each.basis


def _check_one(proposal: Proposal, electorate: Electorate) -> None:
    """Check one proposal, taking the one that binds it as checked."""
    choice, promises = proposal.choice, proposal.promises
    if choice.weak or proposal.maker != coordinator_of(electorate, proposal.state, proposal.ballot):
        raise ValueError("a proposal of somebody who does not coordinate")
    if len({each.maker for each in promises}) < len(promises):
        raise ValueError("a proposal with two promises of one peer")
    if any(each.state != proposal.state or each.ballot > proposal.ballot for each in promises):
        raise ValueError("a proposal with promises of another state, or of later ballots")
    strangers = [each for each in promises if each.maker not in electorate]
    if not {each.maker for each in strangers} <= set(choice.makers):
        raise ValueError("a proposal with promises of nobody whom it is about")
    if any(each.refused or each.accepted is not None for each in strangers):
        raise ValueError("a proposal with a stranger that decides")
    here = [each for each in promises if each.leaves or each.ballot == proposal.ballot]
    if any(each.accepted is not None and each.accepted.ballot >= proposal.ballot for each in here):
        raise ValueError("a proposal that comes too late")
    if not electorate.is_quorum({each.maker for each in here}, proposal.left):
        raise ValueError("a proposal without the promises of a quorum")
    if bound := binding(electorate, here):
        _check_bound(proposal, bound)
    else:
        bringing = (each.maker for each in here if each.brought is not None)
        _check_free(proposal, electorate.members.intersection(bringing))


def _check_bound(proposal: Proposal, bound: frozenset[Accepted]) -> None:
    """Whether it proposes again what may have been decided already."""
    choice, basis = proposal.choice.id, proposal.basis
    if basis is None or choice not in {each.choice for each in bound} or basis.choice.id != choice:
        raise ValueError("a proposal that ignores what may have been decided")
    if basis.ballot != next(iter(bound)).ballot:
        raise ValueError("a proposal that another ballot's is said to bind")


def _check_free(proposal: Proposal, bringing: frozenset[str]) -> None:
    """Whether its coordinator may choose so, when nothing binds it and these of the electorate contribute."""
    choice = proposal.choice
    if proposal.basis is not None:
        raise ValueError("a proposal that nothing binds, with a basis")
    if choice.left != tuple(sorted(proposal.left)):
        raise ValueError("a proposal that misses who has left")
    stated = {each.brought for each in proposal.promises if each.brought is not None}
    if not choice.brought or not stated.issuperset(choice.brought):
        raise ValueError("a proposal with contributions that nobody states")
    if list(choice.makers) != sorted(set(choice.makers)):
        raise ValueError("a proposal whose contributions are not in order")
    if 2 * len(bringing.intersection(choice.makers)) < len(bringing):
        raise ValueError("a proposal with few of the electorate's contributions")


def contradict(one: Word, other: Word) -> bool:
    """Whether no honest peer would have signed both: a proof against their maker.

    A coordinator proposes once in a ballot, and accepts nothing else in it. A member accepts once in a
    ballot, denies in no promise what it has accepted before, accepts nothing that it has refused, and says
    nothing once it has left.
    """
    if (one.maker, one.state) != (other.maker, other.state):
        return False
    return _contradicts(one, other) or _contradicts(other, one)


def _contradicts(one: Word, other: Word) -> bool:
    match one, other:
        case Proposal(), Proposal():
            strong = not (one.choice.weak or other.choice.weak)
            return strong and one.ballot == other.ballot and one.choice != other.choice
        case Proposal(), Acceptance(weak=False):
            return not one.choice.weak and one.ballot == other.ballot and one.choice.id != other.choice
        case Acceptance(weak=False), Acceptance(weak=False):
            return one.ballot == other.ballot and one.accepted != other.accepted
        case Promise(), Acceptance(weak=False):
            if other.choice in one.refused:
                return True
            known = -1 if one.accepted is None else one.accepted.ballot
            if one.leaves:
                return other.ballot > known
            return known < other.ballot < one.ballot or (
                one.accepted is not None and known == other.ballot and one.accepted != other.accepted
            )
        case Promise(leaves=True), Promise(leaves=False):
            return other.ballot > one.ballot
    return False
