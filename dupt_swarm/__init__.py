"""Decentralized unsupervised pre-training: independent oracles train one GPT together.

from dupt_swarm import GPT, CollaborativeOptimizer, Swarm
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dupt_swarm.learning.model import GPT
    from dupt_swarm.optimizer.collaborative import CollaborativeOptimizer
    from dupt_swarm.swarm import Swarm

__all__ = ["GPT", "CollaborativeOptimizer", "Swarm"]


def __getattr__(name: str) -> Any:
    # Importing the package loads neither torch nor hivemind, so that `--help` answers at once.
    homes = {"GPT": "learning.model", "CollaborativeOptimizer": "optimizer.collaborative", "Swarm": "swarm"}
    if name not in homes:
        raise AttributeError(f"module 'dupt_swarm' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"dupt_swarm.{homes[name]}"), name)
