"""Reports and answers as they travel: words with their signatures, of which none is believed without it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from dupt_swarm.fields import Count, Digest
from dupt_swarm.network.p2p.rpc import Message
from dupt_swarm.network.rounds.reports import Answer, Report
from dupt_swarm.network.rounds.voice import Pledged
from dupt_swarm.replica.electorate import ROWS_MAX
from dupt_swarm.replica.link import BASES_MAX, BROUGHT_MAX, Acceptance, Promise, Proposal, Word
from dupt_swarm.replica.signed import as_text, from_text
from dupt_swarm.replica.signed_words import AcceptedRecord, LinkRecord, Plain, Signed, Words

# A hundred members and as many others; each promise has some 0.5 kB, and what was accepted comes again.
REPORT_BYTES_MAX = ANSWER_BYTES_MAX = 480_000


class _Basis(Plain):
    """A proposal with what its coordinator was promised for it."""

    word: Signed
    promises: Annotated[tuple[Signed, ...], Field(max_length=ROWS_MAX)] = ()


Bases = Annotated[tuple[_Basis, ...], Field(max_length=BASES_MAX)]
"""A proposal, and those that bind it, one after the other."""


class _Leave(Plain):
    """The last word of one who has left, with the proposal that it had accepted."""

    promise: Signed
    basis: Bases = ()


Leaves = Annotated[tuple[_Leave, ...], Field(max_length=ROWS_MAX)]


def _bases_of(proposal: Proposal | None) -> Bases:
    found = []
    while proposal is not None:
        promises = tuple(as_text(each.signed) for each in proposal.promises)
        found.append(_Basis(word=as_text(proposal.signed), promises=promises))
        proposal = proposal.basis
    return tuple(found)


def _proposal(bases: Bases, words: Words) -> Proposal | None:
    found: Proposal | None = None
    for each in reversed(bases):
        promises = words.read_all(each.promises, Promise)
        found = words.proposal(from_text(each.word), promises, found)
    return found


def _leaves_of(leaves: tuple[Report, ...]) -> Leaves:
    return tuple(_Leave(promise=as_text(each.promise.signed), basis=_bases_of(each.basis)) for each in leaves)


def _leaves(leaves: Leaves, words: Words) -> tuple[Report, ...]:
    return tuple(
        Report(words.read(from_text(each.promise), Promise), _proposal(each.basis, words)) for each in leaves
    )


class PledgedRecord(Plain):
    """What a member has signed of one state, as it is kept."""

    ballot: Annotated[int, Field(ge=-1, lt=1 << 62)] = -1
    accepted: AcceptedRecord | None = None
    basis: Bases = ()
    refused: tuple[Digest, ...] = ()
    leave: Signed | None = None
    once: tuple[Digest, ...] = ()

    @classmethod
    def of(cls, pledged: Pledged) -> PledgedRecord:
        """As it is kept."""
        accepted, leave = pledged.accepted, pledged.leave
        return cls(
            ballot=pledged.ballot,
            accepted=AcceptedRecord.of(accepted) if accepted else None,
            basis=_bases_of(pledged.basis),
            refused=tuple(sorted(pledged.refused)),
            leave=as_text(leave.signed) if leave else None,
            once=tuple(sorted(pledged.once)),
        )

    def pledged(self, words: Words) -> Pledged:
        """What it says.

        Raises:
            ValueError: a word in it is malformed.
        """
        return Pledged(
            self.ballot,
            self.accepted.accepted if self.accepted else None,
            _proposal(self.basis, words),
            frozenset(self.refused),
            words.read(from_text(self.leave), Promise) if self.leave else None,
            frozenset(self.once),
        )


class ReportMessage(Message):
    """A report, of whoever calls."""

    elements_max: ClassVar[int] = 20_000

    state: Digest
    promise: Signed
    basis: Bases = ()
    held: Annotated[tuple[Digest, ...], Field(max_length=BROUGHT_MAX)] = ()
    acceptance: Signed | None = None
    refuses: bool = False
    leaves: Leaves = ()

    @classmethod
    def of(cls, report: Report) -> ReportMessage:
        """As it travels."""
        acceptance = report.acceptance
        return cls(
            state=report.promise.state,
            promise=as_text(report.promise.signed),
            basis=_bases_of(report.basis),
            held=tuple(sorted(report.held)),
            acceptance=as_text(acceptance.signed) if acceptance else None,
            refuses=report.refuses,
            leaves=_leaves_of(report.leaves),
        )

    def report(self, words: Words, caller: str, weight_max: float) -> Report:
        """What ``caller`` reports, where a contribution can stand for ``weight_max`` tokens.

        Raises:
            ValueError: a word in it is malformed, said by another, about another state or more tokens.
        """
        promise = words.read(from_text(self.promise), Promise)
        acceptance = words.read(from_text(self.acceptance), Acceptance) if self.acceptance else None
        if {promise.maker, acceptance.maker if acceptance else caller} != {caller}:
            raise ValueError("a report of somebody else")
        report = Report(
            promise,
            _proposal(self.basis, words),
            frozenset(self.held),
            acceptance,
            self.refuses,
            _leaves(self.leaves, words),
        )
        _check(report.words, self.state, weight_max)
        return report


class AnswerMessage(Message):
    """An answer to a report."""

    elements_max: ClassVar[int] = 20_000

    ballot: Count
    weak: bool = False
    roll: Annotated[tuple[Signed, ...], Field(max_length=ROWS_MAX)] = ()
    closed: bool = False
    held: Annotated[tuple[Digest, ...], Field(max_length=BROUGHT_MAX)] = ()
    proposal: Bases = ()
    link: LinkRecord | None = None
    leaves: Leaves = ()

    @classmethod
    def of(cls, answer: Answer) -> AnswerMessage:
        """As it travels."""
        return cls(
            ballot=answer.ballot,
            weak=answer.weak,
            roll=tuple(as_text(each.signed) for each in answer.roll),
            closed=answer.closed,
            held=tuple(sorted(answer.held)),
            proposal=_bases_of(answer.proposal),
            link=LinkRecord.of(answer.link) if answer.link else None,
            leaves=_leaves_of(answer.leaves),
        )

    def answer(self, words: Words, state: str, weight_max: float) -> Answer:
        """What it says about how ``state`` is left, where a contribution can stand for ``weight_max`` tokens.

        Raises:
            ValueError: a word in it is malformed, or about another state or more tokens.
        """
        answer = Answer(
            self.ballot,
            self.weak,
            words.read_all(self.roll, Promise),
            self.closed,
            frozenset(self.held),
            _proposal(self.proposal, words),
            self.link.link(words) if self.link else None,
            _leaves(self.leaves, words),
        )
        _check(answer.words, state, weight_max)
        return answer


def _check(words: list[Word], state: str, weight_max: float) -> None:
    for word in words:
        if word.state != state:
            raise ValueError("a word about another state")
        brought = word.choice.brought if isinstance(word, Proposal) else ()
        if isinstance(word, Promise) and word.brought is not None:
            brought = (word.brought,)
        if any(each.tokens > weight_max for each in brought):
            raise ValueError("a contribution that stands for more than it can")
