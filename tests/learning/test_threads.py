"""How many threads compute beside others; the rule by tables, the looking on this machine."""

import itertools
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
import torch

from dupt_swarm.learning.cores import quota
from dupt_swarm.learning.threads import QUIET_SECONDS, ThreadRule, Threads


def risen(most: int, draw: float = 0.0) -> ThreadRule:
    """A rule that was alone until second -1, and has taken all cores by then."""
    rule = ThreadRule(most, -5.0, lambda: draw)
    assert [rule.look(float(second), float(most)) for second in range(-4, 0)][-1] == most
    return rule


def numbers(most: int, rooms: list[float], draw: float = 0.0) -> list[int]:
    """What the rule says, looking once a second at these numbers of cores that others leave."""
    rule = risen(most, draw)
    return [rule.look(float(second), room) for second, room in enumerate(rooms)]


@pytest.mark.parametrize(
    ("most", "rooms", "expected"),
    [
        (2, [2.0, 1.9, 1.6], [2, 2, 2]),  # alone, or nearly
        (2, [1.0, 1.0, 1.0], [2, 1, 1]),  # beside one busy loop: the second look decides
        (2, [0.7, 0.7, 0.7], [2, 1, 1]),  # three on two cores
        (2, [0.0, 0.0, 0.0], [2, 1, 1]),  # never fewer than one
        (2, [1.0, 2.0, 1.0, 2.0, 1.0], [2, 2, 2, 2, 2]),  # bursts of a second
        (16, [5.3, 5.3, 5.3], [16, 5, 5]),
        (16, [12.0, 5.3, 5.3], [16, 5, 5]),
        (4, [9.0, 9.0], [4, 4]),  # fewer threads than cores, as OMP_NUM_THREADS may say
        (4, [-1.0, -1.0], [4, 1]),  # clocks that do not tick alike
    ],
)
def test_it_gives_way_after_two_crowded_seconds(most: int, rooms: list[float], expected: list[int]) -> None:
    """As many threads as cores that others leave, at least one, and no sooner than a burst has passed."""
    assert numbers(most, rooms) == expected


@pytest.mark.parametrize(
    ("rooms", "expected"),
    [
        ([2.0, 2.0, 2.0], [1, 2, 2]),  # alone: all cores after a second
        ([0.7, 0.7, 0.7], [1, 1, 1]),  # beside others: never more than one
        ([2.0, 0.7, 2.0, 2.0], [1, 1, 1, 2]),
    ],
)
def test_it_starts_with_one_thread(rooms: list[float], expected: list[int]) -> None:
    """Nobody is crowded by a first step, and an oracle that is alone soon has all cores."""
    rule = ThreadRule(2, -1.0, lambda: 0.0)
    assert [rule.look(float(second), room) for second, room in enumerate(rooms)] == expected


@pytest.mark.parametrize(("draw", "waited"), [(0.0, QUIET_SECONDS), (0.5, 1.5 * QUIET_SECONDS)])
def test_it_takes_cores_back_after_a_quiet_while(draw: float, waited: float) -> None:
    """The while is as long as the constant says, and up to as much again, as drawn."""
    found = numbers(2, [1.0, 1.0, *[2.0] * 20], draw)
    back = found.index(2, 1 + found.index(1))
    assert back - 2 == -(-waited // 1)


def test_one_look_at_a_long_step_is_enough() -> None:
    """After a step that others made last for seconds there are fewer threads at once."""
    rule = risen(2)
    assert [rule.look(0.5, 1.0), rule.look(6.5, 0.7)] == [2, 1]
    assert risen(2).look(6.0, 0.7) == 1


def test_a_quiet_while_is_counted_without_breaks() -> None:
    """A look that finds no room begins the while anew."""
    assert set(numbers(2, [1.0, 1.0, *[2.0, 2.0, 2.0, 1.0] * 5])[1:]) == {1}


def test_a_peer_that_took_cores_too_early_waits_twice_as_long_the_next_time() -> None:
    """Where others need the cores as soon as they are taken, attempts become rare."""
    rule = ThreadRule(2, -1.0, lambda: 0.0)
    raised = []
    for second in range(2_000):
        before = rule.threads
        if rule.look(float(second), 1.0 if rule.threads == 2 else 2.0) > before:
            raised.append(second)
    waits = [later - earlier for earlier, later in itertools.pairwise(raised)]
    assert waits == sorted(waits)
    assert waits[0] >= QUIET_SECONDS
    assert waits[1] >= 2 * QUIET_SECONDS
    assert waits[-1] >= 300
    # After a time that lasted, it is as patient as at first.
    for second in range(2_000, 3_000):
        rule.look(float(second), 2.0)
    rule.look(3_000.0, 1.0)
    assert [rule.look(3_001.0 + second, 1.0 if second == 0 else 2.0) for second in range(8)][-1] == 2


@pytest.mark.parametrize(("oracles", "cores"), [(3, 2), (2, 2), (3, 16), (2, 16), (5, 4)])
def test_several_oracles_settle_without_swinging(oracles: int, cores: int) -> None:
    """All adapt at once; in the end they hardly change, and use the cores without crowding one another."""
    draws = iter(range(10**6))
    rules = [ThreadRule(cores, -1.0, lambda: next(draws) * 0.618 % 1) for _ in range(oracles)]
    totals, changes = [], 0
    for second in range(1_200):
        wanted = [rule.threads for rule in rules]
        share = min(1.0, cores / sum(wanted))  # the system's scheduler is fair
        used = [share * threads for threads in wanted]
        now = [
            rule.look(float(second), cores - sum(used) + mine) for rule, mine in zip(rules, used, strict=True)
        ]
        if second >= 600:
            totals.append(sum(now))
            changes += now != wanted
    assert changes <= 12
    crowded = sum(total > max(cores, oracles) for total in totals)
    assert crowded <= 12
    assert sum(totals) / len(totals) > 0.9 * cores - 1


@pytest.fixture
def two_threads() -> Iterator[None]:
    """PyTorch computes with two threads, as on any machine with two cores; afterwards as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("fixed", "expected"), [(3, 3), (None, min(2, quota()))], ids=["fixed", "gpu"])
def test_their_number_stays(fixed: int | None, expected: int) -> None:
    """`--threads` is obeyed whatever others do, and may be more than PyTorch would take by itself; where the
    CPU does not train there are all of them from the start."""
    clock = itertools.count(0.0, 10.0)
    threads = Threads(fixed, computing=fixed is not None, clock=lambda: next(clock))
    for _ in range(5):
        threads.adapt()
        assert torch.get_num_threads() == expected


@pytest.mark.usefixtures("two_threads")
def test_busy_loops_on_all_cores_leave_one_thread() -> None:
    """On a machine whose cores are all taken, PyTorch soon computes with one thread."""
    loop = "while True: pass"
    loops = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(psutil.cpu_count() or 1)]
    try:
        threads = Threads()
        threads._rule = risen(2)
        torch.set_num_threads(2)
        for _ in range(1_000):
            threads.adapt()
            if torch.get_num_threads() == 1:
                break
            (torch.ones(500, 500) @ torch.ones(500, 500)).sum().item()
            psutil.cpu_percent(interval=0.1)
    finally:
        for process in loops:
            process.kill()
            process.wait()
    assert torch.get_num_threads() == 1
