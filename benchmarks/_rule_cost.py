"""What rules of aggregation cost a member, for `byzantine.py`."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from _figures import head, ratio, row, seconds_of
from _other_rules import ALL_RULES
from torch import Tensor

from dupt_swarm.manifest import Encoding
from dupt_swarm.replica.aggregation import Bounded, weighted_mean
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.codec import build_codec
from dupt_swarm.replica.contribution import CONTRIBUTION, Claim, Form, measure
from tests.support.vectors import encode_parts


def print_costs(values: int, members: int, turns: int, codec: str) -> None:
    """Print the median ratios for ``members`` contributions of so many values."""
    form = Form(CONTRIBUTION, build_codec(codec, Encoding()), values)
    blobs = [
        form.build(Claim(0, "0" * 64, 1, str(place)), encode_parts(form.codec, _draw(values, place)))
        for place in range(members)
    ]
    arms: dict[str, Callable[[], None]] = {
        "plain": lambda: _plain(blobs, form),
        **{name: _arm(name, blobs, form) for name in ALL_RULES},
    }
    seconds: dict[str, list[float]] = {name: [] for name in ("measure", *arms)}
    for _ in range(turns):
        seconds["measure"].append(seconds_of(lambda: [measure(blob, form) for blob in blobs]))
        for name, arm in arms.items():
            seconds[name].append(seconds_of(arm))
    print(head(["rule", "÷ plain mean", "both with measuring", "nanoseconds per value and member"]))
    for name in arms:
        mine, plain = (
            [each + before for each, before in zip(seconds[arm], seconds["measure"], strict=True)]
            for arm in (name, "plain")
        )
        spent = statistics.median(seconds[name]) / values / members * 1e9
        print(row([name, ratio(seconds[name], seconds["plain"]), ratio(mine, plain), f"{spent:.2f}"]))


def _draw(values: int, seed: int) -> Tensor:
    return torch.randn(values, generator=torch.Generator().manual_seed(seed))


def _plain(blobs: list[Blob], form: Form) -> None:
    """The weighted mean without bounds."""
    for parts in zip(*(form.parts(blob) for blob in blobs), strict=True):
        weighted_mean(parts, [1.0] * len(parts))


def _arm(name: str, blobs: list[Blob], form: Form) -> Callable[[], None]:
    rule = ALL_RULES[name]
    # Of unequal norms and weights, so that nothing is spared.
    norms = [1.0 + place / 8 for place in range(len(blobs))]
    bounded = Bounded.of(
        lambda: map(list, zip(*(form.parts(blob) for blob in blobs), strict=True)), norms, norms
    )

    def work() -> None:
        for _ in rule(bounded):
            pass

    return work
