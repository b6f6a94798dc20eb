"""Peers of a simulated swarm that lie, each with what it could gain: another state for some of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dupt_swarm.network.rounds.ballots import Ballots
from dupt_swarm.network.rounds.reports import Answer, Report
from dupt_swarm.network.rounds.voice import Pledged
from dupt_swarm.replica.link import Acceptance, Accepted, Choice, Link, Promise, Proposal
from tests.support.simulated_rounds import FIRST, SimPeer, state_after


class Liar(SimPeer):
    """It helps any liar: it accepts whatever it is shown, as often as it is shown it, and denies that."""

    honest = False

    def note(self, report: Report) -> Answer | list[Link]:
        found = super().note(report)
        if isinstance(found, Answer) and found.proposal is not None and not found.weak:
            return self._answer_with(found, found.proposal, report)
        return found

    def _answer_with(self, answer: Answer, proposal: Proposal, report: Report) -> Answer:
        del proposal, report
        return answer

    def _begin(self) -> None:
        super()._begin()
        self._deny()

    def _keep(self, state: str, pledged: Pledged) -> None:
        """It remembers nothing that it has said."""

    def _deny(self) -> None:
        ballots = self.round.ballots

        def report() -> Report:
            accepted = Ballots.report(ballots)
            promise = replace(accepted.promise, accepted=None)
            self._sign(promise)
            return replace(accepted, promise=promise, basis=None)

        ballots.report = report  # type: ignore[method-assign]


class TwoFaced(Liar):
    """As a coordinator it proposes one choice to some and another to the others, and makes a link of each."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.faces: dict[str, tuple[Proposal, dict[str, Acceptance]]] = {}

    def _answer_with(self, answer: Answer, proposal: Proposal, report: Report) -> Answer:
        if sum(map(ord, report.promise.maker)) % 2 == 0 or len(proposal.choice.brought) < 3:
            return answer
        other = replace(
            proposal, choice=Choice(proposal.choice.brought[1:], proposal.choice.left), basis=None
        )
        choice = other.choice
        if choice.id not in self.faces:
            self._sign(other)
            self.faces[choice.id] = (other, {})
        _, acceptances = self.faces[choice.id]
        after = state_after(other.state, choice)
        for liar in self.network.peers.values():  # all of them are in it
            if not liar.honest:
                word = Acceptance(liar.name, other.state, other.ballot, choice.id, after)
                liar._sign(word)
                acceptances[liar.name] = word
        found = report.acceptance
        if found is not None and found.choice == choice.id and found.ballot == other.ballot:
            acceptances[found.maker] = found
        link = None
        if self.chain.electorate.is_quorum(acceptances.keys(), other.left):
            signed = tuple(each for _, each in sorted(acceptances.items()))
            link = Link(other.state, other.ballot, choice, after, other.leaves, signed)
        return replace(answer, proposal=other, link=link)


class Forger(Liar):
    """It promises that it has accepted what nobody proposed, and shows links that nobody has accepted."""

    def _deny(self) -> None:
        ballots = self.round.ballots

        def report() -> Report:
            said = Ballots.report(ballots)
            if ballots.brought is None or said.promise.leaves or not said.promise.ballot:
                return said
            choice = Choice((ballots.brought,))
            forged = Accepted(said.promise.ballot - 1, choice.id, state_after(said.promise.state, choice))
            promise = replace(said.promise, accepted=forged)
            self._sign(promise)
            basis = Proposal(self.name, promise.state, forged.ballot, choice, (promise,))
            return replace(said, promise=promise, basis=basis)

        ballots.report = report  # type: ignore[method-assign]

    def _answer_with(self, answer: Answer, proposal: Proposal, report: Report) -> Answer:
        del report
        after = state_after(proposal.state, proposal.choice)
        word = Acceptance(self.name, proposal.state, proposal.ballot, proposal.choice.id, after)
        return replace(
            answer, link=Link(proposal.state, proposal.ballot, proposal.choice, after, (), (word,))
        )


class Leaver(Liar):
    """It says that it leaves, and then goes on as if it had not."""

    def _deny(self) -> None:
        ballots = self.round.ballots
        promise = Promise(self.name, self.chain.head, ballots.ballot, leaves=True)
        if self.chain.head != FIRST:
            self._sign(promise)
            leaving = Report(promise)
            for peer in sorted(self.there()):
                self.network.call(self, peer, lambda other: other.note(leaving), lambda _: None)


class Weakly(Liar):
    """It accepts what is proposed as if it were weak, so that links of a quorum are none."""

    def _deny(self) -> None:
        super()._deny()
        report = self.round.ballots.report

        def weakly() -> Report:
            said = report()
            if said.acceptance is None:
                return said
            word = replace(said.acceptance, weak=True)
            self._sign(word)
            return replace(said, acceptance=word)

        self.round.ballots.report = weakly  # type: ignore[method-assign]


LIARS: tuple[type[SimPeer], ...] = (TwoFaced, Liar, Weakly, Forger, Leaver)
