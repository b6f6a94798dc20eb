"""What a hostile voter does with what it sends and returns where members reduce."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import torch
from hivemind.proto import averaging_pb2
from torch import Tensor

from dupt_swarm.network.averaging.allreduce import RECEIPT, ScreeningRunner
from dupt_swarm.network.averaging.receipt import Receipt, ShareHash
from dupt_swarm.network.averaging.reducer import Averaged, PartReducer
from tests.support.turncoats.orders import Orders

CHANGED_BYTES = 128  # of halves, at the end of each part

# To one of the others, with a receipt that says so; or nothing but another receipt, to one or all but one;
# or to all alike.
ANOTHER_AVERAGE, ANOTHER_RECEIPT, MOST_RECEIPTS = "another average", "another receipt", "most receipts"
HUGE_AVERAGE, NO_AVERAGE = "huge average", "no average"
# Each part just in time; or nothing at all is returned.
SLOW_PARTS, SLOW_AVERAGES, SILENCE = "slow parts", "slow averages", "silence"
IN_TIME = 0.6  # of the time that there is


def prepare(orders: Orders) -> None:
    """Be ready to do it."""
    returns = {
        ANOTHER_AVERAGE: _return_another,
        ANOTHER_RECEIPT: _sign_another_for(_is_victim),
        MOST_RECEIPTS: _sign_another_for(_is_not_spared),
        SLOW_AVERAGES: _return_slowly,
        SILENCE: _return_nothing,
    }
    orders.change(ScreeningRunner, "reduce_from", returns)
    orders.change(ScreeningRunner, "parts_for", {SLOW_PARTS: _send_slowly})
    orders.change(PartReducer, "_compute", {HUGE_AVERAGE: _return(1e37), NO_AVERAGE: _return(math.nan)})


def victim_of(me: str, group: Iterable[str]) -> str:
    """Whom it deceives: the first of the others, by peer id."""
    return min(set(group) - {me})


def spared_of(me: str, group: Iterable[str]) -> str:
    """Whom it does not, if it deceives all but one: the last of the others."""
    return max(set(group) - {me})


def _is_victim(runner: ScreeningRunner, sender: int) -> bool:
    group = map(str, runner.sender_peer_ids)
    return victim_of(str(runner.peer_id), group) == str(runner.sender_peer_ids[sender])


def _is_not_spared(runner: ScreeningRunner, sender: int) -> bool:
    group = map(str, runner.sender_peer_ids)
    return spared_of(str(runner.peer_id), group) != str(runner.sender_peer_ids[sender])


def _return(value: float) -> Callable[..., tuple[Averaged, int]]:
    def compute(
        _: object, reducer: PartReducer, received: Sequence[tuple[Tensor, float]]
    ) -> tuple[Averaged, int]:
        values, weights = zip(*received, strict=True)
        data = reducer._codec.encode(torch.full_like(values[0], value))
        averaged = Averaged(data, math.fsum(weights))
        reducer.returned.add(averaged.data, averaged.weight)
        return averaged, 0

    return compute


async def _return_another(
    real: Callable[..., Any], runner: ScreeningRunner, stream: AsyncIterator[Any], sender: int
) -> AsyncIterator[Any]:
    returned = ShareHash()
    async for message in real(runner, stream, sender):
        if _is_victim(runner, sender) and message.code == averaging_pb2.AVERAGED_PART:
            data = bytearray(message.tensor_part.buffer)
            for place in range(1, CHANGED_BYTES, 2):  # signs: last bits may be lost in the outer step
                data[-place] ^= 0x80
            message.tensor_part.buffer = bytes(data)
        if message.code == RECEIPT:
            message.tensor_part.buffer = _receipt_of(runner, returned.digest)
        returned.add(message.tensor_part.buffer, message.weight)
        yield message


async def _send_slowly(real: Callable[..., Any], runner: ScreeningRunner, peer: int) -> AsyncIterator[Any]:
    async for message in real(runner, peer):
        await asyncio.sleep(IN_TIME * runner.sender_timeout)
        yield message


async def _return_slowly(
    real: Callable[..., Any], runner: ScreeningRunner, stream: AsyncIterator[Any], sender: int
) -> AsyncIterator[Any]:
    async for message in real(runner, stream, sender):
        await asyncio.sleep(IN_TIME * runner.reducer_timeout)
        yield message


async def _return_nothing(
    real: Callable[..., Any], runner: ScreeningRunner, stream: AsyncIterator[Any], sender: int
) -> AsyncIterator[Any]:
    async for _ in real(runner, stream, sender):
        pass
    await asyncio.Event().wait()
    yield


def _sign_another_for(deceives: Callable[[ScreeningRunner, int], bool]) -> Callable[..., Any]:
    async def reduce(
        real: Callable[..., Any], runner: ScreeningRunner, stream: AsyncIterator[Any], sender: int
    ) -> AsyncIterator[Any]:
        async for message in real(runner, stream, sender):
            if deceives(runner, sender) and message.code == RECEIPT:
                message.tensor_part.buffer = _receipt_of(runner, "f" * 64)
            yield message

    return reduce


def _receipt_of(runner: ScreeningRunner, share: str) -> bytes:
    return Receipt.sign(runner._subject, share, str(runner.peer_id), runner._key).data
