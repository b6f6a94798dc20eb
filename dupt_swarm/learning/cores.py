"""How many cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

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
