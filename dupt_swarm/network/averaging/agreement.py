"""Which contributions count in a round: one list, agreed once, whoever dies or falls silent meanwhile.

Single-decree Paxos (Lamport 2001, "Paxos Made Simple"), without network, clock or cryptography. Ballot b
belongs to one coordinator, that of place b in a fixed order which repeats itself, so no two of them propose
in the same ballot. Electors decide, whose votes on the round count too; the others take part. Members only
ask, so nobody has to be able to call them: a `Report` is promise and acceptance in one, and an `Answer` has
the proposal and the decision::

    member                                    coordinator of its ballot
    Report(ballot, held, accepted)  ────────►  with those of more than half: proposes
     accepts it when it holds it    ◄────────  Answer(ballot, proposal)
    Report(ballot, held, accepted)  ────────►  accepted by more than half: decided
                                    ◄────────  Answer(decision)

Two members never decide differently, whichever messages are lost, late or repeated, as long as members do
not lie. With half of the electors gone nobody decides.

Less than half of the electors that lie cannot keep the others from deciding: nobody follows one of them into
a later ballot, accepts what it does not hold, or is bound by what cannot have been decided. A decision has
the signatures of those who have accepted it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dupt_swarm.network.averaging.reports import Acceptance, Answer, Decision, Key, Places, Report, suffices

# More than a group needs whose coordinators die one after another, and too few to keep a round busy for ever.
BALLOTS_PER_COORDINATOR = 8


@dataclass
class Agreement:
    """One member's part in the agreement of one group.

    Attributes:
        size: members of the group.
        me: the own place.
        order: the places of those who coordinate, in turn.
        electors: the places of those of whom more than half decide.
        sign: signs an acceptance of ours.
        ballot: the own one; it only grows.
        held: the places of those whose contributions are here.
        proposal: of the present ballot, once we know it.
        accepted: as in `Report`.
        decision: what was decided, once it is known.
        holders: for each contribution, who is said to hold it: whoever does can be asked for it.
    """

    size: int
    me: int
    order: Sequence[int]
    electors: frozenset[int]
    sign: Callable[[Acceptance], bytes] = lambda _: b""
    ballot: int = 0
    held: set[int] = field(default_factory=set)
    proposal: Places | None = None
    accepted: Acceptance | None = None
    decision: Decision | None = None
    holders: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _reports: dict[int, Report] = field(default_factory=dict)  # the last one of each elector
    # What each had accepted when it came to the present ballot, as it said then.
    _arrived: dict[int, Key | None] = field(default_factory=dict)
    _ballots: dict[int, int] = field(default_factory=dict)  # how far each elector has come

    @property
    def coordinator(self) -> int:
        """The place of who coordinates the present ballot."""
        return self._coordinator_of(self.ballot)

    @property
    def last_ballot(self) -> int:
        """No member goes beyond this one."""
        return len(self.order) * BALLOTS_PER_COORDINATOR - 1

    @property
    def has_met(self) -> bool:
        """Whether the coordinator says that it has come to the present ballot, or most have to us as such."""
        if self.coordinator != self.me:
            return self._ballots.get(self.coordinator, 0) >= self.ballot
        here = [place for place, report in self._reports.items() if report.ballot == self.ballot]
        return self._decide({*here, self.me})

    def is_deserted(self, heard: Collection[int]) -> bool:
        """Whether we coordinate a ballot that most electors have not come to, and will not.

        Args:
            heard: the places of those who have been heard lately.
        """
        farther = {place for place, ballot in self._ballots.items() if ballot > self.ballot}
        may_come = {*heard, self.me} - farther
        return self.coordinator == self.me and bool(farther) and not (self.has_met or self._decide(may_come))

    def hold(self, place: int) -> None:
        """The contribution of ``place`` is here now."""
        self.held.add(place)
        self.holders[place].add(self.me)
        self._accept()

    def report(self) -> Report:
        """What to tell the coordinator now."""
        return Report(self.ballot, frozenset(self.held), self.accepted)

    def hear(self, place: int, answer: Answer) -> None:
        """The answer of the member at ``place``."""
        for contribution, who in enumerate(answer.holders):
            self.holders[contribution].update(who)
        if answer.decision is not None and self.decision is None:
            self.decision = answer.decision
            for contribution in answer.decision.choice:  # whoever accepts it holds it
                self.holders[contribution].update(answer.decision.accepted)
        self._see(place, answer.ballot)
        if place != self.coordinator:
            return
        if answer.ballot > self.ballot:  # it has left this one
            self.give_up()
        elif answer.ballot == self.ballot and self.proposal is None and answer.proposal is not None:
            self.proposal = answer.proposal if suffices(answer.proposal, self.electors) else None
            self._accept()

    def give_up(self) -> bool:
        """The coordinator is silent: turn to the next one; False if there is none any more."""
        if self.ballot == self.last_ballot:
            return False
        self._go_to(self.ballot + 1)
        return True

    def note(self, member: int, report: Report) -> None:
        """The report of ``member`` has come.

        Who is no elector says what it holds, and no more: anybody may be on the roll.
        """
        for place in report.held:
            self.holders[place].add(member)
        if member in self.electors:
            self._reports[member] = report.after(self._reports.get(member, report))
            self._receive(member)
            self._see(member, report.ballot)

    def answer(self) -> Answer:
        """What to answer to each member that has reported."""
        holders = tuple(frozenset(self.holders[place]) for place in range(self.size))
        proposal = self.proposal if self.coordinator == self.me else None
        return Answer(self.ballot, proposal, self.decision, holders)

    def is_news_to(self, member: int, report: Report) -> bool:
        """Whether the answer says more than who holds what to a member that has reported this."""
        if self.decision is not None or self.ballot > report.ballot:
            return True
        if self.proposal is None or self.coordinator != self.me or member not in self.electors:
            return False
        can_accept = report.held.issuperset(self.proposal)
        return can_accept and report.accepted != Acceptance(self.ballot, self.proposal)

    def consider(self, live: Collection[int], *, time_up: bool, overdue: bool = False) -> None:
        """As the coordinator of the present ballot: propose if it is time, decide if enough have accepted.

        Args:
            live: the places of those who are expected to bring what they have, and to report.
            time_up: whether no contribution is waited for any more.
            overdue: whether no elector's report is.
        """
        if self.decision is not None or self.coordinator != self.me:
            return
        self._reports[self.me] = self.report()
        if self.proposal is None:
            self.proposal = self._choose(live, time_up=time_up, overdue=overdue)
        if self.proposal is None:
            return
        self._accept()
        self._reports[self.me] = self.report()
        wanted = Acceptance(self.ballot, self.proposal)
        accepted = {
            place: found.signed
            for place in sorted(self.electors & self._reports.keys())
            if (found := self._reports[place].accepted) == wanted
            and found is not None
            and found.after == self._arrived.get(place, found.after)  # else it has denied one
        }
        if self._decide(accepted):
            enough = tuple(accepted)[: len(self.electors) // 2 + 1]
            signed = tuple(accepted[place] for place in enough)
            self.decision = Decision(self.ballot, self.proposal, enough, signed)

    def _choose(self, live: Collection[int], *, time_up: bool, overdue: bool) -> Places | None:
        """What to propose; None: nothing yet."""
        reports = {
            place: report
            for place, report in self._reports.items()
            if report.ballot == self.ballot and place in self.electors
        }
        if not self._decide(reports):
            return None
        if (bound := self._bound(reports)) is not None:
            complete = overdue or reports.keys() >= self.electors.intersection(live)
            return bound if complete else None
        if not time_up:
            wanted = set(live).union(*(report.held for report in reports.values()))
            if not all(map(self._is_held, wanted)):
                return None
        choice = tuple(filter(self._is_held, range(self.size)))
        return choice if choice and suffices(choice, self.electors) else None

    def _bound(self, reports: Mapping[int, Report]) -> Places | None:
        """The list that may have been decided in an earlier ballot, for all that the others could report."""
        accepted = [
            report.accepted
            for report in reports.values()
            if report.accepted is not None
            and report.accepted.ballot < self.ballot  # else it lies
            and suffices(report.accepted.choice, self.electors)
        ]
        supporters = Counter(each.choice for each in accepted)
        unknown = len(self.electors) - len(reports)
        possible = [each for each in accepted if 2 * (supporters[each.choice] + unknown) > len(self.electors)]
        last = max(possible, key=lambda each: each.ballot, default=None)
        return None if last is None else last.choice

    def _is_held(self, contribution: int) -> bool:
        """Whether more than half of the electors say that they hold this one themselves."""
        return self._decide([place for place, report in self._reports.items() if contribution in report.held])

    def _receive(self, place: int) -> None:
        """Its last report may be the first one in the present ballot."""
        report = self._reports[place]
        if report.ballot == self.ballot and place not in self._arrived:
            accepted = report.accepted
            if accepted is not None and accepted.ballot == self.ballot:
                self._arrived[place] = accepted.after
            else:
                self._arrived[place] = None if accepted is None else accepted.key

    def _accept(self) -> None:
        """Accept what is proposed, once we hold it all: what we miss may be nowhere."""
        if self.me not in self.electors or self.proposal is None or not self.held.issuperset(self.proposal):
            return
        if self.accepted != Acceptance(self.ballot, self.proposal):
            before = None if self.accepted is None else self.accepted.key
            accepted = Acceptance(self.ballot, self.proposal, before)
            self.accepted = replace(accepted, signed=self.sign(accepted))

    def _see(self, member: int, ballot: int) -> None:
        """An elector has come to ``ballot``; follow most of the others, of whom one at least is honest."""
        if member not in self.electors:
            return
        self._ballots[member] = max(min(ballot, self.last_ballot), self._ballots.get(member, 0))
        others = sorted((self._ballots.get(place, 0) for place in self.electors - {self.me}), reverse=True)
        if others and others[len(others) // 2] > self.ballot:
            self._go_to(others[len(others) // 2])

    def _decide(self, places: Collection[int]) -> bool:
        """Whether these are more than half of those who decide."""
        return 2 * len(self.electors.intersection(places)) > len(self.electors)

    def _coordinator_of(self, ballot: int) -> int:
        return self.order[ballot % len(self.order)]

    def _go_to(self, ballot: int) -> None:
        self.ballot, self.proposal, self._arrived = ballot, None, {}
        for place in self._reports:
            self._receive(place)
