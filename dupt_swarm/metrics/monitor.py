"""The monitor's metrics about itself."""

from __future__ import annotations

from dupt_swarm.metrics.spec import MetricSpec

BUILD_INFO = MetricSpec("dupt_monitor_build_info", "info", "The monitor's own version.", ("version",))
UP = MetricSpec("dupt_monitor_up", "gauge", "Whether the last refresh reached the swarm.")
LAST_REFRESH = MetricSpec(
    "dupt_monitor_last_refresh_timestamp_seconds", "gauge", "When a refresh last reached the swarm."
)
REFRESH_DURATION = MetricSpec(
    "dupt_monitor_refresh_duration_seconds", "gauge", "How long the last refresh took, failed or not."
)
REFRESH_ERRORS = MetricSpec(
    "dupt_monitor_refresh_errors_total", "counter", "Refreshes that did not reach the swarm."
)

MONITOR_METRICS: tuple[MetricSpec, ...] = (
    BUILD_INFO,
    UP,
    LAST_REFRESH,
    REFRESH_DURATION,
    REFRESH_ERRORS,
)
