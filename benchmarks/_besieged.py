"""A swarm with attackers, for `byzantine.py`: the product's arithmetic in one process, with rule and vote.

What honest members do is `_swarm_arithmetic.Learner`'s; contributions, screening, bounds, rule and outer
step are those of a round that is shared (`dupt_swarm.replica`). Attackers do not train: they make theirs of
what the honest contribute, claim as many tokens as the manifest allows, and accept every round.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean

import torch
from _attacks import ATTACKS, Seen
from _other_rules import ALL_RULES
from _swarm_arithmetic import Learner, all_reduce, next_state, steps_of
from torch import Tensor

from dupt_swarm.learning.batches import Batches, Blocks
from dupt_swarm.learning.strategies.flat import standing_at
from dupt_swarm.manifest import Manifest
from dupt_swarm.oracle.judge import GROUPS, accepts
from dupt_swarm.replica.contribution import Claim, measure
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.link import Brought
from dupt_swarm.replica.replay import Measured, bounded_of_shared, contribution_form
from dupt_swarm.replica.state import ReplicaState
from tests.support.vectors import decode_parts, encode_parts

PLAIN = "plain"  # the mean as it was, without bounds


@dataclass(frozen=True)
class Siege:
    """What is tried.

    Attributes:
        attack: one of `ATTACKS`.
        attackers: how many.
        rule: of aggregation, by name; `PLAIN`: the bounds are left out too.
        vote: whether members vote.
    """

    attack: str
    attackers: int
    rule: str
    vote: bool


@dataclass
class Swarm:
    """The honest members, and the state that all agree on.

    Attributes:
        learners: the honest.
        held_out: of each, some blocks to vote by.
        rejected: rounds that did not stand.
        seconds: of the processor, by what they went into, one member's share.
    """

    manifest: Manifest
    siege: Siege
    learners: list[Learner]
    held_out: list[list[Blocks]]
    state: ReplicaState
    rejected: int = 0
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    @classmethod
    def begin(
        cls,
        manifest: Manifest,
        siege: Siege,
        anchor: Tensor,
        batches: Sequence[Batches],
        held_out: list[list[Blocks]],
    ) -> Swarm:
        """Round 0."""
        learners = [Learner(manifest, anchor, own) for own in batches]
        state = first_state(manifest, learners[0].parameters)
        return cls(manifest, siege, learners, held_out, state)

    def end_round(self, number: int) -> int:
        """Train, contribute, attack, average, vote; how many steps each has made. ``number``: of the try."""
        steps, first = steps_of(self.manifest, number), self.manifest.first_update(number)
        with self._timed("training", len(self.learners)):
            weights = [learner.train(steps, first) for learner in self.learners]
        sent = [learner.contribute() for learner in self.learners]
        sent += self._attack(sent)
        most = int(self.manifest.weight_limit(number))
        with self._timed("averaging"):
            after = self._next(number, sent, weights + [most] * self.siege.attackers)
        if self.siege.vote and not self._voted(after):
            self.rejected += 1  # progress is kept, and is in the next contributions
            return steps
        self.state = after
        for learner in self.learners:
            learner.accept(after.anchor)
        return steps

    @contextmanager
    def _timed(self, work: str, members: int = 1) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds[work] += (time.process_time() - began) / members

    def _attack(self, sent: list[bytes]) -> list[bytes]:
        if not self.siege.attackers:
            return []
        form = contribution_form(self.manifest, self.state.anchor.numel())
        honest = torch.stack([decode_parts(form.codec, data, form.numel) for data in sent])
        made = ATTACKS[self.siege.attack](Seen(honest, self.siege.attackers, self._generator))
        return [encode_parts(form.codec, each) for each in made]

    def _next(self, number: int, sent: list[bytes], weights: list[int]) -> ReplicaState:
        before, numel = self.state, self.state.anchor.numel()
        if self.siege.rule == PLAIN:
            average = all_reduce(self.manifest, number, sent, numel, weights)
            return next_state(self.manifest, before, average, sum(weights), len(sent))
        form = contribution_form(self.manifest, numel)
        contributions = []
        for place, (data, tokens) in enumerate(zip(sent, weights, strict=True)):
            blob = form.build(Claim(before.round, before.digest, tokens, str(place)), data)
            brought = Brought(str(place), blob.digest, tokens)
            contributions.append(Measured(brought, blob, measure(blob, form)))
        bounded, counted = bounded_of_shared(self.manifest, before, contributions, form)
        parts = ALL_RULES[self.siege.rule](bounded)
        return next_state(self.manifest, before, parts, counted.tokens, len(sent))

    def _voted(self, after: ReplicaState) -> bool:
        accepted = self.siege.attackers
        with self._timed("voting", len(self.learners)):
            for learner, blocks in zip(self.learners, self.held_out, strict=True):
                before, found = (losses(learner, state.anchor, blocks) for state in (self.state, after))
                accepted += accepts(before, found)
        return 2 * accepted > len(self.learners) + self.siege.attackers


@torch.no_grad()
def losses(learner: Learner, parameters: Tensor, blocks: list[Blocks]) -> list[float]:
    """Of each group of blocks, in nats per token; the learner's own parameters are as before."""
    with standing_at(parameters, learner.parameters):
        found = [float(learner.model(inputs, targets)) for inputs, targets in blocks]
    return [fmean(found[number::GROUPS]) for number in range(GROUPS)]
