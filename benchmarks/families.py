"""Which block learns most: that of each preset in a model of about 5 million weights, by tokens and by time.

One process trains each on the four corpora of `convergence.py`: the same tokens in the same order, the same
tokenizer and optimizer (Muon at 2e-3, as that benchmark's arm `alone-muon`), five blocks of width 256, and
feed-forward layers as wide as makes the number of weights equal to 1 %. Only the block differs, so this says
nothing of the papers' optimizers, sizes or data.

    OMP_NUM_THREADS=1 python benchmarks/families.py run --seeds 0,1,2 --file families.jsonl
    OMP_NUM_THREADS=1 python benchmarks/families.py speed
    python benchmarks/families.py table families.jsonl

How to read it, a row for a preset's block: held-out loss (nats per token, mean of the corpora) and bits per
byte at the end; the loss ÷ that of `gpt2` with the same seed, at equal tokens; and what `speed` prints:
tokens per second of processor time ÷ those of `gpt2`, medians of slices that take turns. Equal time is their
product: a block of speed 0.8 is to be compared at 0.8 of the tokens, which `table --speed llama=0.8` does
between the measured points. What an encoder is worth beside a decoder, `encoders.py` measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from _arms import Arm
from _figures import head, in_turns, mean_of, ratio, row
from _runs import by_seed, run_once
from convergence import POINTS, run_arm
from torch import Tensor

from dupt_swarm.learning.device import autocast
from dupt_swarm.learning.inner import build_inner
from dupt_swarm.learning.inner.matrices import block_matrices
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Inner, Model
from dupt_swarm.presets import load_preset

TOKENS, BATCH, STEPS, SLICES = 819_200, 8, 4, 9
INNER = {"inner.optimizer": "muon", "inner.learning_rate": 2e-3}
SHAPE = {"vocabulary_size": 4096, "context_length": 128, "layers": 5, "heads": 4, "width": 256}
WEIGHTS = 5_028_864  # of `gpt2` in its size `tiny`, with five blocks
REFERENCE = "gpt2"
FAMILIES = (REFERENCE, "gpt1", "llama", "palm")


def shape_of(family: str) -> dict[str, Any]:
    """The preset's parts in a model of `WEIGHTS` weights, without dropout, which one pass needs not."""
    preset = load_preset(family, None if family == "gpt1" else "tiny")["model"]
    return widened({**preset, **SHAPE, "dropout": 0.0})


def widened(tables: dict[str, Any]) -> dict[str, Any]:
    """The table `[model]` with feed-forward layers as wide as makes `WEIGHTS` weights, to 1 %."""
    counts = [Model(**(tables | {"hidden_width": width})).numel for width in (256, 512)]
    slope = (counts[1] - counts[0]) / 256
    return tables | {"hidden_width": 8 * round((256 + (WEIGHTS - counts[0]) / slope) / 8)}


@click.group()
def main() -> None:
    """Held-out loss and speed of each preset's block, at equal weights and tokens."""


@main.command()
@click.option("--seeds", default="0", show_default=True)
@click.option("--family", "families", multiple=True, type=click.Choice(FAMILIES), default=FAMILIES)
@click.option("--file", type=click.Path(path_type=Path), default=Path("families.jsonl"), show_default=True)
def run(seeds: str, families: tuple[str, ...], file: Path) -> None:
    """Train each with each seed; a line of JSON each. What FILE has already is not repeated."""
    for seed in map(int, seeds.split(",")):
        for family in families:
            about = {"family": family, "seed": seed}
            run_once(file, about, partial(train, family, seed))


def train(family: str, seed: int) -> dict[str, Any]:
    """A run of one process."""
    shape = shape_of(family)
    found = run_arm(Arm(INNER | {"model": shape}, alone=True), {}, seed, TOKENS)
    return {"hidden_width": shape["hidden_width"], **found}


@main.command()
@click.option("--slices", type=click.IntRange(2), default=SLICES, show_default=True)
def speed(slices: int) -> None:
    """Tokens per second of processor time ÷ those of `gpt2`."""
    found = in_turns({family: slice_of(family) for family in FAMILIES}, slices)
    for family, seconds in found.items():
        click.echo(f"{family}: {ratio(found[REFERENCE], seconds)}")


def slice_of(family: str) -> Callable[[], object]:
    """`STEPS` inner steps."""
    model = GPT(Model(**shape_of(family)))
    steps = inner_steps(model, Inner(optimizer="muon", learning_rate=2e-3), BATCH)
    return lambda: [next(steps) for _ in range(STEPS)]


def inner_steps(model: GPT, inner: Inner, size: int) -> Iterator[None]:
    """Steps on the CPU, each on so many random sequences, for ever."""
    optimizer = build_inner(model.parameters(), inner, block_matrices(model))
    while True:
        inputs, targets = random_batch(model.config, size)
        with autocast(torch.device("cpu")):
            loss = model(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def random_batch(shape: Model, size: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets, int64 ``[size, T]`` each."""
    tokens = torch.randint(shape.vocabulary_size, (size, shape.context_length + 1))
    return tokens[:, :-1], tokens[:, 1:]


@main.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True))
@click.option("--speed", "given", multiple=True, metavar="FAMILY=RATIO", help="As `speed` printed it.")
def table(file: Path, given: tuple[str, ...]) -> None:
    """The runs as a Markdown table, each the mean over the seeds."""
    runs_of = by_seed(file, "family")
    reference = {seed: line["curve"][-1] for seed, line in runs_of.get((REFERENCE,), {}).items()}
    pairs = (each.split("=") for each in given)
    speeds = {REFERENCE: 1.0} | {name: float(value) for name, value in pairs}
    columns = ["block of", "hidden", "loss", "bits per byte", "÷ `gpt2`, equal tokens", "speed ÷ `gpt2`"]
    click.echo(head([*columns, "÷ `gpt2`, equal time", "seeds"]))
    for family in FAMILIES:
        if not (runs := runs_of.get((family,))):
            continue
        speed = speeds.get(family)
        at_end = [line["curve"][-1] / reference[seed] for seed, line in runs.items() if seed in reference]
        at_time = [
            loss_at(line["curve"], speed) / reference[seed]
            for seed, line in runs.items()
            if speed is not None and speed <= 1 and seed in reference
        ]
        cells = [
            f"`{family}`",
            str(next(iter(runs.values()))["hidden_width"]),
            mean_of([line["curve"][-1] for line in runs.values()]),
            mean_of([line["bits_per_byte"] for line in runs.values()]),
            mean_of(at_end),
            "–" if speed is None else f"{speed:.2f}",
            mean_of(at_time),
            ", ".join(map(str, sorted(runs))),
        ]
        click.echo(row(cells))


def loss_at(curve: list[float], fraction: float) -> float:
    """The loss at a fraction of the tokens, between the measured points linear in the logarithm of tokens."""
    place = fraction * POINTS
    before = min(int(place), POINTS - 1)
    low, high = math.log(before), math.log(before + 1)
    part = (math.log(place) - low) / (high - low)
    return curve[before - 1] + part * (curve[before] - curve[before - 1])


if __name__ == "__main__":
    main()
