"""How many cores this process may use, and how much of them is used."""

from __future__ import annotations

import math
import os
from pathlib import Path

import psutil

CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """How many there are, without those that this process is kept from."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(mine, quota())


def quota() -> int:
    """How many cores a container's limit on CPU time amounts to, rounded up; where there is none, many."""
    try:
        limit, period = CGROUP_QUOTA.read_text().split()
        return max(1, math.ceil(int(limit) / int(period)))
    except (OSError, ValueError):  # no control groups of version 2, or "max"
        return 1 << 16


def used_seconds() -> tuple[float, int]:
    """CPU seconds that all processes have used on the cores that this one may run on; how many these are."""
    cores = psutil.cpu_times(percpu=True)
    if hasattr(os, "sched_getaffinity"):
        mine = os.sched_getaffinity(0)
        # A container may be shown fewer cores than there are: then their numbers say nothing.
        cores = [core for number, core in enumerate(cores) if number in mine] or cores
    # Waiting for a disk leaves a core free; Linux counts guests as users too.
    unused = ("idle", "iowait", "guest", "guest_nice")
    used = sum(value for core in cores for name, value in core._asdict().items() if name not in unused)
    return used, len(cores)
