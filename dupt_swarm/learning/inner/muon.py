"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/), scaled as in arXiv:2502.16982.

The update of a matrix is its momentum, made orthogonal: all its singular values become about 1. Times
0.2·√(larger dimension) its entries are as large as AdamW's (Liu et al. 2025, "Muon is scalable for LLM
training", section 2.2), so one learning rate and one weight decay serve both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn, optim

from dupt_swarm.learning.device import product_dtype
from dupt_swarm.learning.inner.adamw import build_adamw
from dupt_swarm.manifest import Inner

ADAMW_RMS = 0.2  # of the entries of an AdamW update, as a rule
NEWTON_SCHULZ_STEPS = 5
# On a GPU one matrix is too little work for a call; on a CPU several at once take 8 to 22 % longer.
VALUES_AT_ONCE = {"cuda": 1 << 25}
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # p(x) = a·x + b·x³ + c·x⁵ takes (0, 1] to about 0.7 … 1.2 soonest


def build_muon(
    parameters: Sequence[nn.Parameter], matrices: Collection[nn.Parameter], inner: Inner
) -> optim.Optimizer:
    """Muon for those of ``parameters`` that are among ``matrices``, AdamW for all others."""
    chosen = set(matrices)
    own = [parameter for parameter in parameters if parameter in chosen]
    rest = [parameter for parameter in parameters if parameter not in chosen]
    parts: list[optim.Optimizer] = [build_adamw(rest, inner)] if rest else []
    if own:
        parts.append(Muon(own, inner.learning_rate, inner.momentum, inner.weight_decay))
    return JointOptimizer(parts)


class Muon(optim.Optimizer):
    """B ← μ·B + (1−μ)·G;  θ ← θ − η·λ·θ − η·0.2·√max(m, n)·orthogonal((1−μ)·G + μ·B), for [m, n] matrices."""

    def __init__(
        self, matrices: Sequence[nn.Parameter], learning_rate: float, momentum: float, weight_decay: float
    ) -> None:
        """Nothing is allocated before the first step."""
        super().__init__(matrices, {"lr": learning_rate, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # it takes no closure
        """One update with the gradients that the matrices have."""
        for group in self.param_groups:
            for matrices in _together([matrix for matrix in group["params"] if matrix.grad is not None]):
                self._update(matrices, group)

    def _update(self, matrices: Sequence[nn.Parameter], group: dict[str, Any]) -> None:
        """Of matrices that have one shape."""
        momentum, shape = group["momentum"], matrices[0].shape
        directions = []
        for matrix in matrices:
            assert matrix.grad is not None
            state = self.state[matrix]
            if not state:
                state["momentum"] = torch.zeros_like(matrix)
            mean = state["momentum"].lerp_(matrix.grad, 1 - momentum)
            directions.append(torch.lerp(matrix.grad, mean, momentum))
        step = group["lr"] * ADAMW_RMS * math.sqrt(max(shape))
        for matrix, direction in zip(matrices, orthogonal(torch.stack(directions)), strict=True):
            matrix.mul_(1 - group["lr"] * group["weight_decay"])
            matrix.add_(direction, alpha=-step)


def _together(matrices: Sequence[nn.Parameter]) -> Iterator[Sequence[nn.Parameter]]:
    """Groups of one shape, which are made orthogonal at once."""
    alike: dict[tuple[torch.Size, torch.device], list[nn.Parameter]] = {}
    for matrix in matrices:
        alike.setdefault((matrix.shape, matrix.device), []).append(matrix)
    for (shape, device), group in alike.items():
        size = max(1, VALUES_AT_ONCE.get(device.type, 0) // shape.numel())
        yield from (group[start : start + size] for start in range(0, len(group), size))


def orthogonal(matrices: Tensor) -> Tensor:
    """About U·Vᵀ of the singular value decomposition U·S·Vᵀ of each, by Newton and Schulz's iteration.

    All singular values but the smallest come out between 0.7 and 1.2, which trains as well as 1 and takes
    five steps of three products each, in bf16 or fp16 where that is fast.

    Args:
        matrices: fp32 [k, m, n].

    Returns:
        fp32 [k, m, n]; zeros for zeros.
    """
    a, b, c = COEFFICIENTS
    norms = torch.linalg.matrix_norm(matrices, keepdim=True)
    x = (matrices / (norms + 1e-7)).to(product_dtype(matrices.device))
    wide = x if x.size(-2) <= x.size(-1) else x.mT  # the smaller square of the two
    for _ in range(NEWTON_SCHULZ_STEPS):
        # aX + (bS + cS²)X with S = XXᵀ: sums within products are rounded once, and take less time.
        square = wide @ wide.mT
        wide = torch.baddbmm(wide, square.baddbmm(square, square, beta=b, alpha=c), wide, beta=a)
    result: Tensor = wide if x.size(-2) <= x.size(-1) else wide.mT
    return result.float()


class JointOptimizer(optim.Optimizer):
    """Several optimizers that step as one, each with parameters of its own: its ``parts``."""

    def __init__(self, parts: Sequence[optim.Optimizer]) -> None:
        """``parts``: at least one. Their groups are this one's, not copies."""
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts

    def step(self) -> None:  # type: ignore[override]  # it takes no closure
        """One update of each."""
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """What each of them needs to go on."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on after ``state_dict``."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [group for part in self.parts for group in part.param_groups]


def parts_of(optimizer: optim.Optimizer) -> Sequence[optim.Optimizer]:
    """Those of a `JointOptimizer`; any other is its own only one."""
    return optimizer.parts if isinstance(optimizer, JointOptimizer) else (optimizer,)
