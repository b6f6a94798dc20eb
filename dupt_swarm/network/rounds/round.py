"""One member's part in a round, from a state to the link that leaves it: pure, as what is beneath it.

A round begins with ballots, and goes on as a remnant where half or more of the electorate is gone. Whoever
drives it fetches what it wants, computes and judges what it is asked to, carries its reports to the
coordinator, and lets it consider what is due, now and then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from dupt_swarm.network.rounds.ballots import Ballots
from dupt_swarm.network.rounds.remnant import Remnant
from dupt_swarm.network.rounds.reports import Answer, Report
from dupt_swarm.replica.link import Brought, Choice, Link, Promise, brought_by


@dataclass(frozen=True)
class Roll:
    """Those who end a ballot together.

    Attributes:
        coordinator: id of who says so.
        ballot: or the number of a remnant's attempt.
        weak: whether it is one of those.
        promises: of those who bring something, in the order of the arithmetic.
    """

    coordinator: str
    ballot: int
    weak: bool
    promises: tuple[Promise, ...]

    @property
    def brought(self) -> tuple[Brought, ...]:
        """What they bring, in that order."""
        return brought_by(self.promises)

    @property
    def id(self) -> str:
        """Hexadecimal; the state is a part of what they bring."""
        rows = [f"{each.maker} {each.digest} {each.tokens}" for each in self.brought]
        text = "\n".join([self.coordinator, str(self.ballot), str(self.weak), *rows])
        return hashlib.sha256(text.encode()).hexdigest()


class Round:
    """One member's part in leaving one state.

    Attributes:
        ballots: our part in them; others may be in them still while we are a remnant.
        remnant: our part in that, once there is one.
        stock: the contributions of this round.
    """

    def __init__(self, ballots: Ballots) -> None:
        """Begin with ``ballots``."""
        self.ballots = ballots
        self.remnant: Remnant | None = None
        self.stock = ballots.stock

    @property
    def part(self) -> Ballots | Remnant:
        """The one that we act in."""
        return self.remnant or self.ballots

    @property
    def link(self) -> Link | None:
        """What was decided, once we know it."""
        return self.part.link

    @property
    def _is_idle(self) -> bool:
        """Whether there is nothing that we bring."""
        return self.ballots.brought is None

    @property
    def coordinator(self) -> str:
        """The peer to tell our report; empty while there is nothing to tell."""
        coordinator = self.part.coordinator
        return "" if self._is_idle or coordinator == self.ballots.me else coordinator

    @property
    def roll(self) -> Roll | None:
        """What is to be averaged, once nobody else is waited for."""
        part = self.part
        if not part.here.roll:
            return None
        number = part.here.called if isinstance(part, Remnant) else part.ballot
        bringing = sorted((each for each in part.here.roll if each.brought), key=lambda each: each.maker)
        return Roll(part.coordinator, number, isinstance(part, Remnant), tuple(bringing))

    @property
    def proposed(self) -> Choice | None:
        """What was proposed, if anything was."""
        return self.part.here.proposed

    @property
    def to_judge(self) -> Choice | None:
        """What to compute and judge now; see `judge`."""
        return self.part.to_judge

    def bring(self, brought: Brought, now: float) -> None:
        """Our contribution is ready: from now on we wait for others. See `Ballots.bring`."""
        self.ballots.bring(brought, now)
        if self.ballots.left:
            self.ballots.leave(bringing=True)
        if self.remnant is not None:
            self.remnant.bring(now)

    def retract(self) -> None:
        """What we have brought is not brought any more, until there is another contribution of ours."""
        self.ballots.brought = None

    def give_up(self, roll: Roll, now: float) -> None:
        """What this roll bring cannot be had."""
        if self.roll == roll:
            self.part.give_up(now)

    def judge(
        self, choice: Choice, after: str, dropped: tuple[str, ...] = (), *, accepts: bool = True
    ) -> None:
        """``choice`` leads to the state ``after``, and we accept that, or refuse the choice for good.

        ``dropped`` are the ids of those whose contributions count for nothing in it, in order.
        """
        self.part.judge(choice, after, dropped, accepts=accepts)

    def follow(self, link: Link) -> None:
        """Leave the state by ``link``, which somebody has told us, and which was verified."""
        self.part.link = self.part.link or link

    def leave(self) -> Report:
        """Say our last word on this state, as we stop; peers that hear it count us no more."""
        self.ballots.leave()
        return self.ballots.report()

    def report(self) -> Report:
        """What to tell the coordinator now."""
        return self.part.report()

    def note(self, report: Report, now: float) -> None:
        """What a member has told us."""
        self.ballots.note(report, now)
        if self.remnant is not None:
            self.remnant.note(report)

    def answer(self) -> Answer:
        """What to answer to whoever asks."""
        return self.part.answer()

    def hear(self, peer: str, answer: Answer, now: float) -> None:
        """What a peer has answered; its link was checked."""
        self.part.hear(peer, answer, now)

    def consider(
        self,
        now: float,
        here: Collection[str],
        coming: Collection[str] = (),
        gone: Collection[str] = (),
        unable: Collection[str] = (),
    ) -> None:
        """Do what is due.

        Args:
            now: seconds on any clock.
            here: ids of the others that are seen to be at this state.
            coming: of those that are seen to be on their way here.
            gone: of those that are seen to be nowhere.
            unable: of those that cannot be called, though they are there.
        """
        ballots = self.ballots
        if self.remnant is not None:
            if not self._is_idle:
                self.remnant.consider(now, here)
            return
        ballots.consider(now, {*here, *coming}, {*gone, *unable})
        if ballots.link is None and ballots.brought is not None and ballots.is_hopeless(gone):
            ballots.leave(bringing=True)
            self.remnant = Remnant(ballots, now)
