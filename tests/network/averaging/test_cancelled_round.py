"""A round that is given up at any moment leaves nothing that asyncio would report later."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from dupt_swarm.network.p2p.bandwidth import Bandwidth, TokenBucket
from tests.support.averages import Averaging, open_averaging, start_round
from tests.support.tiny import reduced_tables

NUMEL = 4_000_000  # 16 parts


class Gate(TokenBucket):
    """Lets so many messages of a round pass, and then says so and none any more until it is opened."""

    def __init__(self, count: int) -> None:
        super().__init__(None)
        self._count = count
        self.shut, self.opened = asyncio.Event(), asyncio.Event()

    async def take(self, amount: int, *, urgent: bool = False) -> None:
        del amount, urgent
        self._count -= 1
        if self._count < 0:
            self.shut.set()
            await self.opened.wait()


class SlowBucket(TokenBucket):
    """No message takes so long that its sender would count as silent, and all together far too long."""

    async def take(self, amount: int, *, urgent: bool = False) -> None:
        del amount, urgent
        await asyncio.sleep(0.6)


# Of two bytes a value, so that a contribution that is shared has several chunks.
SHARED = {"encoding": {"contribution": "scaled_fp16"}}


@pytest.fixture(params=[SHARED, reduced_tables()], ids=["share", "reduce"])
def manifest(make_manifest, request: pytest.FixtureRequest):
    times = {"matchmaking_seconds": 20, "chunk_seconds": 2, "allreduce_seconds": 4.5}
    return make_manifest(**request.param | {"rounds": request.param.get("rounds", {}) | times})


@contextmanager
def nothing_heard() -> Iterator[None]:
    """Fails if asyncio reports anything, now or when the garbage is collected."""
    heard: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: heard.append(f"{context['message']}: {context}"))
    try:
        yield
        gc.collect()
        assert heard == []
    finally:
        loop.set_exception_handler(None)


async def open_averagers(manifest, peers, bandwidths=(), clients=()) -> list[Averaging]:
    for peer, bandwidth in zip(peers, bandwidths, strict=False):
        peer.p2p.bandwidth = bandwidth
    return [
        await open_averaging(manifest, peer, NUMEL, callable=number not in clients)
        for number, peer in enumerate(peers)
    ]


def start_numbers(averagers, number: int) -> list[asyncio.Task]:
    """Each averages its own number."""
    contributions = [torch.full((NUMEL,), float(place)) for place in range(len(averagers))]
    return start_round(averagers, contributions, [10] * len(averagers), round=number)


async def end_with_one_cancelled(averagers, when: asyncio.Event) -> set[str]:
    """How the round ended for the others. (Its tasks, whose errors hold their frames, end with this.)"""
    mine, *others = start_numbers(averagers, 1)
    await when.wait()
    mine.cancel()
    await asyncio.wait([mine])
    assert mine.cancelled()
    return {result.reason for result in await asyncio.gather(*others)}


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_cancelled_while_the_group_is_being_found(stations, manifest) -> None:
    """At once, after a moment, and when somebody may have been found; the next round is as ever."""

    async def scenario() -> None:
        async with stations(2, manifest) as peers:
            averagers = await open_averagers(manifest, peers)
            with nothing_heard():
                for number, seconds in enumerate((0.0, 0.01, 0.05, 0.1)):
                    tasks = start_numbers(averagers, number)
                    await asyncio.sleep(seconds)
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
            results = await asyncio.gather(*start_numbers(averagers, 9))
            assert [result.reason for result in results] == [None, None]

    run(scenario)


@pytest.mark.parametrize(
    ("side", "passed", "client"),
    [
        ("upload", 0, False),
        ("upload", 3, False),
        ("upload", 3, True),
        ("download", 0, False),
        ("download", 3, False),
    ],
)
def test_cancelled_in_the_exchange(stations, manifest, side, passed, client) -> None:
    """Of three peers one is stopped amid what it sends or receives; the others end too, all in silence."""

    async def scenario() -> None:
        gate, bandwidth = Gate(passed), Bandwidth()
        setattr(bandwidth, side, gate)
        async with stations(3, manifest) as peers:
            # A client reduces nothing, and gets the averages when it has sent all.
            averagers = await open_averagers(manifest, peers, [bandwidth], [0] if client else [])
            with nothing_heard():
                reasons = await end_with_one_cancelled(averagers, gate.shut)
                assert reasons <= {"peer_lost", "timeout", None}
                gate.opened.set()
                await asyncio.sleep(0.3)

    run(scenario)


def test_a_round_that_takes_too_long(stations, manifest) -> None:
    """The exchange ends in time without it, or has failed: either in silence, as a cancellation does."""

    async def scenario() -> None:
        bandwidth = Bandwidth()
        bandwidth.upload = SlowBucket(None)
        async with stations(2, manifest) as peers:
            averagers = await open_averagers(manifest, peers, [bandwidth])
            with nothing_heard():
                results = await asyncio.gather(*start_numbers(averagers, 1))
                if manifest.rounds.exchange == "reduce":
                    assert results[0].reason == "timeout"
                else:  # what comes too late is left out, or nothing is averaged
                    assert {each.reason for each in results} <= {None, "timeout"}
                    assert not all(each.reason is None and each.included for each in results)
                await asyncio.sleep(0.1)

    run(scenario)
