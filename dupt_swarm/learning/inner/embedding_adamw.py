"""AdamW for embeddings, with second moments that follow from how common the model finds each row's token.

A row's gradient is the sum of (predicted − seen) · h over a text, so its square is as large as the token is
common, and a row's second moment in AdamW says how common the token is in one oracle's corpus. Where corpora
differ, that does harm: a token that a corpus hardly has gets a tiny second moment there, and its row, which
every softmax pushes down a little, moves at full rate in that oracle, and by as much in the average. Here all
oracles take the scale of a row from the model that they share, by its `Unigrams`: they tell one another
nothing, and nobody can tell them wrong (docs/different-corpora.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn, optim

from dupt_swarm.learning.inner.unigrams import Unigrams
from dupt_swarm.manifest import Inner

# On a CPU, what is at hand need not be fetched again: twice to seven times as fast as all at once.
VALUES_AT_ONCE = {"cpu": 1 << 19}
LONGEST = 4  # steps of a row ÷ those that its own gradients would give it
LEAST_STEPS = 8  # between two measurements, each of which reads 512 tokens


class EmbeddingAdamW(optim.Optimizer):
    """m ← β1·m + (1−β1)·G;  v_j ← β2·v_j + (1−β2)·Σ_i G_ij²;  θ ← θ − η·λ·θ − η·m̂_ij ÷ (√s_i·(√v̂_j + ε)).

    For row i and column j; m̂ and v̂ are m and v without the bias of having begun at zero. The share s_i of a
    row is how often the model writes its token, but at least a sixteenth of what its own gradients say, as in
    Adafactor (Shazeer and Stern 2018), which has such factors of rows and columns. So a model that has learnt
    little, or was led astray, makes no step more than four times as long.
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
    def step(self) -> None:  # type: ignore[override]  # it takes no closure
        """One update with the gradients that the embeddings have."""
        if not self.state:
            self._begin()
        for group in self.param_groups:
            for embedding in group["params"]:
                if embedding.grad is not None:
                    self._update(embedding, group)

    @torch.no_grad()
    def renew(self) -> None:
        """Measure again how common tokens are, unless that was a few steps ago."""
        known = [state for state in self.state.values() if state["step"] >= state["measured"] + LEAST_STEPS]
        if known:
            frequencies = self._unigrams.measure(known[0]["frequencies"])
            for state in known:
                state["frequencies"].copy_(frequencies)
                state["measured"] = state["step"]

    def _begin(self) -> None:
        frequencies = self._unigrams.measure()
        for embedding in self._unigrams.embeddings:
            self.state[embedding] = {
                "step": 0,
                "measured": 0,
                "frequencies": frequencies.clone(),
                "mean": torch.zeros_like(embedding),
                "rows": torch.zeros_like(embedding[:, 0]),
                "columns": torch.zeros_like(embedding[0]),
            }

    def _update(self, embedding: nn.Parameter, group: dict[str, Any]) -> None:
        assert embedding.grad is not None
        state, (beta1, beta2) = self.state[embedding], group["betas"]
        state["step"] += 1
        mean = state["mean"]
        of_rows, of_columns = torch.zeros_like(state["rows"]), torch.zeros_like(state["columns"])
        rows = max(1, VALUES_AT_ONCE.get(embedding.device.type, embedding.numel()) // embedding.size(1))
        for part, gradient, of_part in _pieces(rows, mean, embedding.grad, of_rows):
            part.lerp_(gradient, 1 - beta1)
            square = gradient.square()
            of_columns.addmv_(square.T, torch.ones_like(of_part))  # sooner than by `sum`
            of_part.addmv_(square, torch.ones_like(of_columns))
        state["rows"].lerp_(of_rows, 1 - beta2)
        state["columns"].lerp_(of_columns, 1 - beta2)
        roots = (state["columns"] / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
        per_column, per_row = 1 / roots, self._shares(state).rsqrt_()[:, None]
        rate = group["lr"] / (1 - beta1 ** state["step"])
        for own, part, scale in _pieces(rows, embedding, mean, per_row):
            own.mul_(1 - group["lr"] * group["weight_decay"]).addcmul_(part * per_column, scale, value=-rate)

    def _shares(self, state: dict[str, Any]) -> Tensor:
        """Of each row in the second moments of a column: ``[V]``."""
        own = state["rows"] / state["rows"].sum().clamp_(min=torch.finfo(torch.float32).tiny)
        return torch.maximum(own.mul_(LONGEST**-2), state["frequencies"])


def _pieces(rows: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same rows of each, so many at once."""
    return zip(*(torch.split(tensor, rows) for tensor in tensors), strict=True)
