import asyncio

import pytest
import torch

from dupt_swarm.network.averaging.reducer import PartReducer
from dupt_swarm.replica.codec.fp32 import FP32
from dupt_swarm.replica.codec.scaled_fp16 import ScaledFP16


def reducer_of(parts: int = 1, senders: int = 3, codec=None) -> PartReducer:
    return PartReducer(parts, senders, codec or FP32(), norm_ratio=10.0)


def of(value: float) -> torch.Tensor:
    """A part, which its average uses up."""
    return torch.full((3,), value)


def values_of(data: bytes) -> list[float]:
    return FP32().decode(data, 3).tolist()


async def settle() -> None:
    """Let everything that can go on go on: three turns of the loop are enough for one part."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_everybody_gets_the_same_bytes() -> None:
    """All senders get one and the same encoding of the weighted mean, and the tokens in it."""

    async def scenario() -> None:
        reducer = reducer_of(codec=ScaledFP16())
        parts = [torch.randn(1000, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
        weights = [1.0, 2.0, 5.0]
        # They come in another order than that of the senders, which must not matter.
        given = [reducer.average(sender, 0, parts[sender].clone(), weights[sender]) for sender in (2, 0, 1)]
        results = await asyncio.gather(*given)
        assert {result.data for result in results} == {results[0].data}
        assert [result.weight for result in results] == [8.0] * 3
        expected = sum(part.double() * weight for part, weight in zip(parts, weights, strict=True)) / 8
        actual = ScaledFP16().decode(results[0].data, 1000).double()
        assert float((actual - expected).abs().max()) <= 4 * 2.0**-11
        again = reducer_of(codec=ScaledFP16())
        ordered = [again.average(sender, 0, parts[sender], weights[sender]) for sender in range(3)]
        assert (await asyncio.gather(*ordered))[0].data == results[0].data

    asyncio.run(scenario())


def test_a_part_waits_for_its_last_sender() -> None:
    """No average is made while a live sender's part is missing."""

    async def scenario() -> None:
        reducer = reducer_of(senders=2)
        first = asyncio.create_task(reducer.average(0, 0, of(1.0), 1.0))
        await settle()
        assert not first.done()
        second = await reducer.average(1, 0, of(4.0), 1.0)
        assert values_of((await first).data) == values_of(second.data) == [2.5] * 3

    asyncio.run(scenario())


def test_sender_that_fails_midway() -> None:
    """A failed sender stays in the parts that it had sent, and the others go on without it in the rest."""

    async def scenario() -> None:
        reducer = reducer_of(parts=2)
        failing = asyncio.create_task(reducer.average(2, 0, of(4.0), 2.0))
        waiting = [asyncio.create_task(reducer.average(sender, 0, of(1.0), 1.0)) for sender in (0, 1)]
        assert values_of((await failing).data) == values_of((await waiting[0]).data) == [2.5] * 3
        rest = [asyncio.create_task(reducer.average(sender, 1, of(2.0), 1.0)) for sender in (0, 1)]
        await settle()
        assert not any(task.done() for task in rest)
        reducer.on_sender_failed(2)
        averaged = [await task for task in rest]
        assert [(values_of(result.data), result.weight) for result in averaged] == [([2.0] * 3, 2.0)] * 2
        with pytest.raises(ValueError, match="left out"):
            await reducer.average(2, 1, of(4.0), 1.0)

    asyncio.run(scenario())


def test_sender_that_failed_after_giving_its_part() -> None:
    """A part that was given before its sender failed counts, although others come later."""

    async def scenario() -> None:
        reducer = reducer_of(senders=2)
        gone = asyncio.create_task(reducer.average(0, 0, of(4.0), 1.0))
        await settle()
        reducer.on_sender_failed(0)
        assert values_of((await reducer.average(1, 0, of(2.0), 1.0)).data) == [3.0] * 3
        assert values_of((await gone).data) == [3.0] * 3

    asyncio.run(scenario())


def test_cancelled_waiter_harms_nobody() -> None:
    """A sender whose stream is cancelled while it waits leaves the result for the others."""

    async def scenario() -> None:
        reducer = reducer_of(senders=2)
        cancelled = asyncio.create_task(reducer.average(0, 0, of(1.0), 1.0))
        await settle()
        cancelled.cancel()
        assert values_of((await reducer.average(1, 0, of(2.0), 1.0)).data) == [1.5] * 3
        assert cancelled.cancelled()

    asyncio.run(scenario())


def test_finalize_releases_waiters() -> None:
    """When the round ends, nobody waits any longer."""

    async def scenario() -> None:
        reducer = reducer_of()
        waiter = asyncio.create_task(reducer.average(0, 0, of(1.0), 1.0))
        await settle()
        reducer.finalize()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiter, 5)
        assert reducer.finished.is_set()

    asyncio.run(scenario())


