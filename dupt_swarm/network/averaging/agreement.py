"""Which contributions count in a round: one list, agreed once, whoever dies or falls silent meanwhile.

Single-decree Paxos (Lamport 2001, "Paxos Made Simple"), without network, clock or cryptography. Ballot b
belongs to one coordinator, that of place b in a fixed order which repeats itself, so no two of them propose
in the same ballot. Electors decide, whose votes on the round count too; the others take part. Members only
ask, so nobody has to be able to call them: a `Report` is promise and acceptance in one, and an `Answer` has
the proposal and the decision::

    member                                    coordinator of its ballot
    Report(ballot, held, accepted)  ────────►  with those of more than half: proposes
                   accepts it       ◄────────  Answer(ballot, proposal)
    Report(ballot, held, accepted)  ────────►  accepted by more than half: decided
                                    ◄────────  Answer(decision)

Two members never decide differently, whichever messages are lost, late or repeated, as long as members do
not lie. With half of the electors gone nobody decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

# More than a group needs whose coordinators die one after another, and too few to keep a round busy for ever.
BALLOTS_PER_COORDINATOR = 8

Places = tuple[int, ...]


@dataclass(frozen=True)
class Acceptance:
    """A list that a member has accepted.

    Attributes:
        ballot: in which it was proposed.
        choice: the places in the group, ascending, of those whose contributions count.
    """

    ballot: int
    choice: Places


@dataclass(frozen=True)
class Report:
    """What a member tells the coordinator of its ballot.

    Attributes:
        ballot: it will accept nothing of an earlier one.
        held: the places of those whose contributions it holds.
        accepted: the last list that it accepted; None: none so far.
    """

    ballot: int
    held: frozenset[int]
    accepted: Acceptance | None = None


@dataclass(frozen=True)
class Decision:
    """The list that counts.

    Attributes:
        ballot: in which it was decided.
        choice: as in `Acceptance`.
        accepted: the places of those who were known to have accepted it: more than half.
    """

    ballot: int
    choice: Places
    accepted: Places


@dataclass(frozen=True)
class Answer:
    """What a coordinator answers.

    Attributes:
        ballot: the one that it has come to.
        proposal: what it proposes in that one, if it does.
        decision: what was decided, if it knows.
        holders: for each contribution, who is known to hold it.
    """

    ballot: int
    proposal: Places | None = None
    decision: Decision | None = None
    holders: tuple[frozenset[int], ...] = ()


@dataclass
class Agreement:
    """One member's part in the agreement of one group.

    Attributes:
        size: members of the group.
        me: the own place.
        order: the places of those who coordinate, in turn.
        electors: the places of those of whom more than half decide.
        ballot: the own one; it only grows.
        held: the places of those whose contributions are here.
        accepted: as in `Report`.
        decision: what was decided, once it is known.
        holders: for each contribution, who is known to hold it.
    """

    size: int
    me: int
    order: Sequence[int]
    electors: frozenset[int]
    ballot: int = 0
    held: set[int] = field(default_factory=set)
    accepted: Acceptance | None = None
    decision: Decision | None = None
    holders: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _reports: dict[int, Report] = field(default_factory=dict)  # of the present ballot, by member
    _proposal: Places | None = None  # of the present ballot, which is ours then

    @property
    def coordinator(self) -> int:
        """The place of who coordinates the present ballot."""
        return self._coordinator_of(self.ballot)

    @property
    def last_ballot(self) -> int:
        """No member goes beyond this one."""
        return len(self.order) * BALLOTS_PER_COORDINATOR - 1

    def hold(self, place: int) -> None:
        """The contribution of ``place`` is here now."""
        self.held.add(place)
        self.holders[place].add(self.me)

    def report(self) -> Report:
        """What to tell the coordinator now."""
        return Report(self.ballot, frozenset(self.held), self.accepted)

    def hear(self, answer: Answer) -> None:
        """The answer of the coordinator of a ballot that was ours when it was asked."""
        self.learn(answer.holders)
        if answer.decision is not None:
            self.decision = answer.decision
        elif self.ballot < answer.ballot <= self.last_ballot:
            self._go_to(answer.ballot)
        elif (
            answer.ballot == self.ballot
            and answer.proposal is not None
            and suffices(answer.proposal, self.electors)
        ):
            self.accepted = Acceptance(self.ballot, answer.proposal)

    def learn(self, holders: Sequence[Collection[int]]) -> None:
        """Any member's word on who holds which contribution: whoever has it can be asked for it."""
        for place, who in enumerate(holders):
            self.holders[place].update(who)

    def give_up(self) -> bool:
        """The coordinator is silent: turn to the next one; False if there is none any more."""
        if self.ballot == self.last_ballot:
            return False
        self._go_to(self.ballot + 1)
        return True

    def note(self, member: int, report: Report) -> None:
        """The report of ``member`` has come, to us as the coordinator of its ballot.

        Who is no elector says what it holds, and no more: anybody may be on the roll.

        Raises:
            ValueError: that ballot has another coordinator, or is none.
        """
        if not 0 <= report.ballot <= self.last_ballot or self._coordinator_of(report.ballot) != self.me:
            raise ValueError(f"ballot {report.ballot} is not ours")
        for place in report.held:
            self.holders[place].add(member)
        if member not in self.electors:
            return
        if report.ballot > self.ballot:
            self._go_to(report.ballot)
        if report.ballot == self.ballot:
            self._reports[member] = _later(self._reports.get(member), report)

    def answer(self) -> Answer:
        """What to answer to each member that has reported."""
        holders = tuple(frozenset(self.holders[place]) for place in range(self.size))
        return Answer(self.ballot, self._proposal, self.decision, holders)

    def is_news_to(self, report: Report) -> bool:
        """Whether the answer says more than who holds what to a member that has reported this."""
        if self.decision is not None or self.ballot > report.ballot:
            return True
        return self._proposal is not None and report.accepted != Acceptance(self.ballot, self._proposal)

    def consider(self, live: Collection[int], *, time_up: bool) -> None:
        """As the coordinator of the present ballot: propose if it is time, decide if enough have accepted.

        Args:
            live: the places of those who are expected to bring what they have, and the electors among them
                to report and to fetch what they miss.
            time_up: whether nobody is waited for any more.
        """
        if self.decision is not None or self.coordinator != self.me:
            return
        self._reports[self.me] = self.report()
        if self._proposal is None:
            self._proposal = self._choose(live, time_up=time_up)
        if self._proposal is None:
            return
        self.accepted = Acceptance(self.ballot, self._proposal)
        self._reports[self.me] = self.report()
        accepted = [place for place, report in self._reports.items() if report.accepted == self.accepted]
        if self._decide(accepted):
            self.decision = Decision(self.ballot, self._proposal, tuple(sorted(accepted)))

    def _choose(self, live: Collection[int], *, time_up: bool) -> Places | None:
        """What to propose; None: nothing yet."""
        reports = self._reports
        if not self._decide(reports):
            return None
        accepted = [each.accepted for each in reports.values() if each.accepted is not None]
        # Else somebody lies.
        earlier = [
            each for each in accepted if each.ballot < self.ballot and suffices(each.choice, self.electors)
        ]
        if earlier:  # it may have been decided
            return max(earlier, key=lambda each: each.ballot).choice
        if not time_up and not self._all_hold(self.electors.intersection(live), live):
            return None
        choice = tuple(place for place in range(self.size) if self._decide(self.holders[place]))
        return choice if choice and suffices(choice, self.electors) else None

    def _all_hold(self, electors: Collection[int], live: Collection[int]) -> bool:
        """Whether these electors hold what any of them does, and what the ``live`` have brought."""
        if not self._reports.keys() >= set(electors):
            return False
        held = [self._reports[place].held for place in electors]
        return all(each >= set(live).union(*held) for each in held)

    def _decide(self, places: Collection[int]) -> bool:
        """Whether these are more than half of those who decide."""
        return 2 * len(self.electors.intersection(places)) > len(self.electors)

    def _coordinator_of(self, ballot: int) -> int:
        return self.order[ballot % len(self.order)]

    def _go_to(self, ballot: int) -> None:
        self.ballot = ballot
        self._reports, self._proposal = {}, None


def suffices(choice: Collection[int], electors: frozenset[int]) -> bool:
    """Whether at least half of the electors' contributions are on a list: of many, never only one."""
    return 2 * len(electors.intersection(choice)) >= len(electors)


def _later(before: Report | None, report: Report) -> Report:
    """Of two reports of one member in one ballot, what both say: messages may overtake one another."""
    if before is None:
        return report
    accepted = [each for each in (before.accepted, report.accepted) if each is not None]
    return replace(
        report,
        held=before.held | report.held,
        accepted=max(accepted, key=lambda each: each.ballot, default=None),
    )
