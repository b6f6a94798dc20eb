"""What one that lies does with its reports, and with what it signs as a member."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from dupt_swarm.network.rounds.deciding import Deciding
from dupt_swarm.network.rounds.desk import Desk
from dupt_swarm.network.rounds.messages import ReportMessage
from dupt_swarm.network.rounds.reports import Report
from dupt_swarm.network.rounds.round import Round
from dupt_swarm.replica.link import Accepted, Choice, Promise, Proposal, coordinator_of
from tests.support.turncoats.orders import NOBODYS, Attack, Orders, Patch, change

FAR = 40  # ballots that no honest round needs

TWO_STATES, ANOTHER_STATE, ACCEPTS_NOTHING = "two states", "another state", "accepts nothing"
DENIES, INVENTS, REFUSES = "denies", "invents", "refuses"
LEAVES_AND_STAYS, LATER_BALLOTS = "leaves and stays", "later ballots"

_TELLING: set[asyncio.Future[object]] = set()

Tell = Callable[[str, Report], Awaitable[object]]


def prepare(orders: Orders, patch: Patch) -> None:
    """Be ready to do it."""
    lies = {
        TWO_STATES: _two_states,
        ACCEPTS_NOTHING: _accept_nothing,
        DENIES: _deny,
        INVENTS: _invent,
        REFUSES: _refuse,
        LEAVES_AND_STAYS: _leave_and_stay,
        LATER_BALLOTS: _lead_away,
    }
    asks = {name: partial(_ask, orders, lie) for name, lie in lies.items()}
    change(orders, patch, Deciding, "ask", lambda deciding: deciding._context.me, asks)
    judges = {ANOTHER_STATE: partial(_judge_falsely, orders)}
    change(orders, patch, Round, "judge", lambda round: round.ballots.me, judges)


async def _ask(
    orders: Orders,
    lie: Callable[[Desk, Report, str, Tell], Awaitable[Report]],
    real: Attack,
    deciding: Deciding,
    peer: str,
    message: ReportMessage,
) -> Any:
    """Tell ``peer`` what ``lie`` makes of the report, and before it whatever that tells by itself."""
    desk = deciding.desk_of(message.state)
    assert desk is not None
    true = message.report(desk.words, deciding._context.me, desk.weight_max)

    async def tell(other: str, report: Report) -> None:
        orders.report()
        with contextlib.suppress(Exception):  # it may be at another state
            await real(deciding, other, ReportMessage.of(report))

    told = true if true.promise.leaves else await lie(desk, true, peer, tell)
    if told != true:
        orders.report()
    return await real(deciding, peer, ReportMessage.of(told))


def _signed(desk: Desk, promise: Promise) -> Promise:
    return desk.round.ballots.voice.signed(promise)


async def _two_states(desk: Desk, report: Report, peer: str, tell: Tell) -> Report:
    found = report.acceptance
    if found is not None:
        other = desk.round.ballots.voice.signed(replace(found, after=NOBODYS))
        await tell(peer, replace(report, acceptance=other))
    return report


async def _accept_nothing(desk: Desk, report: Report, peer: str, tell: Tell) -> Report:
    del desk, peer, tell
    return replace(report, acceptance=None)


async def _deny(desk: Desk, report: Report, peer: str, tell: Tell) -> Report:
    """Say that nothing was accepted before."""
    del peer, tell
    promise = replace(report.promise, accepted=None)
    return (
        report if promise == report.promise else replace(report, promise=_signed(desk, promise), basis=None)
    )


async def _invent(desk: Desk, report: Report, peer: str, tell: Tell) -> Report:
    """Say that something was accepted which nobody had proposed."""
    del peer, tell
    promise = report.promise
    if promise.brought is None or not promise.ballot:
        return report
    choice = Choice((promise.brought,))
    before = promise.ballot - 1
    promise = _signed(desk, replace(promise, accepted=Accepted(before, choice.id, NOBODYS)))
    basis = Proposal(desk.round.ballots.me, desk.round.ballots.state, before, choice, (promise,))
    return replace(report, promise=promise, basis=desk.round.ballots.voice.signed(basis))


async def _refuse(desk: Desk, report: Report, peer: str, tell: Tell) -> Report:
    """Refuse all that is proposed."""
    del peer, tell
    return replace(report, acceptance=None, refuses=desk.round.proposed is not None)


async def _leave_and_stay(desk: Desk, report: Report, peer: str, tell: Tell) -> Report:
    word = replace(report.promise, brought=None, leaves=True)
    await tell(peer, Report(_signed(desk, word), report.basis))
    return report


async def _lead_away(desk: Desk, report: Report, peer: str, tell: Tell) -> Report:
    """Tell each of the others that a far ballot is its own."""
    del peer
    ballots = desk.round.ballots
    later: dict[str, int] = {}
    for number in range(FAR, FAR + len(ballots.electorate.members)):
        later[coordinator_of(ballots.electorate, desk.round.ballots.state, number)] = number
    later.pop(ballots.me, None)
    for each, number in later.items():
        said = Report(_signed(desk, replace(report.promise, ballot=number)))
        telling = asyncio.ensure_future(tell(each, said))  # their answers take longer than its own report may
        _TELLING.add(telling)
        telling.add_done_callback(_TELLING.discard)
    return report


def _judge_falsely(
    orders: Orders, real: Attack, round: Round, choice: Choice, after: str, *args: Any, **how: Any
) -> None:
    """Accept another state than was computed."""
    del after
    orders.report()
    real(round, choice, NOBODYS, *args, **how)
