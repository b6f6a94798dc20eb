"""A round that is given up at any moment leaves nothing that asyncio would report later."""

import asyncio
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest
import torch

from dupt_swarm.network.p2p.bandwidth import SHORT_BYTES, Bandwidth, TokenBucket
from dupt_swarm.network.rounds.session import Ended
from tests.support.deciders import Decider, deciding_at, state_of
from tests.support.tiny import reduced_tables

NUMEL = 4_000_000  # 16 parts


class Gate(TokenBucket):
    """Lets so many long messages pass, and then says so and none any more until it is opened."""

    def __init__(self, count: int) -> None:
        super().__init__(None)
        self._count = count
        self.shut, self.opened = asyncio.Event(), asyncio.Event()

    async def take(self, amount: int, *, urgent: bool = False) -> None:
        del urgent
        if amount <= SHORT_BYTES:  # what is said of the round, which goes on
            return
        self._count -= 1
        if self._count < 0:
            self.shut.set()
            await self.opened.wait()


class SlowBucket(TokenBucket):
    """No long message takes so long that its sender would count as silent, and all together far too long."""

    async def take(self, amount: int, *, urgent: bool = False) -> None:
        del urgent
        if amount > SHORT_BYTES:
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


@pytest.fixture
def deciders(stations, manifest):
    """``async with deciders(3) as (peers, state)``: so many at one state."""
    return partial(deciding_at, stations, manifest=manifest, numel=NUMEL)


def start_numbers(peers: Sequence[Decider]) -> list[asyncio.Task[Ended]]:
    """Each brings its own number."""
    return [
        asyncio.create_task(each.end(torch.full((NUMEL,), float(place)))) for place, each in enumerate(peers)
    ]


async def give_up(peers: Sequence[Decider], tasks: Sequence[asyncio.Task[Ended]]) -> None:
    """These leave the state no more."""
    for task in tasks:
        task.cancel()
    for each in peers:
        await each.close()
    if tasks:
        await asyncio.wait(tasks)


async def test_cancelled_while_the_others_come(deciders) -> None:
    """At once, after a moment, and when somebody may have come; the next attempt is as ever."""
    async with deciders(2) as (peers, state):
        with nothing_heard():
            for seconds in (0.0, 0.01, 0.05, 0.1):
                tasks = start_numbers(peers)
                await asyncio.sleep(seconds)
                await give_up(peers, tasks)
                for each in peers:
                    each.reach(state, [other.peer_id for other in peers])
        ended = await asyncio.gather(*start_numbers(peers))
        [link] = {each.link.after: each.link for each in ended}.values()
        assert set(link.choice.makers) == {each.peer_id for each in peers} and not link.choice.weak
        assert {state_of(each).digest for each in ended} == {link.after}


@pytest.mark.parametrize(
    ("side", "passed", "hidden"),
    [
        ("upload", 0, False),
        ("upload", 3, False),
        ("upload", 3, True),
        ("download", 0, False),
        ("download", 3, False),
    ],
)
async def test_cancelled_in_the_exchange(deciders, side: str, passed: int, hidden: bool) -> None:
    """Of three peers one is stopped amid what it sends or receives; the others end too, all in silence."""
    gate, bandwidth = Gate(passed), Bandwidth()
    setattr(bandwidth, side, gate)
    # Who is hidden reduces nothing, and gets the averages when it has sent all.
    async with deciders(3, bandwidth=bandwidth, hidden=[0] if hidden else []) as (peers, _):
        with nothing_heard():
            after = await end_with_one_cancelled(peers, gate.shut)
            assert len(after) == 1
            gate.opened.set()
            await asyncio.sleep(0.3)


async def end_with_one_cancelled(peers: Sequence[Decider], when: asyncio.Event) -> set[str]:
    """To which state the others come. (The tasks, whose errors hold their frames, end with this.)"""
    mine, *tasks = start_numbers(peers)
    await when.wait()
    stopped, *others = peers
    await give_up([stopped], [mine])
    assert mine.cancelled()
    stopped.seen.refused = {each.peer_id for each in others}
    for each in others:
        each.seen.gone = {stopped.peer_id}
    ended = await asyncio.gather(*tasks)
    assert not any(each.link.choice.weak for each in ended)
    return {state_of(each).digest for each in ended}


async def test_an_exchange_that_takes_too_long(deciders, manifest) -> None:
    """It ends in time without what comes too late, or fails: either in silence, as a cancellation does."""
    bandwidth = Bandwidth()
    bandwidth.upload = SlowBucket(None)
    async with deciders(2, bandwidth=bandwidth) as (peers, _):
        with nothing_heard():
            tasks = start_numbers(peers)
            if manifest.rounds.exchange == "reduce":
                for each in peers:
                    assert each.deciding.present is not None
                    while each.deciding.present.round.ballots.ballot == 0:
                        await each.deciding.present.change(0.25)
                await give_up(peers, tasks)
            else:
                ended = await asyncio.gather(*tasks)
                [link] = {each.link for each in ended}
                assert link.choice.makers == (peers[1].peer_id,)
                assert {state_of(each).digest for each in ended} == {link.after}
            await asyncio.sleep(0.1)
