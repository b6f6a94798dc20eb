"""The monitor's metrics about itself."""

from __future__ import annotations

from dupt_swarm.metrics.spec import Table

_TABLE = Table("dupt_monitor_")
_monitor = _TABLE.add

BUILD_INFO = _monitor("build_info", "info", "The monitor's own version.", "version")
UP = _monitor("up", "gauge", "Whether the last refresh reached the swarm.")
LAST_REFRESH = _monitor("last_refresh_timestamp_seconds", "gauge", "When a refresh last reached the swarm.")
REFRESH_DURATION = _monitor(
    "refresh_duration_seconds", "gauge", "How long the last refresh took, failed or not."
)
REFRESH_ERRORS = _monitor("refresh_errors_total", "counter", "Refreshes that did not reach the swarm.")

MONITOR_METRICS = tuple(_TABLE.specs)
