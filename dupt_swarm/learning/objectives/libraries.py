"""Libraries that not everybody has installed."""

from __future__ import annotations

from typing import Any

from dupt_swarm.errors import UsageError


def scikit_learn() -> Any:
    """``sklearn.metrics``.

    Raises:
        UsageError: it is not installed.
    """
    try:
        from sklearn import metrics
    except ImportError as error:
        raise UsageError("scores need scikit-learn; `pip install dupt_swarm[model]`") from error
    return metrics


def scipy_stats() -> Any:
    """``scipy.stats``.

    Raises:
        UsageError: it is not installed.
    """
    try:
        from scipy import stats
    except ImportError as error:
        raise UsageError("scores need scipy; `pip install dupt_swarm[model]`") from error
    return stats
