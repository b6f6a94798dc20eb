"""Rates: the buckets that traffic waits for, on a clock that only sleeping moves."""

import asyncio

import pytest
from google.protobuf.wrappers_pb2 import BytesValue

from dupt_swarm.errors import UsageError
from dupt_swarm.network.p2p.bandwidth import RESERVED_SECONDS, Bandwidth, TokenBucket, paced
from tests.support.tiny import reduced_tables

ROUNDS = {"allreduce_seconds": 60.0, "chunk_seconds": 5.0}


class Clock:
    """Stands still unless somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_the_average_rate_is_kept(clock) -> None:
    """One second's worth goes at once, and from then on so much a second."""
    bucket = TokenBucket(1000, clock, clock.sleep)
    for _ in range(10):
        await bucket.take(100)
    assert clock.now == 100.0
    for _ in range(100):
        await bucket.take(100)
    assert clock.now == pytest.approx(110.0, abs=0.2)


async def test_a_message_larger_than_a_seconds_worth_is_paid_for_afterwards(clock) -> None:
    """It goes at once, and the next one when its bytes would have passed at the rate allowed."""
    bucket = TokenBucket(1000, clock, clock.sleep)
    await bucket.take(5000)
    assert clock.now == 100.0
    await bucket.take(1)
    assert clock.now == pytest.approx(104.0, abs=0.01)


async def test_idle_time_is_not_saved_up(clock) -> None:
    """After an hour of silence no more than one second's worth goes at once."""
    bucket = TokenBucket(1000, clock, clock.sleep)
    clock.now += 3600
    started = clock.now
    for _ in range(30):
        await bucket.take(100)
    assert clock.now - started == pytest.approx(2.0, abs=0.2)


async def test_what_is_given_back_is_there_again(clock) -> None:
    """Bytes that were not sent after all cost nothing."""
    bucket = TokenBucket(1000, clock, clock.sleep)
    await bucket.take(5000)
    bucket.give_back(5000)
    await bucket.take(1000)
    assert clock.now == 100.0


async def test_rounds_go_before_downloads(clock) -> None:
    """What waits in a hurry passes before all that waited longer."""
    bucket, order = TokenBucket(1000, clock, clock.sleep), []

    async def take(name: str, urgent: bool) -> None:
        await bucket.take(1000, urgent=urgent)
        order.append(name)

    await bucket.take(3000)
    waiting = [take("chunk", False), take("chunk", False), take("part", True), take("part", True)]
    await asyncio.gather(*waiting)
    assert order == ["part", "part", "chunk", "chunk"]
    assert clock.now == pytest.approx(106.0, abs=1.1)


async def test_what_is_in_no_hurry_waits_for_the_end_of_a_round(clock) -> None:
    """Whatever the rate, and without one; not for ever, as rounds may follow one another."""
    for rate in (None, 1000):
        bucket, began = TokenBucket(rate, clock, clock.sleep), clock.now
        until = clock.now + 3
        bucket.is_reserved = lambda until=until: clock.now < until  # type: ignore[misc]
        await bucket.take_patiently(10)
        assert clock.now - began == pytest.approx(3, abs=0.1)
        bucket.is_reserved = lambda: True
        began = clock.now
        await bucket.take_patiently(10)
        assert clock.now - began == pytest.approx(RESERVED_SECONDS, abs=0.1)
        await bucket.take(10)
        assert clock.now - began == pytest.approx(RESERVED_SECONDS, abs=0.1)


async def test_what_is_short_passes_what_is_long(clock) -> None:
    """It does not wait behind a message that is ten seconds long, but all bytes together keep to the rate."""
    bucket = TokenBucket(1000, clock, clock.sleep)
    await bucket.take(11_000)
    for _ in range(5):
        await bucket.take_short(100)
    assert clock.now == 100.0
    await bucket.take_short(100)  # half of the rate is used up: this one waits like all
    assert clock.now == pytest.approx(110.5, abs=0.1)


async def test_a_peer_that_gives_up_takes_nothing(clock) -> None:
    """A download that is cancelled while it waits leaves its bytes to the others."""
    bucket = TokenBucket(1000, clock, clock.sleep)
    await bucket.take(2000)
    waiting = [asyncio.create_task(bucket.take(1_000_000)) for _ in range(3)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await bucket.take(1)
    assert clock.now == pytest.approx(101.0, abs=0.1)


async def test_no_limit_never_waits() -> None:
    """Without a rate everything passes at once."""

    async def never(_: float) -> None:
        raise AssertionError("it waited")

    bucket = TokenBucket(None, sleep=never)
    for _ in range(100):
        await bucket.take(1 << 40)
        bucket.give_back(1)


async def test_messages_of_a_round_are_paced(clock) -> None:
    """A stream of messages passes unchanged, at the rate allowed."""

    async def stream():
        for _ in range(11):
            yield BytesValue(value=bytes(997))  # 1000 bytes with the field's header

    bucket = TokenBucket(1000, clock, clock.sleep)
    passed = [message async for message in paced(stream(), bucket)]
    assert passed == [message async for message in stream()]
    assert clock.now == pytest.approx(109.0, abs=1.1)


def test_a_rate_too_small_for_the_rounds_is_refused(make_manifest) -> None:
    """The error names the least rate that suffices, and that rate is accepted."""
    manifest = make_manifest(**reduced_tables(rounds=ROUNDS))
    numel = 117_000_000  # 2 bytes each, there and back: 468 MB in 30 s
    for bandwidth in (Bandwidth(upload=15e6), Bandwidth(download=15e6)):
        with pytest.raises(UsageError, match=r"15MB/s is too little .* allow at least 15\.6\dMB"):
            bandwidth.check(manifest, numel, 1)
    Bandwidth(15.61e6, 15.61e6).check(manifest, numel, 1)
    Bandwidth().check(manifest, numel, 1)


def test_light_codecs_make_do_with_less(make_manifest) -> None:
    """The least rate follows from how the manifest encodes contributions and averages."""
    encoding = {"contribution": "two_bit", "average": "int4"}
    manifest = make_manifest(**reduced_tables(rounds=ROUNDS, encoding=encoding))
    with pytest.raises(UsageError, match=r"a round moves up to 91\.6 MB .* allow at least 3\.06MB"):
        Bandwidth(upload=3e6).check(manifest, 117_000_000, 1)


def test_a_peer_that_shares_gets_a_contribution_of_each(make_manifest) -> None:
    """Upload once, as the others pass it on; download as often as there are others."""
    manifest = make_manifest(rounds=ROUNDS)
    Bandwidth(upload=1e6).check(manifest, 117_000_000, 7)
    with pytest.raises(UsageError, match=r"a round moves up to 20\d\.\d MB .* allow at least 6\.\d+MB"):
        Bandwidth(download=6e6).check(manifest, 117_000_000, 7)
