"""Libraries that not everybody has installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from dupt_swarm.errors import UsageError


def require_scores() -> None:
    """See beforehand, without importing them, that what computes scores is installed.

    Raises:
        UsageError: it is not.
    """
    for name, package in (("sklearn", "scikit-learn"), ("scipy", "scipy")):
        if find_spec(name) is None:
            raise UsageError(f"scores need {package}; `pip install dupt_swarm[model]`")


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
