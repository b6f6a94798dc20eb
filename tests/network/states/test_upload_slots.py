"""What a donor keeps, and which peers it serves."""

from contextlib import ExitStack

import pytest

from dupt_swarm.network.states.serving import (
    ASKING_MAX,
    ASKING_SECONDS,
    LINGER_SECONDS,
    LINGERING_MAX,
    SLOTS,
    SMALL_SLOTS,
    STREAMS_PER_PEER,
    TURN_SECONDS,
    BlobCache,
    UploadSlots,
)
from dupt_swarm.replica.blob import Blob


def blob(content: str) -> Blob:
    return Blob.build({}, [content.encode()])


def held(cache: BlobCache, blobs: list[Blob]) -> list[int]:
    """Which of ``blobs`` are there, without asking for them."""
    return [number for number, each in enumerate(blobs) if each.digest in cache._blobs]


def test_only_the_latest_are_kept() -> None:
    """A blob that nobody asks for is gone when the next ones are put in its place."""
    cache, blobs = BlobCache(), [blob("a"), blob("b"), blob("c")]
    cache.put(blobs[:2])
    cache.put(blobs[1:])
    assert cache.get(blobs[0].digest) is None
    assert [cache.get(each.digest) for each in blobs[1:]] == blobs[1:]


def test_a_blob_under_way_stays() -> None:
    """Through any number of rounds, as long as it is asked for again and again; then it goes."""
    now = [0.0]
    cache, slow = BlobCache(lambda: now[0]), blob("slow")
    cache.put([slow])
    for number in range(20):
        now[0] += LINGER_SECONDS / 2
        assert cache.get(slow.digest) is slow
        cache.put([blob(str(number))])
    now[0] += LINGER_SECONDS + 1
    cache.put([blob("last")])
    assert cache.get(slow.digest) is None


def test_blobs_under_way_are_few() -> None:
    """Of many that are asked for, those asked for last stay."""
    now = [0.0]
    cache, blobs = BlobCache(lambda: now[0]), [blob(str(number)) for number in range(6)]
    for number, each in enumerate(blobs):
        now[0] += 1.0
        cache.put([each])
        cache.get(each.digest)
        assert len(cache._blobs) <= 1 + LINGERING_MAX
        assert held(cache, blobs)[-1] == number
    assert held(cache, blobs) == [3, 4, 5]


def test_places_are_few_and_come_free_again() -> None:
    """Who finds none hears so at once; a place is free again when its last request ends."""
    slots = UploadSlots(SLOTS)
    inside = [slots.taken_by(number) for number in range(SLOTS)]
    assert [place.__enter__() for place in inside] == [True] * SLOTS
    again = slots.taken_by(0)
    assert again.__enter__() is True  # a second request of one who is inside
    with slots.taken_by("late") as free:
        assert free is False
    inside[0].__exit__(None, None, None)
    with slots.taken_by("late") as free:
        assert free is False
    again.__exit__(None, None, None)
    with slots.taken_by("late") as free:
        assert free is True


def test_one_peer_has_few_requests_at_once() -> None:
    """A peer that opens requests without end occupies one place, and is refused itself."""
    slots = UploadSlots(SLOTS)
    streams = [slots.taken_by("greedy") for _ in range(STREAMS_PER_PEER + 3)]
    assert [stream.__enter__() for stream in streams] == [True] * STREAMS_PER_PEER + [False] * 3
    with slots.taken_by("other") as free:
        assert free is True


def test_a_small_rate_is_shared_by_few() -> None:
    """With little upload fewer are served at once, so that each gets its chunks in time; one always is."""

    def served(rate: float, stranger: bool) -> int:
        slots = UploadSlots.within(rate)
        with ExitStack() as inside:
            asked = [slots.taken_by(number, stranger=stranger) for number in range(SLOTS + 2)]
            return sum(map(inside.enter_context, asked))

    assert [served(rate, stranger=True) for rate in (50e3, 250e3, 10e6)] == [1, 1, SLOTS - 1]
    assert [served(rate, stranger=False) for rate in (50e3, 250e3, 10e6)] == [2, 2, SLOTS]


@pytest.mark.parametrize("count", [1, 2, SLOTS, SMALL_SLOTS])
def test_strangers_leave_places_to_the_trusted(count: int) -> None:
    """A thousand that nobody knows never have all; what they leave is for the trusted, and theirs alone."""
    slots = UploadSlots(count)
    with ExitStack() as inside:
        crowd = [inside.enter_context(slots.taken_by(number, stranger=True)) for number in range(1000)]
        assert sum(crowd) == max(1, count * 3 // 4)
        assert len(slots._asking) == ASKING_MAX
        with slots.taken_by("voter") as free:
            assert free is True
        with slots.taken_by("stranger", stranger=True) as free:
            assert free is False


def test_strangers_take_turns() -> None:
    """Those that would keep all places lose one to whoever asks; while nobody does they keep them."""
    now = [0.0]
    slots = UploadSlots(SLOTS, lambda: now[0])
    greedy = range(SLOTS - 1)

    def opened(peer: object, inside: ExitStack) -> bool:
        return inside.enter_context(slots.taken_by(peer, stranger=True))

    with ExitStack() as inside:
        assert all(opened(number, inside) for number in greedy)
        now[0] += 10 * TURN_SECONDS
        assert not any(map(slots.is_turn_over, greedy))
        assert all(opened(number, inside) for number in greedy)
        assert not opened("late", inside)
        assert all(map(slots.is_turn_over, greedy))
        assert not any(opened(number, inside) for number in greedy)
    with ExitStack() as inside:  # their requests have ended
        assert [opened(number, inside) for number in greedy] == [True] * (SLOTS - 2) + [False]
        assert opened("late", inside)
        assert not slots.is_turn_over("late")
        now[0] += ASKING_SECONDS + TURN_SECONDS
        assert not slots.is_turn_over(0)  # nobody asks any more


def test_a_request_that_ends_is_not_the_end_of_a_turn() -> None:
    """Downloads have two under way: when one ends, its peer keeps its place, and has no more time for it."""
    now = [0.0]
    slots = UploadSlots(1, lambda: now[0])
    with slots.taken_by("greedy", stranger=True):
        with slots.taken_by("greedy", stranger=True) as free:
            assert free is True
        now[0] += TURN_SECONDS
        with slots.taken_by("late", stranger=True) as free:
            assert free is False
        assert slots.is_turn_over("greedy")
