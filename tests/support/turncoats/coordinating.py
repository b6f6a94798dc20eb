"""What a hostile voter does when it coordinates: it has the statements of all, and answers as it likes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from dupt_swarm.network.averaging.roll import Roll, Statement
from dupt_swarm.network.averaging.roll_call import JoinMessage, RollCall, RollMessage
from tests.support.turncoats.orders import Orders

NOT_YET_SECONDS = 0.5

PAIRS, EACH_WITH_ME, WITHOUT_ONE = "pairs", "each with me", "without one"
NOT_YET, ERRORS = "not yet", "errors"


def prepare(orders: Orders) -> None:
    """Be ready to do it."""
    rolls = {PAIRS: _pair_of, EACH_WITH_ME: _with_me, WITHOUT_ONE: _all_but_first}
    attacks = {name: _calling(chosen) for name, chosen in rolls.items()}
    orders.change(RollCall, "rpc_join", {**attacks, NOT_YET: _put_off, ERRORS: _refuse})


def _calling(chosen: Callable[[Roll, str, str], Sequence[Statement]]) -> Callable[..., Any]:
    """The attack that tells each member a roll of its own: those ``chosen`` of the true one."""

    async def join(
        real: Callable[..., Any], rolls: RollCall, request: JoinMessage, member: str
    ) -> RollMessage:
        roll = rolls._read_roll(await real(rolls, request, member))
        if roll is not None:
            statements = chosen(roll, rolls._me, member)
            on_it = member in {each.maker for each in statements}
            roll = Roll.call(rolls._me, rolls._context.key, statements) if on_it else None
        return RollMessage.of(roll)

    return join


def _pair_of(roll: Roll, me: str, member: str) -> Sequence[Statement]:
    others = [each for each in roll.statements if each.maker != me]
    place = [each.maker for each in others].index(member) // 2 * 2
    return others[place : place + 2]


def _with_me(roll: Roll, me: str, member: str) -> Sequence[Statement]:
    return [each for each in roll.statements if each.maker in (me, member)]


def _all_but_first(roll: Roll, me: str, member: str) -> Sequence[Statement]:
    del member
    first = next(each for each in roll.statements if each.maker != me)
    return [each for each in roll.statements if each is not first]


async def _put_off(*_: object) -> RollMessage:
    await asyncio.sleep(NOT_YET_SECONDS)
    return RollMessage()


async def _refuse(*_: object) -> RollMessage:
    raise ValueError("not with me")
