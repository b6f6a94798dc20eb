"""One member's part in deciding what follows a state: pure, without network, clock or cryptography.

Ballots run over all attempts to leave the state; see `dupt_swarm.replica.link` for the words. In each one
coordinates, by a draw that follows from the state::

    member                                          coordinator
    Report(promise, held)           ──────────────►  of a quorum: closes the roll when all have come
     fetches what the others bring  ◄──────────────  Answer(roll)
    Report(promise, held)           ──────────────►  when all is held: proposes a choice
     computes and judges the state  ◄──────────────  Answer(roll, proposal)
    Report(promise, held, accepted) ──────────────►  of a quorum: the link
                                    ◄──────────────  Answer(link)

A coordinator that dies, stalls or lies: the next ballot, when time is up or most of the others are there. A
peer outside the electorate takes part with what it brings, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from statistics import median_low

from dupt_swarm.network.rounds.reports import Answer, Pace, Report
from dupt_swarm.network.rounds.stock import Stock
from dupt_swarm.network.rounds.voice import Pledged, Voice
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import (
    Acceptance,
    Accepted,
    Brought,
    Choice,
    Link,
    Promise,
    Proposal,
    binding,
    brought_by,
    check_proposal,
    coordinator_of,
)

# So many ballots without a quorum, or in all, and who is there goes on as a remnant.
LONELY_MAX, FAILED_MAX = 2, 6
AHEAD_MAX = 1 << 16  # so far a ballot may be ahead of ours


@dataclass
class Attempt:
    """What is known of one attempt to leave the state, with one coordinator.

    Attributes:
        number: of the attempt.
        entered: when we came to it.
        heard: when its coordinator was heard last.
        closed: when we knew that nobody else is waited for.
        roll: the words of those who end it together, from then on.
        proposal: its coordinator's.
        acceptance: ours of that.
        comers: the words of those who have come to us, the coordinator; by maker.
        acceptances: theirs of our proposal, likewise.
        refusing: ids of those who refuse it.
    """

    number: int
    entered: float
    heard: float = 0.0
    closed: float | None = None
    roll: tuple[Promise, ...] = ()
    proposal: Proposal | None = None
    acceptance: Acceptance | None = None
    comers: dict[str, Promise] = field(default_factory=dict)
    acceptances: dict[str, Acceptance] = field(default_factory=dict)
    refusing: set[str] = field(default_factory=set)

    @property
    def proposed(self) -> Choice | None:
        """What was proposed, if anything was."""
        return None if self.proposal is None else self.proposal.choice

    @property
    def come(self) -> tuple[Promise, ...]:
        """What a coordinator tells of who takes part."""
        return self.roll or tuple(self.comers.values())

    def to_judge(self, refused: Collection[str], stock: Stock) -> Choice | None:
        """What to compute and judge now, unless it is ``refused``, or ``stock`` lacks what it needs."""
        choice = self.proposed
        if choice is None or self.acceptance is not None or choice.id in refused:
            return None
        return choice if stock.has(choice) else None


@dataclass
class _Ballot(Attempt):
    """The present one: what we had accepted before it, our promise, and since when a quorum is here."""

    accepted: Accepted | None = None
    basis: Proposal | None = None
    promise: Promise | None = None
    quorate: float | None = None


class Ballots:
    """Deciding what follows one state.

    Attributes:
        brought: our contribution, once there is one.
        stock: the contributions of this round.
        here: the present ballot.
        link: what was decided, once we know it.
    """

    def __init__(
        self,
        voice: Voice,
        state: str,
        electorate: Electorate,
        pace: Pace,
        now: float,
        pledged: Pledged | None = None,
        *,
        lasting: bool = True,
        wary: bool = False,
    ) -> None:
        """Begin, or go on after a crash.

        Args:
            voice: ours.
            state: digest of the state to leave.
            electorate: of that state.
            pace: how long to wait.
            now: seconds on any clock, as in all that follows.
            pledged: what our voice kept of this state.
            lasting: see `Stock`.
            wary: whether, as a coordinator, to take only what the electorate brings.
        """
        self.voice, self.state, self.electorate, self.pace = voice, state, electorate, pace
        self.brought: Brought | None = None
        self.stock = Stock(electorate.members, lasting=lasting)
        self.link: Link | None = None
        self._pledged = pledged or Pledged()
        self._wary = wary
        self._lonely = self._failed = 0
        self._leaves: dict[str, Report] = {}
        self._heard_at: dict[str, float] = {}
        self._bases: dict[tuple[int, str], Proposal] = {}
        self._farther: dict[str, int] = {}  # how far each of the electorate has come
        self._unheld: set[str] = set()  # choices of which not all came here in time
        if self._pledged.accepted is not None and self._pledged.basis is not None:
            accepted = self._pledged.accepted
            self._bases[accepted.ballot, accepted.choice] = self._pledged.basis
        if self._pledged.leave is not None:
            self._leaves[self.me] = Report(self._pledged.leave, self._pledged.basis)
        self._go_to(self._first_ballot, now)

    @property
    def me(self) -> str:
        """Our peer id."""
        return self.voice.me

    @property
    def ballot(self) -> int:
        """The present one; it only grows."""
        return self.here.number

    @property
    def coordinator(self) -> str:
        """The coordinator of the present ballot; empty where there are no voters."""
        return coordinator_of(self.electorate, self.state, self.ballot)

    @property
    def left(self) -> bool:
        """Whether we have said our last word on this state."""
        return self._pledged.leave is not None

    @property
    def last_word(self) -> Report:
        """That, once it is said."""
        return self._leaves[self.me]

    @property
    def decides(self) -> bool:
        """Whether our word counts."""
        return self.me in self.electorate and not self.left

    def is_hopeless(self, gone: Collection[str]) -> bool:
        """Whether to go on as a remnant: ``gone`` were seen to be, as nobody listens where they were."""
        there = self.electorate.members.difference(gone)
        alone = not self.electorate.is_quorum(there, self._who_left)
        return alone or self._lonely >= LONELY_MAX or self._failed >= FAILED_MAX

    def bring(self, brought: Brought, now: float) -> None:
        """Our contribution is ready: until then we may coordinate, and wait for nobody.

        Another one takes the place of one that was rejected.
        """
        if self.brought is None:
            self.here.entered = now
        self.brought = brought
        if self.stock.lasting:
            self.stock.held.add(brought.digest)

    def leave(self, *, bringing: bool = False) -> None:
        """Say our last word on this state: we stop, or go on as a remnant, ``bringing`` what we have."""
        said = self._pledged.leave
        brought = self.brought if bringing else None
        if said is None or (brought is not None and said.brought != brought):
            ballot = self.ballot if said is None else said.ballot
            word = self._word(ballot, brought, self._pledged.accepted)
            said = self.voice.signed(replace(word, leaves=True))
            self._pledge(leave=said)
            self._leaves[self.me] = Report(said, self._pledged.basis)

    def report(self) -> Report:
        """What to tell the coordinator now."""
        if self.left:
            return replace(self.last_word, held=self.stock.told)
        here = self.here
        return Report(
            self._promise(),
            here.basis,
            self.stock.told,
            here.acceptance,
            here.proposed is not None and here.proposed.id in self._pledged.refused,
            tuple(self._leaves.values()),
        )

    def note(self, report: Report, now: float) -> None:
        """What a member has told us, who may coordinate its ballot."""
        promise = report.promise
        maker = promise.maker
        for each in (report, *report.leaves):
            self._note_leave(each)
        if promise.leaves:
            return
        if self.stock.lasting or promise.ballot == self.ballot:
            self.stock.note_held(maker, report.held)
        if self.stock.has_place_for(maker, self._heard_at):
            self._heard_at[maker] = now
        self._see(maker, promise.ballot, now)
        if promise.ballot != self.ballot or self.coordinator != self.me:
            return
        here = self.here
        if here.closed is None and self.stock.admits(promise, here.comers) and self._is_shown(report):
            here.comers[maker] = promise
            self.stock.learn([promise.brought])
        if maker not in self.electorate:
            return
        found = report.acceptance
        if found is not None and self._is_of_proposal(found):
            here.acceptances.setdefault(maker, found)
        if report.refuses:
            here.refusing.add(maker)

    def answer(self) -> Answer:
        """What to answer to whoever asks."""
        leaves = tuple(self._leaves.values())
        if self.coordinator != self.me:
            return Answer(self.ballot, link=self.link, leaves=leaves)
        here = self.here
        return Answer(
            self.ballot,
            roll=here.come,
            closed=here.closed is not None,
            held=self.stock.told,
            proposal=here.proposal,
            link=self.link,
            leaves=leaves,
        )

    def hear(self, peer: str, answer: Answer, now: float) -> None:
        """What a peer has answered; its link was checked."""
        if answer.link is not None and not answer.link.choice.weak:  # one liar can make a weak one
            self.link = self.link or answer.link
        for each in answer.leaves:
            self._note_leave(each)
        if answer.weak:
            return
        self._see(peer, answer.ballot, now)
        if peer != self.coordinator:
            return
        here = self.here
        here.heard = now
        self.stock.learn(each.brought for each in answer.roll)
        self.stock.note_held(peer, answer.held)
        if answer.ballot > self.ballot:  # it has left this one
            self._go_to(self.ballot + 1, now)
        elif answer.ballot == self.ballot:
            if answer.closed and here.closed is None:
                here.closed, here.roll = now, answer.roll
            proposal = answer.proposal
            if proposal is None or here.proposal is not None:
                return
            # One of an earlier ballot knows nothing of what was accepted since.
            if proposal.ballot == self.ballot and self._is_sound(proposal):
                here.proposal = proposal
                self.stock.learn(proposal.choice.brought)

    @property
    def to_judge(self) -> Choice | None:
        """What to compute and judge now; see `judge`."""
        return self.here.to_judge(self._pledged.refused, self.stock) if self.decides else None

    def judge(
        self, choice: Choice, after: str, dropped: tuple[str, ...] = (), *, accepts: bool = True
    ) -> None:
        """``choice`` leads to the state ``after``, and we accept that, or refuse the choice for good."""
        here = self.here
        is_here = self.to_judge == choice  # or there is another ballot now
        if not accepts:
            if self.decides and choice.id not in self._pledged.once:
                self._pledge(refused=self._pledged.refused | {choice.id})
            if is_here:
                here.refusing.add(self.me)
            return
        if here.proposal is None or not is_here:
            return
        self._bases[self.ballot, choice.id] = here.proposal
        accepted, once = Accepted(self.ballot, choice.id, after), self._pledged.once | {choice.id}
        self._pledge(accepted=accepted, basis=here.proposal, once=once)
        word = Acceptance(self.me, self.state, self.ballot, choice.id, after, dropped)
        here.acceptance = here.acceptances[self.me] = self.voice.signed(word)
        if self.coordinator == self.me:
            self._decide(here.proposal)

    def give_up(self, now: float) -> None:
        """What this ballot's roll bring cannot be had: turn to the next one."""
        if self.link is None:
            self._fail(now)

    def consider(self, now: float, awaited: Collection[str] = (), unable: Collection[str] = ()) -> None:
        """Do what is due: as the coordinator close the roll, propose, decide; turn to the next ballot.

        Args:
            now: as before.
            awaited: ids of those who should come before the roll is closed.
            unable: of those who cannot coordinate, as nobody reaches them.
        """
        if self.link is not None or not self.electorate.members:
            return
        passed = frozenset(unable).union(self._leaves)
        if self.coordinator in passed and not self.electorate.members <= passed:
            self._pass_over(passed, now)
        if self.coordinator == self.me and not self.left:
            self._coordinate(now, awaited)
        if self.link is None and self.brought is not None and self._is_overdue(now):
            self._fail(now)

    @property
    def _first_ballot(self) -> int:
        """The one in which we were, unless we may have proposed or accepted something in it."""
        before, accepted = self._pledged.ballot, self._pledged.accepted
        coordinating = coordinator_of(self.electorate, self.state, before) == self.me
        said = before < 0 or coordinating or (accepted is not None and accepted.ballot == before)
        return before + 1 if said else before

    @property
    def _who_left(self) -> frozenset[str]:
        """Those who have, as far as the present ballot may count them so."""
        return frozenset(maker for maker, each in self._leaves.items() if each.promise.ballot <= self.ballot)

    def _coordinate(self, now: float, awaited: Collection[str]) -> None:
        """Do what is due as the coordinator: close the roll, propose, decide."""
        here = self.here
        here.heard = now
        if here.closed is None:
            here.comers[self.me] = self._promise()
            self._close(now, awaited)
        if here.closed is not None and here.proposal is None:
            self._propose(now)
        if here.proposal is not None:
            self._decide(here.proposal)
            if self.link is None and self._is_refused(here.proposal):
                self._fail(now)

    def _close(self, now: float, awaited: Collection[str]) -> None:
        """Close the roll when all who are awaited have come, or a quorum has and time is up."""
        here = self.here
        if not self.electorate.is_quorum(here.comers, self._who_left):
            return
        if here.quorate is None:
            here.quorate = now
        all_here = self.brought is not None and self._who_left.union(here.comers).issuperset(awaited)
        come = self._come()
        if self._is_wary(come):
            come = tuple(each for each in come if each.maker in self.electorate)
        if brought_by(come) and (all_here or now - here.quorate >= self.pace.gather):
            here.closed, here.roll = now, come

    def _come(self) -> tuple[Promise, ...]:
        """The words of those who have come, or have left."""
        left = self._who_left
        come = [each for maker, each in sorted(self.here.comers.items()) if maker not in left]
        return (*come, *(self._leaves[maker].promise for maker in sorted(left)))

    def _heeded(self) -> tuple[Promise, ...]:
        """Those who have come, but for who says it had accepted what could not be had, if others suffice.

        A coordinator could else accept what it alone holds, and bind all later ballots by that.
        """
        come = self._come()
        heeded = tuple(
            each
            for each in come
            if each.leaves or each.accepted is None or each.accepted.choice not in self._unheld
        )
        makers = {each.maker for each in heeded}
        return heeded if self.electorate.is_quorum(makers, self._who_left) else come

    def _is_wary(self, promises: Collection[Promise]) -> bool:
        """Whether the electorate goes on by itself, as half have refused what newcomers had a part in."""
        return self._wary or self._half(promises, lambda each: bool(each.refused))

    def _half(self, promises: Collection[Promise], refuse: Callable[[Promise], bool]) -> bool:
        """Whether half of the electorate who are here ``refuse``: fewer could stop rounds by a word."""
        here = [each for each in promises if each.maker in self.electorate and not each.leaves]
        return 2 * sum(map(refuse, here)) >= len(here)

    def _propose(self, now: float) -> None:
        """Propose what binds us; if nothing does, what most who have come hold, once no more may come."""
        here = self.here
        assert here.closed is not None
        promises = self._heeded()
        if bound := binding(self.electorate, promises):
            basis = next(
                each
                for step in sorted(bound, key=lambda step: step.choice)
                if (each := self._bases.get((step.ballot, step.choice))) is not None
            )
            self._sign_proposal(basis.choice, promises, basis)
            return
        wary = self._is_wary(promises)
        bringing = [each for each in brought_by(promises) if not wary or each.maker in self.electorate]
        brought = [each for each in bringing if self._is_held(each)]
        if now - here.closed < self.pace.exchange and any(
            self._may_come(each, now) for each in bringing if each not in brought
        ):
            return
        choice = Choice(tuple(brought), tuple(sorted(self._who_left)))
        if brought and not self._half(promises, lambda each: choice.id in each.refused):
            self._sign_proposal(choice, promises, None)

    def _sign_proposal(self, choice: Choice, promises: tuple[Promise, ...], basis: Proposal | None) -> None:
        needed = self.electorate.members.union(() if basis else choice.makers)
        shown = tuple(each for each in promises if each.maker in needed)
        word = Proposal(self.me, self.state, self.ballot, choice, shown, basis)
        if not self._is_sound(word):
            return  # few bring anything, say
        self.here.proposal = self.voice.signed(word)
        self.stock.learn(choice.brought)

    def _decide(self, proposal: Proposal) -> None:
        """Make the link, once a quorum has accepted the proposal with one outcome."""
        here = self.here
        for outcome in sorted({each.outcome for each in here.acceptances.values()}):
            found = [each for _, each in sorted(here.acceptances.items()) if each.outcome == outcome]
            makers = {each.maker for each in found} - proposal.left
            if self.electorate.is_quorum(makers, proposal.left):
                acceptances = tuple(each for each in found if each.maker in makers)
                choice, leaves = proposal.choice, proposal.leaves
                self.link = Link(self.state, self.ballot, choice, outcome[0], leaves, acceptances)
                return

    def _is_refused(self, proposal: Proposal) -> bool:
        """Whether half of those who decide have refused it."""
        deciding = self.electorate.deciding(proposal.left)
        return 2 * len(self.here.refusing & deciding) >= len(deciding)

    def _is_of_proposal(self, found: Acceptance) -> bool:
        """Whether it accepts what we propose; a weak one is of no quorum's link."""
        choice = self.here.proposed
        if choice is None or found.weak:
            return False
        return (found.ballot, found.choice) == (self.ballot, choice.id)

    def _is_held(self, brought: Brought) -> bool:
        """Whether more than half of those of the electorate who have come say that they hold it."""
        stock, come = self.stock, self.electorate.members.intersection(self.here.comers)
        held = [stock.held if peer == self.me else stock.held_by.get(peer, ()) for peer in come]
        return 2 * sum(brought.digest in each for each in held) > len(come)

    def _may_come(self, brought: Brought, now: float) -> bool:
        """Whether somebody who has been heard lately can still give it to others."""
        return not self._heard_lately(now).union({self.me}).isdisjoint(self.stock.holders(brought))

    def _heard_lately(self, now: float) -> set[str]:
        return {peer for peer, at in self._heard_at.items() if now - at < self.pace.silence}

    def _is_lost(self, now: float) -> bool:
        """Whether nobody can give what was proposed, though all who decide are here."""
        here = self.here
        if here.proposal is None or not self.electorate.members <= here.comers.keys() | self._who_left:
            return False
        heard = self._heard_lately(now)
        return any(
            each.digest not in self.stock.held and heard.isdisjoint(self.stock.holders(each))
            for each in here.proposal.choice.brought
        )

    def _is_shown(self, report: Report) -> bool:
        """Whether what a promise says was accepted was proposed, as whoever has accepted it can show."""
        accepted, basis = report.promise.accepted, report.basis
        if accepted is None or report.promise.maker not in self.electorate:
            return True
        key = (accepted.ballot, accepted.choice)
        if key in self._bases:
            return True
        if basis is None or (basis.ballot, basis.choice.id) != key or not self._is_sound(basis):
            return False
        self._bases[key] = basis
        return True

    def _is_sound(self, proposal: Proposal) -> bool:
        try:
            check_proposal(proposal, self.electorate)
        except ValueError:
            return False
        return proposal.state == self.state

    def _note_leave(self, report: Report) -> None:
        promise = report.promise
        if not promise.leaves or promise.maker not in self.electorate:
            return
        known = self._leaves.get(promise.maker)
        comes_back = known is not None and known.promise.brought is None and promise.brought is not None
        if (known is None or comes_back) and self._is_shown(report):
            accepted = promise.accepted  # what it does not have to show would be repeated in each message
            basis = None if accepted is None else self._bases.get((accepted.ballot, accepted.choice))
            self._leaves[promise.maker] = Report(promise, basis)
            self.stock.learn([promise.brought])

    def _see(self, peer: str, ballot: int, now: float) -> None:
        """One of the electorate has come to ``ballot``; follow most of the others, one at least is honest."""
        if peer not in self.electorate or peer == self.me or ballot > self.ballot + AHEAD_MAX:
            return
        self._farther[peer] = max(ballot, self._farther.get(peer, 0))
        reached = median_low(self._farther.get(each, 0) for each in self.electorate.members - {self.me})
        if reached > self.ballot:
            self._failed += 1
            self._go_to(reached, now)

    def _is_overdue(self, now: float) -> bool:
        here, pace = self.here, self.pace
        if now - max(here.heard, here.entered) > pace.silence:
            return True
        if here.closed is None:
            return now - here.entered > pace.gather + 3 * pace.silence
        patience = 0.0 if self._is_lost(now) else pace.exchange + 2 * pace.silence
        return now - here.closed > patience + pace.silence

    def _fail(self, now: float) -> None:
        """This ballot brings no state: turn to the next one."""
        proposal = self.here.proposal
        if proposal is not None and not self.stock.has(proposal.choice):
            self._unheld.add(proposal.choice.id)
        self._failed += 1
        self._lonely = self._lonely + 1 if self.here.closed is None else 0
        self._go_to(self.ballot + 1, now)

    def _pass_over(self, passed: Collection[str], now: float) -> None:
        """Turn to the next ballot with another coordinator."""
        ballot = self.ballot
        while coordinator_of(self.electorate, self.state, ballot) in passed:
            ballot += 1
        self._go_to(ballot, now)

    def _go_to(self, ballot: int, now: float) -> None:
        if not self.left:
            self._pledge(ballot=ballot)
        self.stock.turn()
        self.here = _Ballot(ballot, now, accepted=self._pledged.accepted, basis=self._pledged.basis)

    def _promise(self) -> Promise:
        """Our word for this ballot, signed anew when it says something else."""
        here, word = self.here, self._word(self.ballot, self.brought, self.here.accepted)
        if word != here.promise:
            here.promise = self.voice.signed(word)
        return here.promise

    def _word(self, ballot: int, brought: Brought | None, accepted: Accepted | None) -> Promise:
        refused, callable = tuple(sorted(self._pledged.refused)), self.voice.callable
        return Promise(self.me, self.state, ballot, brought, accepted, refused, callable=callable)

    def _pledge(self, **changes: object) -> None:
        pledged = replace(self._pledged, **changes)  # type: ignore[arg-type]
        self.voice.keep(pledged)  # what cannot be kept is not said
        self._pledged = pledged
