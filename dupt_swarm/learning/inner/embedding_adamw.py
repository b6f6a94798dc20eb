"""AdamW for embeddings, whose second moments of a row are as large as its token is common.

A row's gradient is (foretold − seen) · h, summed over a text. Its square is expected to be as large as the token
is common, so a row's second moment tells how common a token is in an oracle's own corpus. That is what goes
wrong in AdamW where corpora differ: a token that a corpus hardly has gets a tiny second moment, so that its row,
which every softmax pushes down, moves at full rate there, and by as much in the average (docs/learning-alike.md).
Here all oracles have the scale that their common model has, by its `Unigrams`, and tell one another nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn, optim

from dupt_swarm.learning.inner.unigrams import Unigrams
from dupt_swarm.manifest import Inner

LEAST_STEPS = 8  # between two measurements, which cost about a third of a small step


class EmbeddingAdamW(optim.Optimizer):
    """m ← β1·m + (1−β1)·G;  v_j ← β2·v_j + (1−β2)·Σ_i G_ij²;  θ_ij ← (1 − η·λ)·θ_ij − η·m̂_ij ÷ (√(f_i·v̂_j) + ε).

    For row i, whose token the model writes with frequency f_i, and column j; m̂ and v̂ are without the bias of
    their zeros. Second moments of rows and columns as factors are Adafactor's (Shazeer and Stern 2018), where
    those of rows are measured too.
    """

    def __init__(self, unigrams: Unigrams, inner: Inner) -> None:
        """For the embeddings of ``unigrams``; nothing is measured or allocated before the first step."""
        super().__init__(
            unigrams.embeddings,
            {
                "lr": inner.learning_rate,
                "betas": (inner.beta1, inner.beta2),
                "eps": inner.epsilon,
                "weight_decay": inner.weight_decay,
            },
        )
        self._unigrams = unigrams

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None
    ) -> None:
        """One update with the gradients that the embeddings have; ``closure`` must be None."""
        assert closure is None, "closures are not supported"
        for group in self.param_groups:
            for embedding in group["params"]:
                if embedding.grad is not None:
                    self._update(embedding, group)

    @torch.no_grad()
    def renew(self) -> None:
        """Measure again how common tokens are, unless that was a few steps ago."""
        known = [state for state in self.state.values() if state["step"] >= state["measured"] + LEAST_STEPS]
        if known:
            frequencies = self._unigrams.measure()
            for state in known:
                state["frequencies"].copy_(frequencies)
                state["measured"] = state["step"]

    def _update(self, embedding: nn.Parameter, group: dict[str, Any]) -> None:
        assert embedding.grad is not None
        state, (beta1, beta2) = self.state[embedding], group["betas"]
        if not state:
            state |= {"step": 0, "measured": 0, "frequencies": self._unigrams.measure()}
            state |= {"mean": torch.zeros_like(embedding), "squares": torch.zeros_like(embedding[0])}
        state["step"] += 1
        state["mean"].lerp_(embedding.grad, 1 - beta1)
        state["squares"].lerp_(torch.linalg.vector_norm(embedding.grad, dim=0).square_(), 1 - beta2)
        rate = group["lr"] / (1 - beta1 ** state["step"])
        roots = (state["squares"] / (1 - beta2 ** state["step"])).sqrt_()
        scales = torch.outer(state["frequencies"].sqrt(), roots).add_(group["eps"])
        embedding.mul_(1 - group["lr"] * group["weight_decay"])
        embedding.addcdiv_(state["mean"], scales, value=-rate)
