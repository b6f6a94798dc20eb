"""An answer that is a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dupt_swarm.learning.objectives.answers.numbers import number_in
from dupt_swarm.learning.objectives.libraries import import_for_scores
from dupt_swarm.learning.objectives.supervised import regression_loss


class Score:
    """A number, such as how alike two texts are; W_y gives it directly."""

    outputs = 1
    dtype = torch.float32
    criterion = "spearman"

    def read(self, value: object, choices: int) -> float:
        """See `Answer`."""
        del choices
        number = number_in(value)
        if not math.isfinite(number):
            raise ValueError(f"label {value!r} is not a number")
        return number

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """See `Answer`."""
        return regression_loss(logits, labels)

    def scores(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        """Pearson's and Spearman's correlations; not a number where all are alike."""
        stats = import_for_scores("scipy.stats")
        found, true = logits.squeeze(1).numpy(), labels.numpy()
        if len(true) < 2 or len(set(true.tolist())) < 2 or len(set(found.tolist())) < 2:
            return {"pearson": math.nan, "spearman": math.nan}
        return {
            "pearson": float(stats.pearsonr(true, found).statistic),
            "spearman": float(stats.spearmanr(true, found).statistic),
        }

    def describe(self, logits: Sequence[float]) -> dict[str, Any]:
        """The score."""
        return {"label": logits[0]}
