"""Whose claims of a state are believed."""

import pytest

from dupt_swarm.network.members.attendance import (
    CLAIMS_MAX,
    DOUBT_SECONDS,
    LONGEST_DOUBT_SECONDS,
    Distrust,
)
from tests.support.clock import Clock

FIRST, SECOND = ("a" * 64, 100), ("b" * 64, 200)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def distrust(clock) -> Distrust:
    return Distrust(clock)


def test_a_failed_claim_is_not_believed_for_a_while(distrust, clock) -> None:
    """It is that claim of that peer: its next one, and the same one of others, are believed."""
    distrust.failed("p", FIRST)
    assert distrust.applies("p", FIRST)
    assert not distrust.applies("p", SECOND)
    assert not distrust.applies("p", (FIRST[0], 101))
    assert not distrust.applies("q", FIRST)
    clock.now += DOUBT_SECONDS
    assert not distrust.applies("p", FIRST)


def test_failing_again_counts_for_longer(distrust, clock) -> None:
    """Each failure doubles the time, up to a longest one."""
    times = []
    for _ in range(12):
        distrust.failed("p", FIRST)
        before = clock.now
        while distrust.applies("p", FIRST):
            clock.now += DOUBT_SECONDS / 2
        times.append(clock.now - before)
    assert times == [min(DOUBT_SECONDS * 2**n, LONGEST_DOUBT_SECONDS) for n in range(12)]


def test_a_peer_that_fails_again_and_again_is_not_believed_at_all(distrust) -> None:
    """A peer whose claims change and are all false cannot make others try for ever."""
    for number in range(CLAIMS_MAX):
        assert not distrust.applies("p", SECOND)
        distrust.failed("p", (FIRST[0], number))
    assert distrust.applies("p", SECOND)


def test_old_failures_are_forgotten(distrust, clock) -> None:
    """What happened long ago takes no memory."""
    for number in range(100):
        distrust.failed(f"p{number}", FIRST)
    clock.now += 1e6
    distrust.failed("p", FIRST)
    assert len(distrust._doubts) == 1
