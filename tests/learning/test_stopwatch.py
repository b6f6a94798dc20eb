"""The stopwatch of the trainer's phases."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from dupt_swarm.learning.stopwatch import (
    PHASES,
    CudaStopwatch,
    HostStopwatch,
    Phase,
    begin_span,
    build_stopwatch,
)
from dupt_swarm.learning.trainer import Trainer
from tests.learning.test_trainer import CPU, Adam, Source, tiny


class Clock:
    """``perf_counter`` that goes on by one at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class Event:
    """In place of a CUDA event, since there may be no GPU here: the stream passes one when told to."""

    recorded: list[Event] = []  # noqa: RUF012 (emptied by each test)
    passed = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.number = len(Event.recorded)
        Event.recorded.append(self)

    def query(self) -> bool:
        return self.number < Event.passed

    def elapsed_time(self, end: Event) -> float:
        assert end.query(), "reading it would wait"
        return 1000.0 * (end.number - self.number)


def test_each_phase_gets_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laps of one phase add up, and what was not done took no time."""
    monkeypatch.setattr("dupt_swarm.learning.stopwatch.time.perf_counter", Clock())
    told: list[tuple[int, Mapping[Phase, float]]] = []
    watch = HostStopwatch(lambda tokens, seconds: told.append((tokens, dict(seconds))))
    for laps in (("forward", "backward", "forward", "backward", "optimizer"), ("data",)):
        watch.start()
        for phase in laps:
            watch.lap(phase)
        watch.finish(len(laps))
    assert told == [
        (5, {"data": 0.0, "forward": 2.0, "backward": 2.0, "optimizer": 1.0}),
        (1, {"data": 1.0, "forward": 0.0, "backward": 0.0, "optimizer": 0.0}),
    ]


def test_a_trainer_tells_each_step() -> None:
    """Every step is told once, with all its phases and tokens, and its losses are as without a stopwatch."""
    losses = []
    told: list[tuple[int, Mapping[Phase, float]]] = []
    for observed in (True, False):
        model = tiny()
        trainer = Trainer(model, Adam(model), Source(2, 3), CPU, micro_batches=2)
        if observed:
            trainer.observe(lambda tokens, seconds: told.append((tokens, seconds)))
        losses.append([trainer.step().loss.item() for _ in range(3)])
    assert losses[0] == losses[1]
    assert [tokens for tokens, _ in told] == [40, 40, 40]
    assert all(set(seconds) == set(PHASES) and min(seconds.values()) > 0 for _, seconds in told)


def test_on_cuda_nobody_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is told when the device has passed its last event; only the data's time is the host's."""
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(Event, "recorded", [])
    monkeypatch.setattr(Event, "passed", 0)
    monkeypatch.setattr("dupt_swarm.learning.stopwatch.time.perf_counter", Clock())
    told: list[tuple[int, Mapping[Phase, float]]] = []
    watch = CudaStopwatch(lambda tokens, seconds: told.append((tokens, dict(seconds))))

    def step(tokens: int) -> None:
        watch.start()
        for phase in PHASES:
            watch.lap(phase)
        watch.finish(tokens)

    step(10)
    assert told == []
    Event.passed = 5
    step(20)
    expected = {"data": 1.0, "forward": 1.0, "backward": 1.0, "optimizer": 1.0}
    assert told == [(10, expected)]
    events = {id(event) for event in Event.recorded}
    Event.passed = 10
    step(30)
    assert told == [(10, expected), (20, expected)]
    assert {id(event) for event in Event.recorded[10:]} < events, "events are used again"


def test_the_stopwatch_fits_the_device() -> None:
    """Only CUDA has events; everywhere else the host's clock is all there is."""
    kinds = [type(build_stopwatch(torch.device(name), lambda *_: None)) for name in ("cpu", "mps", "cuda:1")]
    assert kinds == [HostStopwatch, HostStopwatch, CudaStopwatch]


def test_a_span_of_a_gpu_has_a_length_when_that_is_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, nobody can tell it without waiting."""
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(Event, "recorded", [])
    monkeypatch.setattr(Event, "passed", 1)
    span = begin_span(torch.device("cuda"))
    span.end()
    assert span.seconds is None
    monkeypatch.setattr(Event, "passed", 2)
    assert span.seconds == 1.0


def test_a_span_of_a_cpu_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls return when all is done."""
    now = iter((1.0, 3.5))
    monkeypatch.setattr("dupt_swarm.learning.stopwatch.time.monotonic", lambda: next(now))
    span = begin_span(CPU)
    span.end()
    assert span.seconds == 2.5
