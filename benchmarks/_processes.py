"""What processes use: processor time, memory, and how late a node's event loop is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

HERE = Path(__file__).resolve().parent


def with_descendants(pid: int) -> list[psutil.Process]:
    """A process, and all that it and its children have started."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """Processor time that they have used so far."""
    times = [process.cpu_times() for process in processes]
    return sum(each.user + each.system for each in times)


def peak_bytes(pid: int) -> int:
    """The most main memory that a process has had so far; shared memory counts."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def lag_environment(file: Path) -> dict[str, str]:
    """The variables with which a process has its node write to ``file`` how late its event loop is."""
    hooks = (HERE / "_loop_lag", HERE.parent)
    return {"PYTHONPATH": os.pathsep.join(map(str, hooks)), "DUPT_LOOP_LAG": str(file)}


class Lag(NamedTuple):
    """Of one second of an event loop: by how much it was late at worst, and what it computed of that."""

    time: float
    late: float
    own: float


def lags_in(file: Path) -> list[Lag]:
    """What `_loop_lag` has written so far; of a last line that is not complete, nothing."""
    return [Lag(*map(float, line.split())) for line in file.read_text().split("\n")[:-1]]
