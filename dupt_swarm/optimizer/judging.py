"""Who says whether to vote for the states that rounds lead to."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

State = tuple[str, Tensor]
"""Digest and anchor of a replica state: fp32 ``[numel]`` on the CPU, not to be written."""


class Judge(Protocol):
    """Judges states that rounds lead to."""

    def __call__(self, tokens: int, before: State, after: State) -> bool:
        """Whether a round may lead from ``before`` to ``after``; it stands for ``tokens`` trained on here."""
