"""How long the phases of an inner step take, and other spans of time, without ever waiting for a GPU."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Literal, Protocol

import torch

from dupt_swarm.learning.device import wait_for

Phase = Literal["data", "forward", "backward", "optimizer"]
PHASES: tuple[Phase, ...] = ("data", "forward", "backward", "optimizer")
Observer = Callable[[int, Mapping[Phase, float]], None]  # tokens of a step, and the seconds of its phases


class Stopwatch:
    """Measures nothing; the default."""

    def start(self) -> None:
        """A step begins."""

    def lap(self, phase: Phase) -> None:
        """Attribute the time since `start` or the last `lap` to ``phase``, which may occur repeatedly."""

    def finish(self, tokens: int) -> None:
        """The step on ``tokens`` tokens is over."""


class HostStopwatch(Stopwatch):
    """Measures until the calls return: exact on the CPU; elsewhere the device may lag behind."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def start(self) -> None:
        self._seconds: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
        self._since = time.perf_counter()

    def lap(self, phase: Phase) -> None:
        now = time.perf_counter()
        self._seconds[phase] += now - self._since
        self._since = now

    def finish(self, tokens: int) -> None:
        self._observer(tokens, self._seconds)


class CudaStopwatch(HostStopwatch):
    """A `Stopwatch` of the device, by events in its stream that are read when it has passed them.

    So a step is reported when the device has done it, some steps later. Only `data` is measured on
    the host: it reads them while the device still computes, so the phases add up to more than the step.
    """

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._free: list[torch.cuda.Event] = []
        self._running: deque[tuple[int, float, list[tuple[Phase, torch.cuda.Event]]]] = deque()

    def start(self) -> None:
        super().start()
        self._marks: list[tuple[Phase, torch.cuda.Event]] = []
        self._mark("data")

    def lap(self, phase: Phase) -> None:
        super().lap(phase)
        self._mark(phase)

    def finish(self, tokens: int) -> None:
        self._running.append((tokens, self._seconds["data"], self._marks))
        while self._running and self._running[0][-1][-1][-1].query():  # type: ignore[no-untyped-call]
            done, data, marks = self._running.popleft()
            self._observer(done, self._read(data, marks))
            self._free += [event for _, event in marks]

    def _mark(self, phase: Phase) -> None:
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._marks.append((phase, event))

    def _read(self, data: float, marks: list[tuple[Phase, torch.cuda.Event]]) -> dict[Phase, float]:
        seconds: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
        for (_, before), (phase, after) in pairwise(marks):
            seconds[phase] += before.elapsed_time(after) / 1000  # from ms
        return seconds | {"data": data}


def build_stopwatch(device: torch.device, observer: Observer) -> Stopwatch:
    """The one that measures on ``device``; ``observer`` is called for each step, in the trainer's thread."""
    return CudaStopwatch(observer) if device.type == "cuda" else HostStopwatch(observer)


def begin_span(device: torch.device) -> Span:
    """One that begins with what ``device`` is told next, not with what it has still to do."""
    return CudaSpan() if device.type == "cuda" else HostSpan(device)


class Span(Protocol):
    """How long a device takes for what it is told from when this was made to `end`."""

    def end(self) -> None:
        """What the device is told from now on does not count."""

    @property
    def seconds(self) -> float | None:
        """Once it has ended; None: the device is not through with it."""


class HostSpan:
    """By the host's clock, until the calls return; the device has nothing else to do when it begins."""

    def __init__(self, device: torch.device) -> None:
        wait_for(device)
        self._began, self.seconds = time.monotonic(), 0.0

    def end(self) -> None:
        self.seconds = time.monotonic() - self._began


class CudaSpan:
    """By events in the device's stream; what the device waits for there counts, too."""

    def __init__(self) -> None:
        self._began, self._ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        self._began.record()

    def end(self) -> None:
        self._ended.record()

    @property
    def seconds(self) -> float | None:
        through: bool = self._ended.query()  # type: ignore[no-untyped-call]
        return self._began.elapsed_time(self._ended) / 1000 if through else None  # from ms
