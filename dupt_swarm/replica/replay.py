"""A round as a pure function: previous state, log entry and blobs give the next state, on any machine.

The round itself, whoever catches up, and whoever audits compute it by what is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.aggregation import keep_norms, weighted_mean
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.codec import build_codec, part_sizes
from dupt_swarm.replica.contribution import AVERAGE, CONTRIBUTION, Claim, Form, Measure, measure
from dupt_swarm.replica.log_entry import LogEntry
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.state import ReplicaState


@dataclass(frozen=True)
class Mean:
    """The average of a round.

    Attributes:
        values: fp32 ``[numel]``.
        tokens: those that it stands for.
        rejected: how many contributions were left out of it, by reason.
    """

    values: Tensor
    tokens: int
    rejected: Counter[str] = field(default_factory=Counter)


def contribution_form(manifest: Manifest, numel: int) -> Form:
    """The form of this swarm's contributions."""
    encoding = manifest.encoding
    return Form(CONTRIBUTION, encoding.contribution, build_codec(encoding.contribution, encoding), numel)


def average_form(manifest: Manifest, numel: int) -> Form:
    """The form of this swarm's averages, where they are kept."""
    encoding = manifest.encoding
    return Form(AVERAGE, encoding.average, build_codec(encoding.average, encoding), numel)


def mean_of_shared(
    contributions: Sequence[tuple[Blob, int]], measures: Sequence[Measure], form: Form, ratio: float
) -> Mean:
    """The mean of whole contributions, without those that are unsound, weighted by their tokens.

    Args:
        contributions: blobs, checked against what their makers signed, and tokens, in the agreed order.
        measures: of each.
        form: of all.
        ratio: the largest norm allowed ÷ the median norm.

    Raises:
        ValueError: none is sound.
    """
    usable = [place for place, measured in enumerate(measures) if not measured.reason]
    keep = keep_norms([measures[i].norm for i in usable], [float(contributions[i][1]) for i in usable], ratio)
    sound = [contributions[place] for place, kept in zip(usable, keep, strict=True) if kept]
    rejected = Counter(measured.reason for measured in measures if measured.reason)
    rejected += Counter(norm=keep.count(False))
    if not sound:
        raise ValueError("no contribution of the round is sound")
    mean, weights = torch.empty(form.numel), [float(tokens) for _, tokens in sound]
    parts = zip(*(form.parts(blob) for blob, _ in sound), strict=True)
    for place, part in zip(mean.split_with_sizes(part_sizes(form.numel)), parts, strict=True):
        place.copy_(weighted_mean(part, weights))
    return Mean(mean, sum(tokens for _, tokens in sound), rejected)


def form_of_inputs(manifest: Manifest, exchange: str, numel: int) -> Form:
    """The form of what goes into a round of ``exchange``."""
    return {"share": contribution_form, "reduce": average_form}[exchange](manifest, numel)


def claims_of(entry: LogEntry) -> dict[str, Claim]:
    """What the blobs of a round are said to be, by digest."""
    return {
        each.digest: Claim(entry.round - 1, entry.before, each.tokens, each.maker) for each in entry.inputs
    }


def replay(
    manifest: Manifest, state: ReplicaState, entry: LogEntry, blobs: Mapping[str, Blob]
) -> ReplicaState:
    """The state that follows from ``state`` by the round of ``entry``, whatever the entry claims that it is.

    Args:
        manifest: of the swarm.
        state: the one before.
        entry: of the log of rounds.
        blobs: what it names, by digest.

    Raises:
        ValueError: the entry does not belong to that state, or the blobs are not what they should be.
        OverflowError: the state would not be finite.
    """
    if (entry.before, entry.round) != (state.digest, state.round + 1):
        raise ValueError("the entry of the log belongs to another state")
    form = form_of_inputs(manifest, entry.exchange, state.anchor.numel())
    for digest, claim in claims_of(entry).items():
        form.check(blobs[digest].index, claim)
    inputs = [(blobs[each.digest], each.tokens) for each in entry.inputs]
    mean = {"share": _mean_of_contributions, "reduce": _whole_average}[entry.exchange](manifest, inputs, form)
    return step(manifest, state, mean)


def step(manifest: Manifest, state: ReplicaState, mean: Mean) -> ReplicaState:
    """The outer step.

    Raises:
        OverflowError: the state that follows would not be finite.
    """
    after = build_outer(manifest).step(state, mean.values, mean.tokens)
    if not after.finite:
        raise OverflowError("the outer step is not finite")
    return after


def _mean_of_contributions(manifest: Manifest, inputs: Sequence[tuple[Blob, int]], form: Form) -> Mean:
    measures = [measure(blob, form) for blob, _ in inputs]
    return mean_of_shared(inputs, measures, form, manifest.limits.max_norm_ratio)


def _whole_average(manifest: Manifest, inputs: Sequence[tuple[Blob, int]], form: Form) -> Mean:
    del manifest
    [(blob, tokens)] = inputs
    return Mean(torch.cat(list(form.parts(blob))), tokens)
