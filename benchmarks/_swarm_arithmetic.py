"""The swarm's algorithm without a network: all peers' arithmetic, one after another, in one process.

All arithmetic is the product's own code: inner steps and contributions
(`dupt_swarm.learning.strategies`), error feedback (`dupt_swarm.optimizer`), codecs, screening, weighted
mean and outer step (`dupt_swarm.replica`). Only time is left out: no oracle is faster than another, and
nobody leaves. How late an average comes that overlaps with inner steps (`rounds.overlap`) is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from dupt_swarm.learning.batches import Batch, Batches, BatchSource
from dupt_swarm.learning.inner.matrices import block_matrices
from dupt_swarm.learning.inner.unigrams import unigrams_of
from dupt_swarm.learning.objectives import build_model, first_model
from dupt_swarm.learning.strategies import build_strategy
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.learning_rate import inner_learning_rate
from dupt_swarm.optimizer.feedback import ErrorFeedback
from dupt_swarm.replica.aggregation import screen_norms, screen_part, weighted_mean
from dupt_swarm.replica.codec import build_codec, part_sizes, part_slices
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.state import ReplicaState

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
        self.strategy = build_strategy(
            self.parameters, manifest, anchor, block_matrices(self.model), unigrams_of(self.model)
        )
        encoding = manifest.encoding
        self._feedback = ErrorFeedback(build_codec(encoding.contribution, encoding), encoding.feedback)
        self._trainer = Trainer(self.model, self, batches, torch.device("cpu"))
        self._update = 0.0

    def train(self, steps: int, first_update: int) -> int:
        """Run inner steps, the first at ``first_update`` in the schedule; return the number of tokens."""
        tokens = 0
        for number in range(steps):
            self._update = first_update + number
            tokens += self._trainer.step().tokens
        return tokens

    def contribute(self) -> bytes:
        """The contribution, encoded, with what was lost of the one before."""
        self.strategy.mark()
        return self._feedback.encode(self.strategy.contribute())

    def accept(self, anchor: Tensor) -> None:
        """The round is over, and ``anchor`` (fp32 ``[numel]``) has the contribution in it."""
        self._feedback.commit()
        self.strategy.accept(anchor)

    def step(self, *, tokens: int) -> None:
        """What the trainer calls as its optimizer."""
        self.strategy.inner_step(tokens, inner_learning_rate(self._manifest, self._update))

    def zero_grad(self) -> None:
        """What the trainer calls as its optimizer."""
        for parameter in self.parameters:
            parameter.grad = None


def train_alone(
    manifest: Manifest,
    anchor: Tensor,
    batches: BatchSource,
    tokens: int,
    after_round: AfterRound = lambda *_: None,
) -> Tensor:
    """One process: inner steps only; the parameters at the end.

    ``after_round(parameters, tokens so far)`` is called as often as in a swarm.
    """
    learner = Learner(manifest, anchor, batches)
    parameters, done = anchor, 0
    while done < tokens:
        update = done // manifest.rounds.tokens_per_step
        done += learner.train(manifest.rounds.tokens_per_round // manifest.rounds.tokens_per_step, update)
        parameters = torch.nn.utils.parameters_to_vector(learner.parameters).detach()
        after_round(parameters, done)
    return parameters


def train_swarm(
    manifest: Manifest,
    anchor: Tensor,
    batches: Sequence[BatchSource],
    tokens: int,
    after_round: AfterRound = lambda *_: None,
    late: float = 0.0,
) -> Tensor:
    """One oracle per element of ``batches``; together they train on ``tokens`` tokens, whole inner steps.

    Returns the anchor at the end.

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
    anchor = swarm.settle()
    after_round(anchor, trained)
    return anchor


def steps_of(manifest: Manifest, round: int) -> int:
    """The inner steps of each oracle in ``round``, with `gradient` too."""
    return manifest.tokens_per_round(round) // manifest.rounds.tokens_per_step


def drawn_state(manifest: Manifest) -> ReplicaState:
    """The state of round 0, with weights that are drawn from the manifest's seed."""
    return first_state(manifest, list(first_model(manifest).parameters()))


def next_state(
    manifest: Manifest, before: ReplicaState, average: Iterable[Tensor], tokens: int, members: int
) -> ReplicaState:
    """The state that follows by this average, given part by part, of so many ``members``."""
    following = NextState(build_outer(manifest), before)
    for number, part in enumerate(average):
        following.take(number, part)
    return following.finish(tokens, [str(number) for number in range(members)])


class _Swarm:
    """All oracles, the state that they agree on, and the round that is being averaged."""

    def __init__(self, manifest: Manifest, anchor: Tensor, batches: Sequence[BatchSource]) -> None:
        self._manifest, self._numel = manifest, anchor.numel()
        self.oracles = [Learner(manifest, anchor, own) for own in batches]
        self._state = first_state(manifest, self.oracles[0].parameters)
        self._sent: tuple[list[Tensor], list[int]] | None = None

    def send(self, weights: list[int]) -> None:
        """All contribute, each with its weight in tokens."""
        sent = [oracle.contribute() for oracle in self.oracles]
        self._sent = all_reduce(self._manifest, self._state.round, sent, self._numel, weights), weights

    def settle(self) -> Tensor:
        """All go on from the new anchor, which is returned."""
        assert self._sent is not None
        average, weights = self._sent
        self._state = next_state(self._manifest, self._state, average, sum(weights), len(weights))
        for oracle in self.oracles:
            oracle.accept(self._state.anchor)
        return self._state.anchor


def all_reduce(
    manifest: Manifest, round: int, contributions: Sequence[bytes], numel: int, weights: Sequence[int]
) -> list[Tensor]:
    """The average that every peer gets of encoded contributions of ``numel`` values, part by part."""
    encoding = manifest.encoding
    given, returned = (build_codec(name, encoding) for name in (encoding.contribution, encoding.average))
    averaged, usual = [], 0.0
    for place, size in zip(part_slices(given, numel), part_sizes(numel), strict=True):
        received = [given.decode(contribution[place], size) for contribution in contributions]
        mean, median = _reduce_part(manifest, round, received, weights, usual)
        usual = max(usual, median)
        averaged.append(returned.decode(returned.encode(mean), size))
    return averaged


def _reduce_part(
    manifest: Manifest, round: int, received: Sequence[Tensor], weights: Sequence[int], usual: float
) -> tuple[Tensor, float]:
    limit = manifest.weight_limit(round)
    assert not any(screen_part(part, weight, limit) for part, weight in zip(received, weights, strict=True))
    kept, median = screen_norms(received, weights, manifest.limits.max_norm_ratio, usual)
    pairs = [pair for pair, keep in zip(zip(received, weights, strict=True), kept, strict=True) if keep]
    return weighted_mean([part for part, _ in pairs], [float(weight) for _, weight in pairs]), median
