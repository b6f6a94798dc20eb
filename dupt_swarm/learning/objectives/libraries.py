"""Libraries that not everybody has installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from dupt_swarm.errors import UsageError, install

_PACKAGES = {"sklearn": "scikit-learn", "scipy": "scipy"}  # what computes scores, and who provides it


def require_scores() -> None:
    """See beforehand, without importing them, that what computes scores is installed.

    Raises:
        UsageError: it is not.
    """
    for name in _PACKAGES:
        _require(name)


def import_for_scores(module: str) -> ModuleType:
    """``sklearn.metrics`` or ``scipy.stats``, for instance.

    Raises:
        UsageError: it is not installed.
    """
    _require(module.partition(".")[0])
    return import_module(module)


def _require(name: str) -> None:
    if find_spec(name) is None:
        raise UsageError(f"scores need {_PACKAGES[name]}; {install('model')}")
