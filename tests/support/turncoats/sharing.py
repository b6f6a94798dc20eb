"""What one that lies does with contributions: to which peers it gives them, and what it claims to hold."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Protocol

from dupt_swarm.network.rounds.deciding import Deciding
from dupt_swarm.network.rounds.desk import Desk
from dupt_swarm.network.rounds.messages import AnswerMessage, ReportMessage
from dupt_swarm.network.states.exchange import ChunksMessage, Exchange
from dupt_swarm.replica.contribution import CONTRIBUTION
from tests.support.turncoats.coordinating import WITHHELD_CHOICE, me_of
from tests.support.turncoats.orders import Attack, Orders, Patch, change

WITHHELD, FOR_SOME, GARBLED = "withheld", "for some", "garbled for some"
HOLDS_NOTHING, HOLDS_ALL = "holds nothing", "says that it holds all"


class Give(Protocol):
    """What somebody gets of a chunk of a contribution; None: no more."""

    def __call__(self, chunk: bytes, *, favoured: bool) -> bytes | None:
        """``favoured``: it is treated well."""


def prepare(orders: Orders, patch: Patch) -> None:
    """Be ready to do it."""
    gives: dict[str, Give] = {WITHHELD: _withhold, FOR_SOME: _give_some, GARBLED: _garble}
    gives |= {HOLDS_ALL: _withhold, WITHHELD_CHOICE: _withhold}
    chunks = {name: partial(_chunks, orders, give) for name, give in gives.items()}
    change(orders, patch, Exchange, "rpc_chunks", lambda exchange: str(exchange._p2p.peer_id), chunks)
    reports = {HOLDS_NOTHING: _report_nothing, HOLDS_ALL: _report_all}
    change(orders, patch, Deciding, "ask", lambda deciding: deciding._context.me, reports)
    change(orders, patch, Desk, "answer", me_of, {HOLDS_ALL: _answer_all})


async def _chunks(
    orders: Orders, give: Give, real: Attack, exchange: Exchange, request: ChunksMessage, caller: str
) -> AsyncGenerator[Any, None]:
    blob = exchange._find(request.digest)
    hostile = blob is not None and blob.index.header.get("kind") == CONTRIBUTION
    async with contextlib.aclosing(real(exchange, request, caller)) as chunks:
        async for chunk in chunks:
            given = give(bytes(chunk), favoured=orders.favours(caller)) if hostile else chunk
            if hostile and given != bytes(chunk):
                orders.report()
            if given is None:
                return
            yield given


def _withhold(chunk: bytes, *, favoured: bool) -> bytes | None:
    del chunk, favoured
    return None


def _give_some(chunk: bytes, *, favoured: bool) -> bytes | None:
    return chunk if favoured else None


def _garble(chunk: bytes, *, favoured: bool) -> bytes | None:
    return chunk if favoured else chunk[::-1]


async def _report_nothing(real: Attack, deciding: Deciding, peer: str, message: ReportMessage) -> Any:
    return await real(deciding, peer, message.model_copy(update={"held": ()}))


def _all_of(desk: Desk) -> tuple[str, ...]:
    stock = desk.round.stock
    return tuple(sorted({*stock.held, *(each.digest for each in stock.missing)}))


async def _report_all(real: Attack, deciding: Deciding, peer: str, message: ReportMessage) -> Any:
    desk = deciding.desk_of(message.state)
    assert desk is not None
    return await real(deciding, peer, message.model_copy(update={"held": _all_of(desk)}))


async def _answer_all(real: Attack, desk: Desk, caller: str, message: ReportMessage) -> AnswerMessage:
    answer: AnswerMessage = await real(desk, caller, message)
    return answer.model_copy(update={"held": _all_of(desk)})
