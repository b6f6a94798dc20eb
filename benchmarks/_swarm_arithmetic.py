"""The swarm's algorithm without a network: all peers' arithmetic, one after another, in one process.

All arithmetic is the product's own code: inner steps and contributions
(`dupt_swarm.learning.strategies`), codec, screening, weighted mean and outer step (`dupt_swarm.replica`).
Only time is left out: no oracle is faster than another, and nobody leaves. How late an average comes that
overlaps with inner steps (`rounds.overlap`) is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dupt_swarm.learning.batches import Batch, Batches
from dupt_swarm.learning.inner.matrices import block_matrices
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
        self.strategy = build_strategy(self.parameters, manifest, anchor, block_matrices(self.model))
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
    done = 0
    while done < tokens:
        update = done // manifest.rounds.tokens_per_step
        done += learner.train(manifest.rounds.tokens_per_round // manifest.rounds.tokens_per_step, update)
        after_round(torch.nn.utils.parameters_to_vector(learner.parameters).detach(), done)


def train_swarm(
    manifest: Manifest,
    anchor: Tensor,
    batches: Sequence[BatchSource],
    tokens: int,
    after_round: AfterRound,
    late: float = 0.0,
) -> None:
    """One oracle per element of ``batches``; together they train on ``tokens`` tokens, whole inner steps.

    ``late``: how much of the next round is trained before an average arrives, as when rounds overlap; 1: all.
    """
    swarm = _Swarm(manifest, anchor, batches)
    trained = round = 0
    while trained < tokens:
        left = max(1, (tokens - trained) // (len(batches) * manifest.rounds.tokens_per_step))
        steps, first = min(left, steps_of(manifest, round)), manifest.first_update(round)
        early = int(late * steps) if round else 0
        counts = [oracle.train(early, first) for oracle in swarm.oracles]
        if round:
            after_round(swarm.settle(), trained)
        rest = [oracle.train(steps - early, first + early) for oracle in swarm.oracles]
        weights = [sum(parts) for parts in zip(counts, rest, strict=True)]
        swarm.send(weights)
        trained += sum(weights)
        round += 1
    after_round(swarm.settle(), trained)


def steps_of(manifest: Manifest, round: int) -> int:
    """The inner steps of each oracle in ``round``, with `gradient` too."""
    return manifest.tokens_per_round(round) // manifest.rounds.tokens_per_step


class _Swarm:
    """All oracles, the state that they agree on, and the round that is being averaged."""

    def __init__(self, manifest: Manifest, anchor: Tensor, batches: Sequence[BatchSource]) -> None:
        self._manifest, self._outer, self._codec = manifest, build_outer(manifest), build_codec(manifest)
        self.oracles = [Learner(manifest, anchor, own) for own in batches]
        shapes = [parameter.detach() for parameter in self.oracles[0].parameters]
        self._state = ReplicaState.initial(shapes, self._outer.buffer_names)
        self._sent: tuple[Tensor, list[int]] | None = None

    def send(self, weights: list[int]) -> None:
        """All contribute, each with its weight in tokens."""
        sent = [oracle.contribute() for oracle in self.oracles]
        limit = self._manifest.weight_limit(self._state.round)
        average = all_reduce(self._codec, sent, weights, limit, self._manifest.limits.max_norm_ratio)
        self._sent = average, weights

    def settle(self) -> Tensor:
        """All go on from the new anchor, which is returned."""
        assert self._sent is not None
        average, weights = self._sent
        self._state = self._outer.step(self._state, average, sum(weights))
        for oracle in self.oracles:
            oracle.strategy.accept(self._state.anchor)
        return self._state.anchor


def all_reduce(
    codec: Codec,
    contributions: Sequence[Tensor],
    weights: Sequence[int],
    weight_limit: float,
    max_norm_ratio: float,
) -> Tensor:
    """The average that every peer gets; each contribution and the average itself pass through the codec."""
    averaged = []
    for parts in zip(*(contribution.split(PART_VALUES) for contribution in contributions), strict=True):
        received = [codec.decode(codec.encode(part), part.numel()) for part in parts]
        for part, weight in zip(received, weights, strict=True):
            assert not screen_part(part, weight, weight_limit)
        kept = screen_norms(received, weights, max_norm_ratio)
        chosen = [pair for pair, keep in zip(zip(received, weights, strict=True), kept, strict=True) if keep]
        mean = weighted_mean([part for part, _ in chosen], [float(weight) for _, weight in chosen])
        averaged.append(codec.decode(codec.encode(mean), mean.numel()))
    return torch.cat(averaged)
