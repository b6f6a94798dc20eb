"""The row of dashboard `peer` about its GPU."""

from __future__ import annotations

from dupt_swarm.metrics import peer
from monitor.dashboards.board import Row
from monitor.dashboards.panel import graph
from monitor.dashboards.query import RECENT, Query

NO_GPU = "No GPU"
GPU = Row(
    "GPU",
    (
        graph(
            "Utilization",
            "Fraction of the time in which the GPU is busy, with any process.",
            Query("{0}", peer.GPU_UTILIZATION, legend="GPU {{gpu}}"),
            unit="percentunit",
            width=6,
            defaults={"min": 0, "max": 1},
            empty=NO_GPU,
        ),
        graph(
            "Memory",
            "In use by any process, and in total.",
            Query("{0}", peer.GPU_MEMORY_USED, legend="GPU {{gpu}}"),
            Query("{0}", peer.GPU_MEMORY_TOTAL, legend="GPU {{gpu}}, total"),
            unit="bytes",
            width=6,
            defaults={"min": 0},
            empty=NO_GPU,
        ),
        graph(
            "Temperature",
            "Most GPUs throttle above 85 °C.",
            Query("{0}", peer.GPU_TEMPERATURE, legend="GPU {{gpu}}"),
            unit="celsius",
            width=6,
            empty=NO_GPU,
        ),
        graph(
            "Power",
            "Energy that the GPU uses per second.",
            Query(f"rate({{0}}{RECENT})", peer.GPU_ENERGY, legend="GPU {{gpu}}"),
            unit="watt",
            width=6,
            defaults={"min": 0},
            empty=NO_GPU,
        ),
    ),
)