@pytest.mark.parametrize("part", [-1, 2, 1 << 40])
def test_part_out_of_range(part: int) -> None:
    """A part that does not exist is refused."""

    async def scenario() -> None:
        with pytest.raises(ValueError, match="unexpected part"):
            await reducer_of(parts=2).average(0, part, of(1.0), 1.0)

    asyncio.run(scenario())


def test_duplicates_are_refused() -> None:
    """A part sent twice is refused, before and after its average is made, and changes nothing."""

    async def scenario() -> None:
        reducer = reducer_of(senders=2)
        first = asyncio.create_task(reducer.average(0, 0, of(1.0), 1.0))
        await settle()
        with pytest.raises(ValueError, match="unexpected part 0"):
            await reducer.average(0, 0, of(4.0), 1.0)
        assert values_of((await reducer.average(1, 0, of(2.0), 1.0)).data) == [1.5] * 3
        with pytest.raises(ValueError, match="unexpected part 0"):
            await reducer.average(0, 0, of(4.0), 1.0)
        assert values_of((await first).data) == [1.5] * 3

    asyncio.run(scenario())


def test_norm_outlier_is_left_out() -> None:
    """A part far above the median norm counts neither in the mean nor in its weight, and is told."""

    async def scenario() -> None:
        reducer = reducer_of()
        given = [
            reducer.average(sender, 0, part, 1.0) for sender, part in enumerate((of(1.0), of(1e6), of(2.0)))
        ]
        results = await asyncio.gather(*given)
        assert [(values_of(result.data), result.weight) for result in results] == [([1.5] * 3, 2.0)] * 3
        assert reducer.rejected_norms == 1

    asyncio.run(scenario())


def test_outlier_among_zeros_is_left_out() -> None:
    """Where most bring zeros, a part counts if it is not far above what parts usually were until then."""

    async def scenario() -> None:
        reducer, means = reducer_of(parts=4), []
        for number, parts in enumerate([(0.0, 0.0, 9.0), (2.0, 2.0, 2.0), (0.0, 0.0, 9.0), (0.0, 0.0, 1e37)]):
            given = [reducer.average(sender, number, of(each), 1.0) for sender, each in enumerate(parts)]
            means.append(values_of((await asyncio.gather(*given))[0].data)[0])
        assert means == [0.0, 2.0, 3.0, 0.0]
        assert reducer.rejected_norms == 2

    asyncio.run(scenario())


def test_who_is_late() -> None:
    """Whoever most wait for is known, and how long they have waited in all parts; of two, neither is most."""

    async def give(reducer: PartReducer, part: int, *senders: int) -> None:
        for sender in senders:
            tasks.append(asyncio.create_task(reducer.average(sender, part, of(1.0), 1.0)))
        await settle()

    async def scenario() -> None:
        reducer, clock = reducer_of(parts=3), asyncio.get_running_loop().time
        await give(reducer, 0, 0)
        assert (reducer.late(-1.0, 9.0), reducer.lacking) == ([], [])
        await give(reducer, 0, 1)
        assert (reducer.late(-1.0, 9.0), reducer.late(9.0, 9.0)) == ([2], [])
        assert (reducer.lacking, reducer.awaited(9.0)) == ([2], [])
        started = clock()
        await asyncio.sleep(0.2)
        assert (reducer.late(9.0, 0.15), reducer.awaited(0.15)) == ([2], [2])
        await give(reducer, 0, 2)
        waited = clock() - started
        await asyncio.gather(*tasks)
        assert (reducer.late(-1.0, -1.0), reducer.lacking) == ([], [])
        await give(reducer, 1, 0, 1)
        assert (reducer.late(0.15, 9.0), reducer.late(waited + 5.0, 0.15)) == ([2], [])
        reducer.on_sender_failed(2)
        await asyncio.gather(*tasks)
        assert (reducer.late(-1.0, -1.0), reducer.lacking) == ([], [])
        await give(reducer, 2, 0)  # two are left
        assert (reducer.late(-1.0, -1.0), reducer.lacking, reducer.awaited(-1.0)) == ([], [1], [1])
        reducer.finalize()
        await asyncio.gather(*tasks, return_exceptions=True)

    tasks: list[asyncio.Task[object]] = []
    asyncio.run(scenario())


def test_failure_to_encode_reaches_all() -> None:
    """When an average cannot be made, all who wait are told instead of waiting for ever."""

    class Broken(FP32):
        def encode(self, values) -> bytes:
            del values
            raise RuntimeError("broken")

    async def scenario() -> None:
        reducer = reducer_of(senders=2, codec=Broken())
        given = [reducer.average(sender, 0, of(1.0), 1.0) for sender in range(2)]
        results = await asyncio.wait_for(asyncio.gather(*given, return_exceptions=True), 5)
        assert [repr(result) for result in results] == ["RuntimeError('broken')"] * 2

    asyncio.run(scenario())
