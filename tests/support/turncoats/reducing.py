"""What a hostile voter does with the averages that it returns, where members reduce."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from hivemind.proto import averaging_pb2

from dupt_swarm.network.averaging.allreduce import RECEIPT, ScreeningRunner
from dupt_swarm.network.averaging.receipt import Receipt, ShareHash
from tests.support.turncoats.orders import Orders

CHANGED_BYTES = 128  # of halves, at the end of each part

# To one of the others, with a receipt that says so; or nothing but another receipt.
ANOTHER_AVERAGE, ANOTHER_RECEIPT = "another average", "another receipt"


def prepare(orders: Orders) -> None:
    """Be ready to do it."""
    orders.change(
        ScreeningRunner, "reduce_from", {ANOTHER_AVERAGE: _return_another, ANOTHER_RECEIPT: _sign_another}
    )


def victim_of(me: str, group: Iterable[str]) -> str:
    """Whom it deceives: the first of the others, by peer id."""
    return min(set(group) - {me})


def _is_victim(runner: ScreeningRunner, sender: int) -> bool:
    group = map(str, runner.sender_peer_ids)
    return victim_of(str(runner.peer_id), group) == str(runner.sender_peer_ids[sender])


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


async def _sign_another(
    real: Callable[..., Any], runner: ScreeningRunner, stream: AsyncIterator[Any], sender: int
) -> AsyncIterator[Any]:
    async for message in real(runner, stream, sender):
        if _is_victim(runner, sender) and message.code == RECEIPT:
            message.tensor_part.buffer = _receipt_of(runner, "f" * 64)
        yield message


def _receipt_of(runner: ScreeningRunner, share: str) -> bytes:
    return Receipt.sign(runner._subject, share, str(runner.peer_id), runner._key).data
