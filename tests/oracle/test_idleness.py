"""Whether others leave the machine alone: by the cores' time, and by what the GPU's driver tells."""

from __future__ import annotations

import os
import sys
import time
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from dupt_swarm.learning.driver import Card
from dupt_swarm.oracle import idleness
from dupt_swarm.oracle.idleness import BUSY_SECONDS, CORES_MAX, GPU_MAX, LOOK_SECONDS, QUIET_SECONDS, Idleness
from tests.support.fake_nvml import FakeNVML

CORES = 8


class Machine:
    """Its clock, and what others have used of its cores."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.used, self.own = 1000.0, 500.0, 7.0
        monkeypatch.setattr(idleness, "used_seconds", lambda: (self.used + self.own, CORES))
        process = SimpleNamespace(pid=os.getpid(), cpu_times=self._times)
        monkeypatch.setattr(idleness, "_ours", lambda: [process])

    def _times(self) -> Any:
        part = self.own / 4
        return SimpleNamespace(user=part, system=part, children_user=part, children_system=part)

    def watch(self, card: Card | None = None, drawn: float = 0.0) -> Idleness:
        return Idleness(
            [torch.device("cpu")],
            clock=lambda: self.now,
            draw=lambda: drawn,
            cards=[card] if card else None,
        )

    def pass_time(self, found: Idleness, seconds: float, others: float = 0.0, ours: float = 0.9) -> None:
        """``others`` and ``ours``: the part of all cores that is used meanwhile."""
        for _ in range(round(seconds / LOOK_SECONDS)):
            self.now += LOOK_SECONDS
            self.used += others * CORES * LOOK_SECONDS
            self.own += ours * CORES * LOOK_SECONDS
            found.look(computing=True)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_its_own_work_is_not_that_of_others(machine: Machine) -> None:
    """However much it uses, children that have ended included."""
    found = machine.watch()
    machine.pass_time(found, 600, ours=1.0)
    assert found.free


def test_a_child_that_has_just_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between finding it and asking it."""

    def ended() -> Any:
        raise psutil.NoSuchProcess(1)

    monkeypatch.setattr(idleness, "used_seconds", lambda: (500.0, CORES))
    gone: Any = SimpleNamespace(cpu_times=ended)
    assert idleness._used_by_others([gone]) == (500.0, CORES)


def test_others_come_and_go(machine: Machine) -> None:
    """A burst is no reason; who stays is, until it has been quiet for two minutes."""
    found = machine.watch()
    machine.pass_time(found, 600, others=CORES_MAX - 0.05)  # of all cores
    machine.pass_time(found, BUSY_SECONDS - LOOK_SECONDS, others=0.9)
    assert found.free
    machine.pass_time(found, LOOK_SECONDS)
    machine.pass_time(found, BUSY_SECONDS, others=CORES_MAX + 0.05)
    assert not found.free
    machine.pass_time(found, 600, others=CORES_MAX - 0.05)  # less, but not quiet
    assert not found.free
    machine.pass_time(found, QUIET_SECONDS - LOOK_SECONDS)
    machine.pass_time(found, LOOK_SECONDS, others=0.9)
    machine.pass_time(found, QUIET_SECONDS - LOOK_SECONDS)
    assert not found.free
    machine.pass_time(found, LOOK_SECONDS)
    assert found.free


def test_two_oracles_on_a_machine_take_turns(machine: Machine) -> None:
    """Each waits for as long as it has drawn: else both would come back at once, and go again."""
    found = machine.watch(drawn=0.5)
    machine.pass_time(found, BUSY_SECONDS, others=0.9)
    machine.pass_time(found, 1.5 * QUIET_SECONDS - LOOK_SECONDS)
    assert not found.free
    machine.pass_time(found, LOOK_SECONDS)
    assert found.free


def test_it_looks_every_few_seconds_only(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked between any two batches."""
    found = machine.watch()
    monkeypatch.setattr(idleness, "used_seconds", lambda: pytest.fail("it looked"))
    machine.now += LOOK_SECONDS / 2
    found.look(computing=True)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNVML:
    found = FakeNVML()
    monkeypatch.setitem(sys.modules, "pynvml", found)
    return found


def test_others_on_the_gpu(machine: Machine, nvml: FakeNVML) -> None:
    """With a made-up driver: what other processes compute there counts, our own does not."""
    found = machine.watch(Card("GPU-1"))
    nvml.processes = {os.getpid(): 95}
    machine.pass_time(found, 60)
    assert found.free
    nvml.processes = {os.getpid(): 60, 1: 15, 2: round(100 * GPU_MAX) - 10}
    machine.pass_time(found, BUSY_SECONDS)
    assert not found.free


@pytest.mark.parametrize(
    ("processes", "computing", "expected"),
    [
        ({7: 60, 1: 30}, True, 0.3),
        ({7: 60}, True, 0.0),
        ({7: 60, 1: 30, 2: 4_000_000_000}, True, 0.3),  # as some drivers say of a process that has ended
        ({1: 30}, True, None),  # these are pids of another namespace, or only we pause
        ({}, True, None),
        ({1: 30}, False, 0.4),
    ],
)
def test_what_can_be_told_of_a_gpu(
    nvml: FakeNVML, processes: dict[int, int], computing: bool, expected: float | None
) -> None:
    """While this peer is paused, all that is computed is that of others."""
    nvml.processes, nvml.utilization = processes, 40
    assert Card("GPU-1").used_by_others([7], computing=computing) == expected
    assert Card("GPU-2").used_by_others([7], computing=computing) is None


def test_without_a_driver_there_is_nothing_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing fails."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Card("GPU-1").used_by_others([7], computing=True) is None
    assert Card.of_device(torch.device("cpu")) is None


def test_this_machine() -> None:
    """This one and those that it has started: not its parent."""
    pids = [process.pid for process in idleness._ours()]
    assert pids[0] == os.getpid()
    assert psutil.Process().ppid() not in pids
    before, cores = idleness._used_by_others([])
    spent = time.process_time()
    while time.process_time() < spent + 0.5:
        pass
    spent = time.process_time()
    alone, _ = idleness._used_by_others([psutil.Process()])
    after, _ = idleness._used_by_others([])
    assert after - before > 0.4, "what this process uses is seen"
    assert alone <= after - spent + 0.1, "and taken off"
    assert cores >= 1
