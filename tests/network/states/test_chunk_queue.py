"""Which chunk a peer asks which donor for."""

import pytest

from dupt_swarm.network.states.download import OVERDUE_SECONDS, STALLED_SECONDS, ChunkQueue


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def queue(now) -> ChunkQueue:
    """Five chunks, none asked for yet."""
    return ChunkQueue({4, 2, 0, 1, 3}, lambda: now[0])


def ask(queue: ChunkQueue, donor: str, at_most: int) -> list[int]:
    numbers = queue.take(donor, at_most)
    queue.sent(donor, numbers)
    return numbers


def test_each_chunk_is_asked_from_one(queue) -> None:
    """In order, and nobody is asked for what another is asked for already."""
    assert (ask(queue, "a", 2), ask(queue, "b", 2), ask(queue, "a", 2)) == ([0, 1], [2, 3], [4])
    assert (queue.waiting, queue.under_way) == (0, 5)
    assert ask(queue, "b", 2) == []


def test_what_a_donor_did_not_give_waits_again(queue) -> None:
    """After a failed request its chunks come first, without those that arrived."""
    numbers = ask(queue, "a", 3)
    queue.arrived("a", 1)
    queue.give_back("a", numbers)
    assert ask(queue, "b", 9) == [0, 2, 3, 4]


def test_an_overdue_chunk_is_asked_from_another_donor(queue, now) -> None:
    """Near the end, never from the same donor, from a third only when the second is late too."""
    ask(queue, "slow", 5)
    assert ask(queue, "fast", 1) == []
    now[0] += OVERDUE_SECONDS + 0.1
    assert ask(queue, "slow", 1) == []
    assert ask(queue, "fast", 1) == [0]
    assert ask(queue, "fast", 0) == []
    assert ask(queue, "third", 1) == [1]
    assert [ask(queue, "third", 1) for _ in range(4)] == [[2], [3], [4], []]
    now[0] += OVERDUE_SECONDS + 0.1
    assert ask(queue, "third", 1) == [0]


def test_late_is_measured_by_what_is_usual(queue, now) -> None:
    """Where every chunk takes ten seconds, one that takes ten seconds is not late."""
    ask(queue, "a", 1)
    now[0] += 10.0
    queue.arrived("a", 0)
    ask(queue, "a", 4)
    now[0] += 29.0
    assert ask(queue, "b", 1) == []
    now[0] += 2.0
    assert ask(queue, "b", 1) == [1]


def test_the_slower_donor_is_named(queue, now) -> None:
    """When the second donor is faster, the first is too slow; the other way round nobody is."""
    ask(queue, "slow", 5)
    now[0] += OVERDUE_SECONDS + 0.1
    ask(queue, "fast", 1)
    ask(queue, "fast", 1)
    now[0] += 1.0
    assert queue.arrived("fast", 0) == ["slow"]
    assert queue.arrived("slow", 1) == []
    queue.give_back("fast", [0, 1])
    queue.give_back("slow", [0, 1, 2, 3, 4])
    assert (queue.waiting, queue.under_way) == (3, 0)


def test_a_stalled_chunk_counts_no_longer(queue, now) -> None:
    """What a donor has owed for long takes no room from the others, and the donor is known to be stalled."""
    ask(queue, "silent", 2)
    now[0] += STALLED_SECONDS - 0.1
    ask(queue, "good", 1)
    assert (queue.under_way, queue.stalled("silent"), queue.holds("silent")) == (3, False, True)
    now[0] += 0.2
    assert (queue.under_way, queue.stalled("silent"), queue.stalled("good")) == (1, True, False)
    queue.give_back("silent", [0, 1])
    assert (queue.stalled("silent"), queue.holds("silent"), queue.waiting) == (False, False, 4)


def test_a_request_that_waits_for_its_turn_is_not_late(queue, now) -> None:
    """Time counts from when the request went out."""
    numbers = queue.take("limited", 5)
    now[0] += 1000.0
    assert ask(queue, "other", 1) == []
    queue.sent("limited", numbers)
    now[0] += OVERDUE_SECONDS + 0.1
    assert ask(queue, "other", 1) == [0]
