"""Does a swarm learn as much per token as one process that has all the data?

Four oracles with disjoint corpora of different kinds (Python's manual, descriptions of packages, and the
standard library in two halves), or eight with half of one each, train the tiny preset's model; every arm
sees the same number of tokens, the same share of each corpus in the same order, and starts from the same
weights. What the arms are is in `_arms`. They run all arithmetic of the peers, codec included, but no
network: see `_swarm_arithmetic`.

Each run, an arm with a seed, is a line of JSON; `table` makes Markdown of them. A run that FILE has already
is not repeated, so a long series can be stopped at any time and goes on where it was:

    python benchmarks/convergence.py run alone,muon --seeds 0,1,2 --file runs.jsonl
    python benchmarks/convergence.py run muon --set inner.learning_rate=3e-3 --file runs.jsonl
    python benchmarks/convergence.py table runs.jsonl

How to read it: losses are nats per token on held-out documents, averaged over the corpora; the ratio is to
an arm at the same number of tokens and with the same seed, so 1.01 means one per cent worse. The columns are
equal fractions of the token budget and show whether a gap closes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from _arms import ARMS, Arm
from _figures import head, mean_of, row
from _manifest import changes_option, manifest_of, parsed
from _runs import Run, by_seed, run_once
from _swarm_arithmetic import Mixed, drawn_state, train_alone, train_swarm
from _texts import Texts, prepare_texts
from torch import Tensor

from dupt_swarm.learning.batches import Batches, held_out_batches
from dupt_swarm.learning.evaluation import evaluate
from dupt_swarm.learning.strategies.flat import unflatten
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Manifest

POINTS = 4
HELD_OUT_BLOCKS = 96
NAMED = ("arm", "changes", "seed", "tokens")  # what makes a run another one


@click.group()
def main() -> None:
    """Held-out loss at equal tokens: one process, and four or eight oracles."""


@main.command()
@click.argument("arms")
@click.option("--seeds", default="0", show_default=True)
@click.option("--tokens", type=click.IntRange(1), default=819_200, show_default=True, help="Of all together.")
@changes_option
@click.option("--file", type=click.Path(path_type=Path), default=Path("convergence.jsonl"), show_default=True)
def run(arms: str, seeds: str, tokens: int, changes: tuple[str, ...], file: Path) -> None:
    """Run ARMS (names with commas between them), and add a line to the file for each."""
    for seed in map(int, seeds.split(",")):
        for name in arms.split(","):
            about = dict(zip(NAMED, (name, " ".join(changes), seed, tokens), strict=True))
            run_once(file, about, partial(run_arm, ARMS[name], parsed(changes), seed, tokens))


@main.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True))
@click.option("--reference", "references", multiple=True, default=("alone", "alone-muon"), show_default=True)
def table(file: Path, references: tuple[str, ...]) -> None:
    """Losses and ratios as a Markdown table, each the mean over the seeds."""
    runs = by_seed(file, "arm", "changes")
    points = [f"at {part}/{POINTS}" for part in range(1, POINTS)]
    click.echo(head(["arm", "rounds", *points, "at the end", *(f"÷ {name}" for name in references), "seeds"]))
    for (arm, changes), seeds in runs.items():
        losses = [mean_of([line["curve"][point] for line in seeds.values()]) for point in range(POINTS)]
        ratios = [ratio(seeds, runs.get((reference, changes), {})) for reference in references]
        rounds = next(iter(seeds.values()))["rounds"]
        name = f"{arm} {changes}".strip()
        click.echo(row([name, str(rounds), *losses, *ratios, ", ".join(map(str, sorted(seeds)))]))


@main.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True))
def picture(file: Path) -> None:
    """Losses over tokens as a picture (mermaid's), each the mean over the seeds."""
    runs = by_seed(file, "arm", "changes")
    [tokens] = {line["tokens"] for seeds in runs.values() for line in seeds.values()}
    parts = ", ".join(f"{tokens * part // POINTS // 1000}" for part in range(1, POINTS + 1))
    click.echo("```mermaid\nxychart-beta")
    click.echo(f'    title "Held-out loss: {", ".join(arm for arm, _ in runs)}"')
    click.echo(f'    x-axis "thousand tokens" [{parts}]\n    y-axis "nats per token"')
    for seeds in runs.values():
        losses = [
            statistics.mean(point) for point in zip(*(line["curve"] for line in seeds.values()), strict=True)
        ]
        click.echo(f"    line [{', '.join(f'{loss:.3f}' for loss in losses)}]")
    click.echo("```")


def run_arm(arm: Arm, more: dict[str, Any], seed: int, tokens: int) -> dict[str, Any]:
    """Train one arm; the losses at each of the points."""
    tables = arm.tables(more)
    shape = tables["model"]
    with tempfile.TemporaryDirectory(prefix="dupt-bench-") as folder:
        texts = prepare_texts(
            Path(folder),
            shape["vocabulary_size"],
            shape["context_length"],
            seed,
            (arm.corpora // 4).bit_length() - 1,
        )
        manifest = manifest_of(tables, texts.tokenizer, seed=seed)
        curve: list[float] = []
        rounds, bits = 0, 0.0

        def after_round(parameters: Tensor, done: int) -> None:
            nonlocal rounds, bits
            rounds += 1
            while len(curve) < POINTS and done * POINTS >= tokens * (len(curve) + 1):
                loss, bits = held_out(manifest, texts, parameters)
                curve.append(loss)
                click.echo(f"seed {seed}, {done} tokens, round {rounds}: {curve[-1]:.4f}", err=True)

        began = time.process_time()
        start = drawn_state(manifest).anchor
        if arm.alone:
            mixed = Mixed(sources(manifest, texts, arm.corpora))
            train_alone(manifest, start, mixed, tokens, after_round)
        else:
            train_swarm(manifest, start, sources(manifest, texts, 1), tokens, after_round, arm.late)
    seconds = round(time.process_time() - began)
    return {"curve": curve, "bits_per_byte": bits, "rounds": rounds, "cpu_seconds": seconds}


def sources(manifest: Manifest, texts: Texts, shares: int) -> list[Batches]:
    """The training batches of each corpus; an inner step takes 1 / ``shares`` of the manifest's."""
    context = manifest.model.context_length
    size = manifest.rounds.tokens_per_step // context // shares
    return [
        Batches([corpus.train], context, size, manifest.seed, name) for name, corpus in texts.corpora.items()
    ]


def held_out(manifest: Manifest, texts: Texts, parameters: Tensor) -> tuple[float, float]:
    """The means of the corpora's losses, nats per token, and of their bits per byte."""
    model = GPT(manifest.model)
    unflatten(parameters, list(model.parameters()))
    lengths, cpu = texts.tokenizer.token_bytes(), torch.device("cpu")
    found = []
    for corpus in texts.corpora.values():
        batches = held_out_batches(corpus.held_out, manifest.model.context_length, 16, HELD_OUT_BLOCKS)
        found.append(evaluate(model, batches, lengths, cpu))
    return statistics.mean(each.loss_nats for each in found), statistics.mean(
        each.bits_per_byte for each in found
    )


def ratio(seeds: dict[int, Run], reference: dict[int, Run]) -> str:
    """The mean ratio of the final losses, over the seeds that both have."""
    both = seeds.keys() & reference.keys()
    return mean_of([seeds[seed]["curve"][-1] / reference[seed]["curve"][-1] for seed in both])


if __name__ == "__main__":
    main()
