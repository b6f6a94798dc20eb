"""What rounds cost an invented oracle."""

from typing import Any


def cost_fields(**changed: Any) -> dict[str, Any]:
    """What rounds cost an oracle, as fields of its record."""
    return {
        "round_sent_bytes": 1_030_000,
        "round_received_bytes": 4_120_000,
        "utilization": 0.966,
        "round_waiting_seconds": 0.34,
        "waiting_seconds": 12.0,
        **changed,
    }
