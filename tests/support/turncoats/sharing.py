"""What a hostile voter does where contributions are shared: with its own, and with the list that counts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from dupt_swarm.network.averaging.reports import (
    Acceptance,
    AnswerMessage,
    Decision,
    DecisionMessage,
    Places,
    Report,
    ReportMessage,
    _bits,
)
from dupt_swarm.network.averaging.session import Ask, Session
from dupt_swarm.network.averaging.share import Agreements
from dupt_swarm.network.host import background
from dupt_swarm.network.states.exchange import ChunksMessage, Exchange
from dupt_swarm.replica.contribution import CONTRIBUTION
from tests.support.turncoats.orders import Orders

WITHHELD, FOR_SOME, GARBLED = "withheld", "for some", "garbled for some"
TWO_LISTS, OWN_LIST, WITHHELD_LIST = "two lists", "own list", "a list of what it withholds"
NOTHING_HELD, LATER_BALLOTS = "nothing held", "later ballots"


_its_turn: dict[str, bool] = {}  # by the digest of the own contribution: whether it coordinates first


def prepare(orders: Orders) -> None:
    """Be ready to do it."""
    attacks = {WITHHELD: _withhold, FOR_SOME: _give_some, GARBLED: _garble}
    chunks = {name: _of_contributions(each) for name, each in attacks.items()}
    orders.change(Exchange, "rpc_chunks", {**chunks, WITHHELD_LIST: _chunks_unless_its_turn})
    lists = {OWN_LIST: _only_own, WITHHELD_LIST: _everything}
    proposing = {name: partial(_propose, orders, choose) for name, choose in lists.items()}
    orders.change(Session, "answer", {**proposing, TWO_LISTS: _propose_two})
    orders.change(Session, "decide", {LATER_BALLOTS: _lead_away, WITHHELD_LIST: _note_its_turn})
    orders.change(Agreements, "ask", {NOTHING_HELD: _claim_nothing})


def _of_contributions(attack: Callable[[int, bytes, str], bytes | None]) -> Callable[..., Any]:
    """What ``attack`` makes of each chunk of a contribution, by its number, for a peer; None: no more."""

    async def chunks(
        real: Callable[..., Any], exchange: Exchange, request: ChunksMessage, caller: str
    ) -> AsyncGenerator[Any, None]:
        blob = exchange._find(request.digest)
        hostile = blob is not None and blob.index.header.get("kind") == CONTRIBUTION
        numbers = iter(dict.fromkeys(request.numbers))
        async with contextlib.aclosing(real(exchange, request, caller)) as chunks:
            async for chunk in chunks:
                given = attack(next(numbers), bytes(chunk), caller) if hostile else chunk
                if given is None:
                    return
                yield given

    return chunks


def _withhold(number: int, chunk: bytes, peer: str) -> bytes | None:
    del number, chunk, peer
    return None


def _give_some(number: int, chunk: bytes, peer: str) -> bytes | None:
    return chunk if _is_chosen(peer) else _withhold(number, chunk, peer)


def _garble(number: int, chunk: bytes, peer: str) -> bytes | None:
    del number
    return chunk if _is_chosen(peer) else chunk[::-1]


async def _claim_nothing(real: Callable[..., Any], agreements: Agreements, peer: str, message: Any) -> Any:
    """Report that it holds nothing, and accepts nothing."""
    return await real(agreements, peer, message.model_copy(update={"held": _bits(()), "accepted": None}))


async def _lead_away(real: Callable[..., Any], session: Session, ask: Ask) -> Decision | None:
    """Tell each of the last ballot that it coordinates, and of a list of the own contribution in it."""
    agreement, group = session.agreement, session.group

    async def tell(place: int) -> None:
        [*_, ballot] = [
            each for each in range(agreement.last_ballot) if group.order[each % len(group.order)] == place
        ]
        accepted = Acceptance(ballot - 1, (agreement.me,))
        accepted = replace(accepted, signed=agreement.sign(accepted))
        message = ReportMessage.of(group.group_id, Report(ballot, frozenset({agreement.me}), accepted))
        while True:
            with contextlib.suppress(Exception):  # it may not have begun, or no longer answer
                await ask(group.members[place], message)
            await asyncio.sleep(0.02)

    async with contextlib.AsyncExitStack() as stack:
        for place in set(group.order) - {agreement.me}:
            await stack.enter_async_context(background(tell(place)))
        decision: Decision | None = await real(session, ask)
    return decision


async def _note_its_turn(real: Callable[..., Any], session: Session, ask: Ask) -> Decision | None:
    me = session.agreement.me
    _its_turn[session.group.digests[me]] = session.group.order[0] == me
    decision: Decision | None = await real(session, ask)
    return decision


async def _chunks_unless_its_turn(
    real: Callable[..., Any], exchange: Exchange, request: ChunksMessage, caller: str
) -> AsyncGenerator[Any, None]:
    """Nobody gets the own contribution where it coordinates the agreement."""
    digest = request.digest
    blob = exchange._find(digest)
    if blob is not None and blob.index.header.get("maker") == str(exchange._p2p.peer_id):
        async with asyncio.timeout(10):
            while digest not in _its_turn:
                await asyncio.sleep(0.02)
        if _its_turn[digest]:
            return
    async with contextlib.aclosing(real(exchange, request, caller)) as chunks:
        async for chunk in chunks:
            yield chunk


def _only_own(session: Session) -> Places:
    return (session.agreement.me,)


def _everything(session: Session) -> Places:
    return tuple(range(session.agreement.size))


async def _propose(
    orders: Orders,
    choose: Callable[[Session], Places],
    real: Callable[..., Any],
    session: Session,
    member: str,
    message: ReportMessage,
) -> AnswerMessage:
    """As the coordinator of the agreement, propose such a list."""
    reply: AnswerMessage = await real(session, member, message)
    if session.agreement.coordinator != session.agreement.me:
        return reply
    orders.report()
    return reply.model_copy(update={"proposal": _bits(choose(session)), "decision": None})


async def _propose_two(
    real: Callable[..., Any], session: Session, member: str, message: ReportMessage
) -> AnswerMessage:
    """As the coordinator of the agreement, propose another list to one of the others, and accept both."""
    reply: AnswerMessage = await real(session, member, message)
    group, agreement = session.group, session.agreement
    if agreement.coordinator != agreement.me:
        return reply
    place = group.members.index(member)
    lists = tuple(range(agreement.size)), tuple(sorted({agreement.me, place}))
    choice = lists[place == min(set(range(agreement.size)) - {agreement.me})]
    report = message.report(agreement.size)
    changes: dict[str, Any] = {"proposal": _bits(choice), "decision": None}
    if report.accepted == Acceptance(agreement.ballot, choice):
        mine = agreement.sign(Acceptance(agreement.ballot, choice))
        both = {place: report.accepted.signed, agreement.me: mine}
        accepted = tuple(sorted(both))
        decision = Decision(agreement.ballot, choice, accepted, tuple(both[each] for each in accepted))
        changes["decision"] = DecisionMessage.of(decision)
    return reply.model_copy(update=changes)


def _is_chosen(peer: str) -> bool:
    """Every other peer, by its id."""
    return sum(peer.encode()) % 2 == 0
