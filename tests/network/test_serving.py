"""What a donor keeps, and whom it serves."""

from contextlib import ExitStack

from dupt_swarm.network.serving import LINGER_SECONDS, LINGERING_MAX, PLACES, STREAMS_PER_PEER, Places, Shelf
from dupt_swarm.replica.blob import Blob


def blob(content: str) -> Blob:
    return Blob.build({}, [content.encode()])


def held(shelf: Shelf, blobs: list[Blob]) -> list[int]:
    """Which of ``blobs`` are there, without asking for them."""
    return [number for number, each in enumerate(blobs) if each.digest in shelf._blobs]


def test_only_the_latest_are_kept() -> None:
    """A blob that nobody asks for is gone when the next ones are put in its place."""
    shelf, blobs = Shelf(), [blob("a"), blob("b"), blob("c")]
    shelf.put(blobs[:2])
    shelf.put(blobs[1:])
    assert shelf.get(blobs[0].digest) is None
    assert [shelf.get(each.digest) for each in blobs[1:]] == blobs[1:]


def test_a_blob_under_way_stays() -> None:
    """Through any number of rounds, as long as it is asked for again and again; then it goes."""
    now = [0.0]
    shelf, slow = Shelf(lambda: now[0]), blob("slow")
    shelf.put([slow])
    for number in range(20):
        now[0] += LINGER_SECONDS / 2
        assert shelf.get(slow.digest) is slow
        shelf.put([blob(str(number))])
    now[0] += LINGER_SECONDS + 1
    shelf.put([blob("last")])
    assert shelf.get(slow.digest) is None


def test_blobs_under_way_are_few() -> None:
    """Of many that are asked for, those asked for last stay."""
    now = [0.0]
    shelf, blobs = Shelf(lambda: now[0]), [blob(str(number)) for number in range(6)]
    for number, each in enumerate(blobs):
        now[0] += 1.0
        shelf.put([each])
        shelf.get(each.digest)
        assert len(shelf._blobs) <= 1 + LINGERING_MAX
        assert held(shelf, blobs)[-1] == number
    assert held(shelf, blobs) == [3, 4, 5]


def test_places_are_few_and_come_free_again() -> None:
    """Who finds none hears so at once; a place is free again when its last request ends."""
    places = Places(PLACES)
    inside = [places.taken_by(number) for number in range(PLACES)]
    assert [place.__enter__() for place in inside] == [True] * PLACES
    again = places.taken_by(0)
    assert again.__enter__() is True  # a second request of one who is inside
    with places.taken_by("late") as free:
        assert free is False
    inside[0].__exit__(None, None, None)
    with places.taken_by("late") as free:
        assert free is False
    again.__exit__(None, None, None)
    with places.taken_by("late") as free:
        assert free is True


def test_one_peer_has_few_requests_at_once() -> None:
    """A peer that opens requests without end occupies one place, and is refused itself."""
    places = Places(PLACES)
    streams = [places.taken_by("greedy") for _ in range(STREAMS_PER_PEER + 3)]
    assert [stream.__enter__() for stream in streams] == [True] * STREAMS_PER_PEER + [False] * 3
    with places.taken_by("other") as free:
        assert free is True


def test_a_small_rate_is_shared_by_few() -> None:
    """With little upload fewer are served at once, so that each gets its chunks in time; one always is."""

    def served(rate: float) -> int:
        places = Places.within(rate)
        with ExitStack() as inside:
            return sum(inside.enter_context(places.taken_by(number)) for number in range(PLACES + 2))

    assert [served(rate) for rate in (50e3, 250e3, 10e6)] == [1, 2, PLACES]
