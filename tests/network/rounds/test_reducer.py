import asyncio

import pytest
import torch

from dupt_swarm.network.rounds.allreduce import PartReducer
from dupt_swarm.replica.codec.fp32 import FP32
from dupt_swarm.replica.codec.scaled_fp16 import ScaledFP16


def reducer_of(senders: str = "abc", codec=None) -> PartReducer:
    return PartReducer(senders, codec or FP32(), norm_ratio=10.0)


def of(value: float) -> torch.Tensor:
    """A part, which its average uses up."""
    return torch.full((3,), value)


def values_of(data: bytes) -> list[float]:
    return FP32().decode(data, 3).tolist()


async def settle() -> None:
    """Let everything that can go on go on: three turns of the loop are enough for one part."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_everybody_gets_the_same_bytes() -> None:
    """All senders get one and the same encoding of the weighted mean, and the tokens in it."""
    reducer = reducer_of(codec=ScaledFP16())
    parts = [torch.randn(1000, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    given = list(zip("abc", parts, [1.0, 2.0, 5.0], strict=True))
    # They come in another order than that of the senders, which must not matter.
    results = await asyncio.gather(
        *(reducer.average(sender, part.clone(), weight) for sender, part, weight in given[::-1])
    )
    assert {result.data for result in results} == {results[0].data}
    assert [result.weight for result in results] == [8.0] * 3
    expected = sum(part.double() * weight for _, part, weight in given) / 8
    actual = ScaledFP16().decode(results[0].data, 1000).double()
    assert float((actual - expected).abs().max()) <= 4 * 2.0**-11
    again = reducer_of(codec=ScaledFP16())
    ordered = await asyncio.gather(*(again.average(*each) for each in given))
    assert ordered[0].data == results[0].data


async def test_a_part_waits_for_its_last_sender() -> None:
    """No average is made while a live sender's part is missing; the next part is another one."""
    reducer = reducer_of("ab")
    for low, high in ((1.0, 4.0), (3.0, 4.0)):
        first = asyncio.create_task(reducer.average("a", of(low), 1.0))
        await settle()
        assert not first.done()
        second = await reducer.average("b", of(high), 1.0)
        assert values_of((await first).data) == values_of(second.data) == [(low + high) / 2] * 3


async def test_sender_that_fails_midway() -> None:
    """A failed sender stays in the parts that it had sent, and the others go on without it in the rest."""
    reducer = reducer_of()
    failing = asyncio.create_task(reducer.average("c", of(4.0), 2.0))
    waiting = [asyncio.create_task(reducer.average(sender, of(1.0), 1.0)) for sender in "ab"]
    assert values_of((await failing).data) == values_of((await waiting[0]).data) == [2.5] * 3
    rest = [asyncio.create_task(reducer.average(sender, of(2.0), 1.0)) for sender in "ab"]
    await settle()
    assert not any(task.done() for task in rest)
    reducer.leave_out("c")
    averaged = [await task for task in rest]
    assert [(values_of(result.data), result.weight) for result in averaged] == [([2.0] * 3, 2.0)] * 2
    with pytest.raises(ValueError, match="left out"):
        await reducer.average("c", of(4.0), 1.0)


async def test_sender_that_failed_after_giving_its_part() -> None:
    """A part that was given before its sender failed counts, although others come later."""
    reducer = reducer_of("ab")
    gone = asyncio.create_task(reducer.average("a", of(4.0), 1.0))
    await settle()
    reducer.leave_out("a")
    assert values_of((await reducer.average("b", of(2.0), 1.0)).data) == [3.0] * 3
    assert values_of((await gone).data) == [3.0] * 3


async def test_cancelled_waiter_harms_nobody() -> None:
    """A sender whose stream is cancelled while it waits leaves the result for the others."""
    reducer = reducer_of("ab")
    cancelled = asyncio.create_task(reducer.average("a", of(1.0), 1.0))
    await settle()
    cancelled.cancel()
    assert values_of((await reducer.average("b", of(2.0), 1.0)).data) == [1.5] * 3
    assert cancelled.cancelled()


async def test_the_end_releases_waiters() -> None:
    """When the round ends, nobody waits any longer, and who is late changes nothing."""
    reducer = reducer_of()
    waiter = asyncio.create_task(reducer.average("a", of(1.0), 1.0))
    await settle()
    reducer.close()
    with pytest.raises(ValueError, match="the round has ended"):
        await asyncio.wait_for(waiter, 5)
    reducer.leave_out("b")
    with pytest.raises(ValueError, match="left out"):
        await reducer.average("c", of(1.0), 1.0)


async def test_norm_outlier_is_left_out() -> None:
    """A part far above the median norm counts neither in the mean nor in its weight, and is told."""
    reducer = reducer_of()
    given = zip("abc", (1.0, 1e6, 2.0), strict=True)
    results = await asyncio.gather(*(reducer.average(sender, of(value), 1.0) for sender, value in given))
    assert [(values_of(result.data), result.weight) for result in results] == [([1.5] * 3, 2.0)] * 3
    assert reducer.rejected_norms == 1


async def test_outlier_among_zeros_is_left_out() -> None:
    """Where most bring zeros, a part counts if it is not far above what parts usually were until then."""
    reducer, means = reducer_of(), []
    for parts in [(0.0, 0.0, 9.0), (2.0, 2.0, 2.0), (0.0, 0.0, 9.0), (0.0, 0.0, 1e37)]:
        given = zip("abc", parts, strict=True)
        averages = [reducer.average(sender, of(value), 1.0) for sender, value in given]
        means.append(values_of((await asyncio.gather(*averages))[0].data)[0])
    assert means == [0.0, 2.0, 3.0, 0.0]
    assert reducer.rejected_norms == 2


async def test_which_peers_are_late() -> None:
    """Whoever most wait for is known, and how long they have waited in all parts; of two, neither is most."""
    tasks: list[asyncio.Task[object]] = []

    async def give(reducer: PartReducer, senders: str) -> None:
        tasks.extend(asyncio.create_task(reducer.average(sender, of(1.0), 1.0)) for sender in senders)
        await settle()

    reducer, clock = reducer_of(), asyncio.get_running_loop().time
    await give(reducer, "a")
    assert reducer.late(-1.0) == []
    await give(reducer, "b")
    assert (reducer.late(-1.0), reducer.late(9.0)) == (["c"], [])
    started = clock()
    await asyncio.sleep(0.2)
    assert reducer.late(0.15) == ["c"]
    await give(reducer, "c")
    waited = clock() - started
    await asyncio.gather(*tasks)
    assert reducer.late(-1.0) == []
    await give(reducer, "ab")
    assert (reducer.late(0.15), reducer.late(waited + 5.0)) == (["c"], [])
    reducer.leave_out("c")
    await asyncio.gather(*tasks)
    await give(reducer, "a")  # two are left
    assert reducer.late(-1.0) == []
    reducer.close()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_failure_to_encode_reaches_all() -> None:
    """When an average cannot be made, all who wait are told instead of waiting for ever."""

    class Broken(FP32):
        def encode(self, values) -> bytes:
            del values
            raise RuntimeError("broken")

    reducer = reducer_of("ab", codec=Broken())
    given = [reducer.average(sender, of(1.0), 1.0) for sender in "ab"]
    results = await asyncio.wait_for(asyncio.gather(*given, return_exceptions=True), 5)
    assert [repr(result) for result in results] == ["RuntimeError('broken')"] * 2
