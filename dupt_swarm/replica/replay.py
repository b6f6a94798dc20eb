"""A round as a pure function: previous state, link and blobs give the next state, on any machine.

The round itself, whoever catches up, and whoever audits compute it by what is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.aggregation import RULES, Bounded, keep_norms, weightings
from dupt_swarm.replica.blob import Blob, Index
from dupt_swarm.replica.codec import build_codec
from dupt_swarm.replica.contribution import AVERAGE, CONTRIBUTION, Claim, Form, Measure, measure
from dupt_swarm.replica.link import Brought, Link
from dupt_swarm.replica.next_state import NextState, Take
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.state import ReplicaState


@dataclass(frozen=True)
class Measured:
    """A contribution, checked against what its maker signed.

    Attributes:
        brought: what its maker states.
        blob: its encoded values.
        measure: what `measure` finds, which may be known before the others are there.
    """

    brought: Brought
    blob: Blob
    measure: Measure


@dataclass(frozen=True)
class Counted:
    """What counts in a round.

    Attributes:
        tokens: those that its average stands for.
        makers: ids of those whose contributions are in it, in the order in which they were given.
        rejected: how many contributions were left out of it, by reason.
    """

    tokens: int
    makers: tuple[str, ...]
    rejected: Counter[str]


def contribution_form(manifest: Manifest, numel: int) -> Form:
    """The form of this swarm's contributions."""
    encoding = manifest.encoding
    return Form(CONTRIBUTION, build_codec(encoding.contribution, encoding), numel)


def average_form(manifest: Manifest, numel: int) -> Form:
    """The form of this swarm's averages, where they are kept."""
    encoding = manifest.encoding
    return Form(AVERAGE, build_codec(encoding.average, encoding), numel)


def average_of_shared(
    manifest: Manifest, before: ReplicaState, contributions: Sequence[Measured], form: Form, take: Take
) -> Counted:
    """What the manifest's rule makes of whole contributions; see `bounded_of_shared`.

    ``take`` gets the average, part by part.
    """
    bounded, counted = bounded_of_shared(manifest, before, contributions, form)
    for number, part in enumerate(RULES[manifest.aggregation.rule](bounded)):
        take(number, part)
    return counted


def bounded_of_shared(
    manifest: Manifest, before: ReplicaState, contributions: Sequence[Measured], form: Form
) -> tuple[Bounded, Counted]:
    """What a rule makes an average of: whole contributions, without those that are unsound.

    Contributions that are all zeros count for nothing: they would only lower the medians that bound the
    others. If there are no others, the average is zero.

    Args:
        manifest: of the swarm.
        before: the state before the round, from which follows for how much each counts; see `weightings`.
        contributions: in the agreed order.
        form: of all.

    Raises:
        ValueError: none is sound.
    """
    makers = [each.brought.maker for each in contributions]
    counts = dict(zip(makers, weightings(makers, before.electorate, before.digest), strict=True))
    usable = [each for each in contributions if not each.measure.reason]
    if not usable:
        raise ValueError("no contribution of the round is sound")
    moving = [each for each in usable if each.measure.norm] or usable
    norms, weights = [each.measure.norm for each in moving], [float(each.brought.tokens) for each in moving]
    judges = [place for place, each in enumerate(moving) if counts[each.brought.maker].judges]
    keep = keep_norms(norms, weights, manifest.limits.max_norm_ratio, judges=judges)
    sound = [each for each, kept in zip(moving, keep, strict=True) if kept]

    def parts() -> Iterator[list[Tensor]]:
        return map(list, zip(*(form.parts(each.blob) for each in sound), strict=True))

    bounded = Bounded.of(
        parts,
        [each.measure.norm for each in sound],
        [float(each.brought.tokens) for each in sound],
        [counts[each.brought.maker] for each in sound],
    )
    rejected = Counter(each.measure.reason for each in contributions if each.measure.reason)
    rejected += Counter(zeros=len(usable) - len(moving), norm=keep.count(False))
    tokens = sum(each.brought.tokens for each in sound)
    return bounded, Counted(tokens, tuple(each.brought.maker for each in sound), rejected)


def form_of_inputs(manifest: Manifest, numel: int) -> Form:
    """The form of what a round is computed from again."""
    return {"share": contribution_form, "reduce": average_form}[manifest.rounds.exchange](manifest, numel)


def inputs_of(manifest: Manifest, link: Link, round: int) -> dict[str, Claim | None]:
    """What the round that ``link`` has left is computed from again, by digest, and what each is said to be.

    None: an average, of which nobody has signed anything. ``round`` is that of the state before.
    """
    if manifest.rounds.exchange == "reduce":
        return {link.average: None} if link.average else {}
    return {each.digest: Claim(round, link.state, each.tokens, each.maker) for each in link.choice.brought}


def check_input(form: Form, index: Index, claim: Claim | None, round: int, state: str) -> None:
    """Refuse, before any chunk is fetched, an index of something else than was said; see `inputs_of`.

    Raises:
        ValueError: it has another header or another size.
    """
    if claim is None:
        tokens = index.header.get("tokens")
        if not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 <= tokens < 1 << 62:
            raise ValueError("the average has an impossible number of tokens")
        claim = Claim(round, state, tokens)
    form.check(index, claim)


def replay(
    manifest: Manifest,
    state: ReplicaState,
    link: Link,
    blobs: Mapping[str, Blob],
    empty: Callable[[int], Tensor] = torch.empty,
) -> ReplicaState:
    """The state that follows from ``state`` by the round of ``link``, whatever the link claims that it is.

    Args:
        manifest: of the swarm.
        state: the one before.
        link: what went into the round.
        blobs: what it is computed from, by digest; see `inputs_of`.
        empty: gives memory for so many values.

    Raises:
        ValueError: the link belongs to another state, or the blobs are not what they should be.
        OverflowError: the state would not be finite.
    """
    if link.state != state.digest:
        raise ValueError("the link leaves another state")
    form = form_of_inputs(manifest, state.anchor.numel())
    for digest, claim in inputs_of(manifest, link, state.round).items():
        check_input(form, blobs[digest].index, claim, state.round, state.digest)
    after, choice = NextState(build_outer(manifest), state, empty), link.choice
    if manifest.rounds.exchange == "reduce":  # what was kept is the average of all who contributed
        average = blobs[link.average]
        for number, part in enumerate(form.parts(average)):
            after.take(number, part)
        tokens, makers = average.index.header["tokens"], choice.makers
    else:
        inputs = [(each, blobs[each.digest]) for each in choice.brought]
        contributions = [Measured(brought, blob, measure(blob, form)) for brought, blob in inputs]
        counted = average_of_shared(manifest, state, contributions, form, after.take)
        tokens, makers = counted.tokens, counted.makers
    return after.finish(tokens, makers, choice.left, weak=choice.weak)
