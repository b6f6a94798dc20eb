"""What one that lies does when it coordinates: it has the words of all, and answers as it likes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.network.rounds.ballots import Ballots
from dupt_swarm.network.rounds.desk import Desk
from dupt_swarm.network.rounds.messages import AnswerMessage, ReportMessage
from dupt_swarm.network.rounds.reports import Answer
from dupt_swarm.network.rounds.round import Round
from dupt_swarm.replica.link import Acceptance, Choice, Link, Proposal
from tests.support.turncoats.orders import NOBODYS, Attack, Orders, Patch, change

TWO_CHOICES, TWO_LINKS = "two choices", "two choices and a link of each"
IGNORES, OWN_CHOICE, WITHHELD_CHOICE = "ignores", "own choice", "a choice of what it withholds"
WITHOUT_ONE, FALSE_LINK, WEAK_LINK = "without one", "false link", "weak link"
SILENT, NOT_YET = "silent", "not yet"
# Of an honest one: it is cut off when it alone knows what was decided.
CUT_OFF = "cut off"

Forge = Callable[[Desk, Answer, str], Answer]
"""Makes of the true answer to a member what that gets."""


def prepare(orders: Orders, patch: Patch) -> None:
    """Be ready to do it."""
    forges: dict[str, Forge] = {
        TWO_CHOICES: _two_choices,
        IGNORES: _ignore,
        WITHHELD_CHOICE: _everything,
        FALSE_LINK: _show_link,
        WEAK_LINK: _show_weak_link,
        NOT_YET: _put_off,
    }
    attacks: dict[str, Attack] = {name: partial(_forge, orders, each) for name, each in forges.items()}
    attacks |= {SILENT: partial(_refuse, orders), CUT_OFF: partial(_cut_off, orders)}
    attacks[TWO_LINKS] = partial(_two_links, orders)
    change(orders, patch, Desk, "answer", me_of, attacks)
    refusing = {TWO_CHOICES: _refuse_own}
    change(orders, patch, Round, "judge", lambda round: round.ballots.me, refusing)
    proposals = {WITHOUT_ONE: partial(_all_but_one, orders), OWN_CHOICE: partial(_only_own, orders)}
    change(orders, patch, Ballots, "_sign_proposal", lambda ballots: ballots.me, proposals)


def me_of(desk: Desk) -> str:
    """Whose it is."""
    return desk.round.ballots.me


def _coordinates(desk: Desk) -> bool:
    return desk.round.remnant is None and desk.round.ballots.coordinator == me_of(desk)


async def _forge(
    orders: Orders, forge: Forge, real: Attack, desk: Desk, caller: str, message: ReportMessage
) -> AnswerMessage:
    told: AnswerMessage = await real(desk, caller, message)
    if not _coordinates(desk):
        return told
    true = told.answer(desk.words, desk.round.ballots.state, desk.weight_max)
    forged = forge(desk, true, caller)
    if forged != true or forged.proposal != true.proposal:
        orders.report()
    return AnswerMessage.of(forged)


def _proposing(desk: Desk, answer: Answer, choice: Choice) -> Answer:
    """``answer`` with such a proposal, in place of the true one, and without a link."""
    assert answer.proposal is not None
    word = replace(answer.proposal, choice=choice, basis=None)
    return replace(answer, proposal=desk.round.ballots.voice.signed(word), link=None)


def _without_first(desk: Desk, choice: Choice) -> Choice:
    """The choice without the contribution of the first of the others."""
    first = next(each for each in choice.brought if each.maker != me_of(desk))
    return replace(choice, brought=tuple(each for each in choice.brought if each is not first))


def _is_first(desk: Desk, choice: Choice, member: str) -> bool:
    """Whether this member is in the smaller half of the others."""
    others = sorted(set(choice.makers) - {me_of(desk)})
    return member in others[: len(others) // 2]


def _two_choices(desk: Desk, answer: Answer, member: str) -> Answer:
    proposal = answer.proposal
    if proposal is None or not _is_first(desk, proposal.choice, member):
        return replace(answer, link=None)
    return _proposing(desk, answer, _without_first(desk, proposal.choice))


def _refuse_own(
    real: Attack, round: Round, choice: Choice, after: str, dropped: Any = (), **_: object
) -> None:
    """It accepts nothing, so that neither of its own proposals is decided."""
    real(round, choice, after, dropped, accepts=False)


async def _two_links(
    orders: Orders, real: Attack, desk: Desk, caller: str, message: ReportMessage
) -> AnswerMessage:
    """Propose another choice to half of the others, accept both, and show each half a link of its own."""
    told: AnswerMessage = await real(desk, caller, message)
    if not _coordinates(desk):
        return told
    answer = told.answer(desk.words, desk.round.ballots.state, desk.weight_max)
    proposal, ballots = answer.proposal, desk.round.ballots
    if proposal is None or not _is_first(desk, proposal.choice, caller):
        return told
    orders.report()
    choice = _without_first(desk, proposal.choice)
    found = message.report(desk.words, caller, desk.weight_max).acceptance
    if found is None or found.choice != choice.id:
        return AnswerMessage.of(_proposing(desk, answer, choice))
    others: dict[str, Any] = desk.__dict__.setdefault("others_accepted", {})
    others[caller] = found
    others[ballots.me] = ballots.voice.signed(replace(found, maker=ballots.me))
    link = None
    if ballots.electorate.is_quorum(others, proposal.left):
        accepted = tuple(each for _, each in sorted(others.items()))
        link = Link(desk.round.ballots.state, found.ballot, choice, found.after, proposal.leaves, accepted)
    return AnswerMessage.of(replace(_proposing(desk, answer, choice), link=link))


def _ignore(desk: Desk, answer: Answer, member: str) -> Answer:
    """Propose something new, whatever binds it."""
    del member
    proposal = answer.proposal
    if proposal is None or proposal.basis is None:
        return answer
    return _proposing(desk, answer, _without_first(desk, proposal.choice))


def _everything(desk: Desk, answer: Answer, member: str) -> Answer:
    """Propose what all bring, as soon as they have come."""
    del member
    if not answer.closed:
        return answer
    brought = sorted((each.brought for each in answer.roll if each.brought), key=lambda each: each.maker)
    word = Proposal(
        *(me_of(desk), desk.round.ballots.state, answer.ballot), Choice(tuple(brought)), promises=answer.roll
    )
    return replace(answer, proposal=desk.round.ballots.voice.signed(word), link=None)


def _all_but_one(
    orders: Orders, real: Attack, ballots: Ballots, choice: Choice, promises: Any, basis: Proposal | None
) -> None:
    """Propose what all bring, but for the first of the others."""
    orders.report()
    first = next(each for each in choice.brought if each.maker != ballots.me)
    less = replace(choice, brought=tuple(each for each in choice.brought if each is not first))
    real(ballots, choice if basis else less, promises, basis)


def _only_own(
    orders: Orders, real: Attack, ballots: Ballots, choice: Choice, promises: Any, basis: Proposal | None
) -> None:
    """Propose its own contribution alone, which nobody takes who looks at it."""
    del real, basis
    orders.report()
    mine = tuple(each for each in choice.brought if each.maker == ballots.me)
    word = Proposal(ballots.me, ballots.state, ballots.ballot, replace(choice, brought=mine), promises)
    ballots.here.proposal = ballots.voice.signed(word)


def _show_link(desk: Desk, answer: Answer, member: str) -> Answer:
    """It alone has accepted it."""
    del member
    found = desk.round.ballots.report().acceptance
    if found is None or answer.proposal is None:
        return answer
    choice = answer.proposal.choice
    return replace(
        answer, link=Link(desk.round.ballots.state, answer.ballot, choice, found.after, (), (found,))
    )


def _show_weak_link(desk: Desk, answer: Answer, member: str) -> Answer:
    """It alone has made it, of its own contribution."""
    del member
    ballots = desk.round.ballots
    if ballots.brought is None or answer.proposal is None:
        return answer
    choice = Choice((ballots.brought,), weak=True)
    word = Acceptance(ballots.me, desk.round.ballots.state, 0, choice.id, NOBODYS, weak=True)
    link = Link(desk.round.ballots.state, 0, choice, NOBODYS, (), (ballots.voice.signed(word),))
    return replace(answer, link=link)


def _put_off(desk: Desk, answer: Answer, member: str) -> Answer:
    del desk, member
    return replace(answer, roll=(), closed=False, proposal=None, link=None)


async def _refuse(
    orders: Orders, real: Attack, desk: Desk, caller: str, message: ReportMessage
) -> AnswerMessage:
    if _coordinates(desk):
        orders.report()
        raise CallError(Refusal.FAILED, "not with me")
    told: AnswerMessage = await real(desk, caller, message)
    return told


async def _cut_off(
    orders: Orders, real: Attack, desk: Desk, caller: str, message: ReportMessage
) -> AnswerMessage:
    """Nobody hears of the link."""
    told: AnswerMessage = await real(desk, caller, message)
    if desk.round.link is None:
        return told
    orders.report()
    raise CallError(Refusal.FAILED, "it is cut off")
