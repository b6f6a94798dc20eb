"""The swarm's algorithm without a network: all peers' arithmetic, one after another, in one process.

All arithmetic is the product's own code: inner steps and contributions
(`dupt_swarm.learning.strategies`), codec, screening, weighted mean and outer step (`dupt_swarm.replica`).
Only time is left out: no oracle is faster than another, nobody leaves, and averaging does not overlap
with inner steps (`rounds.overlap`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dupt_swarm.learning.batches import Batch, Batches
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.strategies import build_strategy
from dupt_swarm.learning.trainer import BatchSource, Trainer
from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.aggregation import screen_norms, screen_part, weighted_mean
from dupt_swarm.replica.codec import Codec, build_codec
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.schedule.learning_rate import inner_learning_rate

PART_VALUES = 1 << 17  # 512 KiB of fp32, what hivemind cuts a contribution into
AfterRound = Callable[[Tensor, int], None]


class Mixed:
    """Batches made of equal shares of several sources, for one process that has all the data."""

    def __init__(self, sources: Sequence[Batches]) -> None:
        self._sources = sources
        self.tokens_per_example = sources[0].tokens_per_example

    def __next__(self) -> Batch:
        """The next ``(inputs, targets)``, int64 [B, T] each."""
        inputs, targets = zip(*(next(source) for source in self._sources), strict=True)
        return torch.cat(inputs), torch.cat(targets)

    def state_dict(self) -> dict[str, object]:
        """Nothing: benchmarks are not resumed."""
        return {}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Not needed."""
        raise NotImplementedError


class Learner:
    """One oracle, or the single process: a model, its strategy, and its batches."""

    def __init__(self, manifest: Manifest, anchor: Tensor, batches: BatchSource) -> None:
        self._manifest = manifest
        self.model = build_model(manifest)
        self.parameters = list(self.model.parameters())
        self.strategy = build_strategy(self.parameters, manifest, anchor)
        self._trainer = Trainer(self.model, self, batches, torch.device("cpu"))
        self._update = 0.0

    def train(self, steps: int, first_update: int) -> int:
        """Run inner steps, the first at ``first_update`` in the schedule; return the number of tokens."""
        tokens = 0
        for number in range(steps):
            self._update = first_update + number
            tokens += self._trainer.step().tokens
        return tokens

    def contribute(self) -> Tensor:
        """The contribution, fp32 ``[numel]``."""
        out = torch.empty(sum(parameter.numel() for parameter in self.parameters))
        self.strategy.contribute(out)
        return out

    def step(self, *, tokens: int) -> None:
        """What the trainer calls as its optimizer."""
        self.strategy.inner_step(tokens, inner_learning_rate(self._manifest, self._update))

    def zero_grad(self) -> None:
        """What the trainer calls as its optimizer."""
        for parameter in self.parameters:
            parameter.grad = None


def train_alone(
    manifest: Manifest, anchor: Tensor, batches: BatchSource, tokens: int, after_round: AfterRound
) -> None:
    """One process: inner steps only; calls ``after_round(parameters, tokens so far)`` as often as a swarm."""
    learner = Learner(manifest, anchor, batches)
    steps, done = manifest.updates_per_round, 0
    update = 0
    while done < tokens:
        done += learner.train(steps, update)
        update += steps
        after_round(torch.nn.utils.parameters_to_vector(learner.parameters).detach(), done)


def train_swarm(
    manifest: Manifest, anchor: Tensor, batches: Sequence[BatchSource], tokens: int, after_round: AfterRound
) -> None:
    """One oracle per element of ``batches``; together they train on ``tokens`` tokens."""
    outer, codec = build_outer(manifest), build_codec(manifest)
    oracles = [Learner(manifest, anchor, own) for own in batches]
    shapes = [parameter.detach() for parameter in oracles[0].parameters]
    state = ReplicaState.initial(shapes, outer.buffer_names)
    steps = manifest.rounds.tokens_per_round // manifest.rounds.tokens_per_step
    while state.swarm_tokens < tokens:
        first = state.round * manifest.updates_per_round
        weights = [oracle.train(steps, first) for oracle in oracles]
        average = all_reduce(manifest, codec, [oracle.contribute() for oracle in oracles], weights)
        state = outer.step(state, average, sum(weights))
        for oracle in oracles:
            oracle.strategy.accept(state.anchor)
        after_round(state.anchor, state.swarm_tokens)


def all_reduce(
    manifest: Manifest, codec: Codec, contributions: Sequence[Tensor], weights: Sequence[int]
) -> Tensor:
    """The average that every peer gets; each contribution and the average itself pass through the codec."""
    averaged = [
        _reduce_part(manifest, codec, parts, weights)
        for parts in zip(*(contribution.split(PART_VALUES) for contribution in contributions), strict=True)
    ]
    return torch.cat(averaged)


def _reduce_part(manifest: Manifest, codec: Codec, parts: Sequence[Tensor], weights: Sequence[int]) -> Tensor:
    received = [codec.decode(codec.encode(part), part.numel()) for part in parts]
    limit = manifest.weight_limit
    assert not any(screen_part(part, weight, limit) for part, weight in zip(received, weights, strict=True))
    kept = screen_norms(received, weights, manifest.limits.max_norm_ratio)
    pairs = [pair for pair, keep in zip(zip(received, weights, strict=True), kept, strict=True) if keep]
    mean = weighted_mean([part for part, _ in pairs], [float(weight) for _, weight in pairs])
    return codec.decode(codec.encode(mean), mean.numel())
