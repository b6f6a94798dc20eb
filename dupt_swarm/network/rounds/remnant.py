"""Going on where half or more of an electorate is gone: whoever is there makes a weak link.

One of those who are seen to be there coordinates, and proposes what it holds of what the others bring; all on
the roll sign. Where branches part later, a strong link comes before a weak one, and of two weak ones that
with more signatures of the electorate. Pure, as `ballots` is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from dupt_swarm.network.rounds.ballots import Attempt, Ballots
from dupt_swarm.network.rounds.reports import Answer, Report
from dupt_swarm.replica.draw import drawn
from dupt_swarm.replica.link import Acceptance, Choice, Link, Proposal, brought_by


@dataclass
class _Attempt(Attempt):
    """Besides: the coordinator, its own number of the attempt, and when we have proposed something."""

    coordinator: str = ""
    called: int = -1
    proposed_at: float = 0.0


class Remnant:
    """One member's part in going on with whoever is there.

    Attributes:
        stock: the contributions of this round.
        here: the present attempt.
        link: what was decided, once we know it.
    """

    def __init__(self, ballots: Ballots, now: float) -> None:
        """Begin, having said our last word in these ``ballots``: it brings our contribution."""
        self._ballots = ballots
        self.me, self.state = ballots.me, ballots.state
        self.electorate, self.pace, self.stock = ballots.electorate, ballots.pace, ballots.stock
        self.link: Link | None = None
        self._unfit: set[str] = set()
        self._refused: set[str] = set()  # choices, by their ids
        self.here = _Attempt(0, now, now, coordinator=self.me)

    @property
    def coordinator(self) -> str:
        """The coordinator of now, as far as we see."""
        return self.here.coordinator

    def bring(self, now: float) -> None:
        """Another contribution of ours takes the place of one that was rejected."""
        self._unfit.clear()
        self._turn_to(self.me, now)

    def give_up(self, now: float) -> None:
        """What this attempt's roll bring cannot be had: go on with what we have ourselves."""
        if self.link is None:
            self._unfit |= {each.maker for each in self.here.roll} - {self.me}
            self._turn_to(self.me, now)

    def report(self) -> Report:
        """What to tell the coordinator now."""
        here = self.here
        return replace(
            self._ballots.last_word,
            held=self.stock.told,
            acceptance=here.acceptance,
            refuses=here.proposed is not None and here.proposed.id in self._refused,
        )

    def note(self, report: Report) -> None:
        """What a member has told us, who may be the one that it asks."""
        here = self.here
        promise, found = report.promise, report.acceptance
        self.stock.note_held(promise.maker, report.held)
        if not promise.leaves or self.coordinator != self.me:
            return
        if here.proposal is None:
            if self.stock.admits(promise, here.comers):
                here.comers[promise.maker] = promise
                self.stock.learn([promise.brought])
        elif promise.maker not in here.comers:
            return
        elif found is not None and found.weak and found.choice == here.proposal.choice.id:
            here.acceptances.setdefault(found.maker, found)
        elif report.refuses:
            here.refusing.add(promise.maker)

    def answer(self) -> Answer:
        """What to answer to whoever asks."""
        here, leave = self.here, self._ballots.last_word
        mine = self.coordinator == self.me
        return Answer(
            here.number if mine else leave.promise.ballot,
            weak=True,
            roll=here.come if mine else (),
            closed=mine and here.closed is not None,
            held=self.stock.told,
            proposal=here.proposal,
            link=self.link,
            leaves=(leave,),
        )

    def hear(self, peer: str, answer: Answer, now: float) -> None:
        """What a peer has answered; its link was checked."""
        here = self.here
        if answer.link is not None and (not answer.link.choice.weak or self._would_take(peer, answer.link)):
            self.link = self.link or answer.link
        if peer != self.coordinator:
            return
        if self.link is None and answer.link is not None and not self.stock.has(answer.link.choice):
            self._unfit.add(peer)  # it has gone on without us
            self._turn_to(self.me, now)
            return
        here.heard = now  # it may still be in its ballots
        if not answer.weak:
            return
        self.stock.learn(each.brought for each in answer.roll)
        self.stock.note_held(peer, answer.held)
        if answer.closed and here.called != answer.ballot:
            if here.roll:  # it has begun once more
                self._turn_to(peer, now)
                here = self.here
            here.roll, here.called = answer.roll, answer.ballot
        if (
            answer.proposal is not None
            and answer.proposal != here.proposal
            and self._is_sound(answer.proposal)
        ):
            here.proposal, here.acceptance = answer.proposal, None
            self.stock.learn(answer.proposal.choice.brought)

    @property
    def to_judge(self) -> Choice | None:
        """What to compute and judge now; see `Ballots.judge`."""
        return self.here.to_judge(self._refused, self.stock)

    def judge(
        self, choice: Choice, after: str, dropped: tuple[str, ...] = (), *, accepts: bool = True
    ) -> None:
        """As in `Ballots.judge`."""
        here = self.here
        if here.proposal is None or self.to_judge != choice:
            return
        if not accepts:
            self._refused.add(choice.id)
            return
        word = Acceptance(self.me, self.state, here.proposal.ballot, choice.id, after, dropped, weak=True)
        here.acceptance = here.acceptances[self.me] = self._ballots.voice.signed(word)

    def consider(self, now: float, there: Collection[str] = ()) -> None:
        """Do what is due; ``there`` are the ids of the others that are seen to be at this state."""
        if self.link is not None:
            return
        first = self._first({*there, self.me} - self._unfit)
        if first != self.coordinator and self.here.proposal is None:
            self._turn_to(first, now)
        if self.coordinator == self.me:
            self._coordinate(now, {*there} - self._unfit)
        elif self._is_overdue(now):
            self._unfit.add(self.coordinator)
            self._turn_to(self.me, now)

    def _first(self, there: set[str]) -> str:
        """Members of the electorate, then former ones, then anybody; we are always there."""
        chosen = (there & self.electorate.members) or (there & self.electorate.former) or there
        return drawn(chosen, self.state)[0]

    def _coordinate(self, now: float, awaited: set[str]) -> None:
        here = self.here
        here.comers[self.me] = self._ballots.last_word.promise
        patient = now - here.entered < self.pace.gather
        if here.closed is None and (here.comers.keys() >= awaited or not patient):
            here.closed, here.roll, here.called = now, tuple(here.comers.values()), here.number
        if here.closed is not None and here.proposal is None:
            self._propose(now)
        if here.proposal is not None:
            self._decide(now)

    def _propose(self, now: float) -> None:
        """Propose what we hold: all that was brought, or what has come when time is up."""
        here = self.here
        assert here.closed is not None
        brought = brought_by(here.comers.values())
        held = tuple(each for each in brought if each.digest in self.stock.held)
        if held and (len(held) == len(brought) or now - here.closed >= self.pace.exchange):
            choice = Choice(held, weak=True)
            if choice.id in self._refused:
                return  # until somebody brings something else
            word = Proposal(self.me, self.state, here.number, choice, tuple(here.comers.values()))
            here.proposal, here.proposed_at = self._ballots.voice.signed(word), now

    def _decide(self, now: float) -> None:
        """Make the link when all have accepted or refused what we propose, or time is up."""
        here = self.here
        assert here.proposal is not None
        mine = here.acceptances.get(self.me)
        if mine is None:
            if here.proposal.choice.id in self._refused:
                self._turn_to(self.me, now)
            return
        found = tuple(
            each
            for _, each in sorted(here.acceptances.items())
            if (each.accepted, each.outcome) == (mine.accepted, mine.outcome)
        )
        missing = here.comers.keys() - {each.maker for each in found} - here.refusing
        if not missing or now - here.proposed_at > self.pace.exchange + 2 * self.pace.silence:
            self.link = Link(self.state, here.number, here.proposal.choice, mine.after, (), found)

    def _would_take(self, peer: str, link: Link) -> bool:
        """Whether to go on by a weak link: that of our coordinator, to what we have accepted too."""
        mine = self.here.acceptance
        if peer != self.coordinator or mine is None:
            return False
        return (link.choice.id, link.outcome) == (mine.choice, mine.outcome)

    def _is_sound(self, proposal: Proposal) -> bool:
        """Whether it may be signed: it is of the peer that we ask, and names what was stated."""
        choice = proposal.choice
        stated = {each.brought for each in proposal.promises if each.leaves and each.state == self.state}
        return (
            choice.weak
            and proposal.maker == self.coordinator
            and proposal.state == self.state
            and bool(choice.brought)
            and stated.issuperset(choice.brought)
            and list(choice.makers) == sorted(set(choice.makers))
        )

    def _is_overdue(self, now: float) -> bool:
        here, pace = self.here, self.pace
        if now - here.heard > pace.silence:
            return True
        return now - here.entered > 2 * (pace.gather + pace.exchange + 3 * pace.silence)

    def _turn_to(self, coordinator: str, now: float) -> None:
        self.stock.turn()
        self.here = _Attempt(self.here.number + 1, now, now, coordinator=coordinator)
