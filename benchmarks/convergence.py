"""Does a swarm learn as much per token as one process that has all the data?

Four oracles with disjoint corpora of different kinds (Python's manual, descriptions of packages, and the
standard library in two halves) train the tiny preset; every arm sees the same number of tokens, the same
share of each corpus in the same order, and starts from the same weights:

    alone      one process, batches of `rounds.tokens_per_step` tokens, a quarter from each corpus
    alone-4x   one process, batches four times as large: a quarter of the updates, as an oracle
    diloco     the preset's rounds: inner AdamW on each oracle, then the outer step on the average
    gradient   the batch of `alone`, split among the oracles; one outer AdamW step per batch

The last two run all arithmetic of the peers, codec included, but no network: see `_swarm_arithmetic`.

How to read it: losses are nats per token on held-out documents, averaged over the four corpora; the ratio
is to `alone` at the same number of tokens, so 1.01 means one per cent worse. The columns are equal
fractions of the token budget and show whether a gap closes. `--pretrain` starts all arms from weights that
one process has already trained, as in the DiLoCo paper (Douillard et al. 2023, section 3).

    python benchmarks/convergence.py [--tokens N] [--set rounds.tokens_per_round=51200] [--arms alone,diloco]
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch
from _swarm_arithmetic import Mixed, train_alone, train_swarm
from _texts import Texts, prepare_texts
from torch import Tensor

from dupt_swarm.learning.batches import Batches, held_out_batches
from dupt_swarm.learning.evaluation import evaluate
from dupt_swarm.learning.model import GPT
from dupt_swarm.learning.strategies.flat import flatten, unflatten
from dupt_swarm.manifest import Manifest
from dupt_swarm.presets import load_preset

ARMS = ("alone", "alone-4x", "diloco", "gradient")
POINTS = 4
HELD_OUT_BLOCKS = 96
Curve = dict[int, dict[str, float]]  # tokens seen → held-out loss by corpus


@click.command()
@click.option(
    "--tokens",
    type=click.IntRange(1),
    default=819_200,
    show_default=True,
    help="Tokens of all oracles together.",
)
@click.option(
    "--pretrain",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Tokens that one process trains on first.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--arms", default=",".join(ARMS), show_default=True)
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a key of the preset.")
def main(tokens: int, pretrain: int, seed: int, arms: str, changes: tuple[str, ...]) -> None:
    """Held-out loss at equal tokens: one process, and four oracles."""
    tables = changed_preset(changes)
    with tempfile.TemporaryDirectory(prefix="dupt-bench-") as folder:
        model = tables["model"]
        texts = prepare_texts(Path(folder), model["vocabulary_size"], model["context_length"], seed)
        manifest = build_manifest(tables, texts, seed)
        first = GPT(manifest.model)
        first.init_weights(seed)
        start = flatten(list(first.parameters()))
        if pretrain:
            click.echo(f"{pretrain} tokens alone, for all arms …", err=True)
            start = pretrained(manifest, texts, start, pretrain)
        curves = {}
        for arm in arms.split(","):
            curves[arm] = run_arm(arm, tables, texts, seed, start, tokens)
            click.echo(f"{arm}: {mean(curves[arm][max(curves[arm])]):.4f}", err=True)
    click.echo(describe(texts, manifest, tokens, pretrain, changes))
    click.echo(table(curves))


def changed_preset(changes: Sequence[str]) -> dict[str, Any]:
    """The tiny preset with ``KEY=VALUE`` changes, such as ``outer.momentum=0.5``."""
    tables = load_preset("tiny")
    for change in changes:
        key, _, value = change.partition("=")
        section, _, name = key.partition(".")
        if name not in tables.get(section, {}):
            raise click.UsageError(f"--set {change}: the preset has no key `{key}`")
        tables[section][name] = tomllib.loads(f"value = {value}")["value"]
    return tables


def build_manifest(tables: dict[str, Any], texts: Texts, seed: int) -> Manifest:
    """A manifest of these tables."""
    size = texts.tokenizer.vocabulary_size
    tokenizer = {"sha256": texts.tokenizer.sha256, "vocabulary_size": size}
    shaped = tables | {"model": tables["model"] | {"vocabulary_size": size}}
    return Manifest.model_validate({"name": "bench", "seed": seed, "tokenizer": tokenizer, **shaped})


def arm_tables(arm: str, tables: dict[str, Any], oracles: int) -> dict[str, Any]:
    """The manifest's tables for one arm."""
    rounds, inner = tables["rounds"], tables["inner"]
    if arm == "alone-4x":
        bigger = {key: oracles * rounds[key] for key in ("tokens_per_step", "tokens_per_round")}
        return tables | {"rounds": rounds | bigger}
    if arm != "gradient":
        return tables
    share = rounds["tokens_per_step"] // oracles
    one_step = {"strategy": "gradient", "tokens_per_step": share, "tokens_per_round": share}
    outer = {key: value for key, value in inner.items() if key != "clip_norm"}
    only_clip = {"optimizer": "none", "clip_norm": inner.get("clip_norm", 0.0)}
    return tables | {"rounds": rounds | one_step, "outer": outer, "inner": only_clip}


def run_arm(arm: str, tables: dict[str, Any], texts: Texts, seed: int, start: Tensor, tokens: int) -> Curve:
    """Train one arm; return its losses at each of the points."""
    manifest = build_manifest(arm_tables(arm, tables, len(texts.corpora)), texts, seed)
    curve: Curve = {}

    def after_round(parameters: Tensor, done: int) -> None:
        if done * POINTS >= tokens * (len(curve) + 1) or done >= tokens:
            curve[done] = held_out_losses(manifest, texts, parameters)
            print(f"  {arm} {done} tokens: {mean(curve[done]):.4f}", file=sys.stderr)

    if arm.startswith("alone"):
        train_alone(manifest, start, mixed(manifest, texts), tokens, after_round)
    else:
        train_swarm(manifest, start, sources(manifest, texts, 1), tokens, after_round)
    return curve


def pretrained(manifest: Manifest, texts: Texts, start: Tensor, tokens: int) -> Tensor:
    """The weights after one process trained on ``tokens`` tokens, with blocks in another order."""
    weights: list[Tensor] = []
    other = manifest.model_copy(update={"seed": manifest.seed + 1})
    train_alone(manifest, start, mixed(other, texts), tokens, lambda now, _: weights.append(now))
    return weights[-1]


def sources(manifest: Manifest, texts: Texts, shares: int) -> list[Batches]:
    """The training batches of each corpus; an inner step takes 1 / ``shares`` of the manifest's."""
    context = manifest.model.context_length
    size = manifest.rounds.tokens_per_step // context // shares
    return [
        Batches(corpus.train, context, size, manifest.seed, name) for name, corpus in texts.corpora.items()
    ]


def mixed(manifest: Manifest, texts: Texts) -> Mixed:
    """The training batches of one process."""
    return Mixed(sources(manifest, texts, len(texts.corpora)))


def held_out_losses(manifest: Manifest, texts: Texts, parameters: Tensor) -> dict[str, float]:
    """The loss on each corpus, nats per token."""
    model = GPT(manifest.model)
    unflatten(parameters, list(model.parameters()))
    lengths, cpu = texts.tokenizer.token_bytes(), torch.device("cpu")
    losses = {}
    for name, corpus in texts.corpora.items():
        batches = held_out_batches(corpus.held_out, manifest.model.context_length, 16, HELD_OUT_BLOCKS)
        losses[name] = evaluate(model, batches, lengths, cpu).loss_nats
    return losses


def mean(losses: dict[str, float]) -> float:
    """The mean over the corpora, with equal weights."""
    return sum(losses.values()) / len(losses)


def describe(texts: Texts, manifest: Manifest, tokens: int, pretrain: int, changes: Sequence[str]) -> str:
    """A description of the run, for the report."""
    sizes = ", ".join(f"{name} {len(corpus.train)}" for name, corpus in texts.corpora.items())
    return (
        f"{tokens} tokens after {pretrain}; {' '.join(changes) or 'preset as it is'}; seed {manifest.seed}\n"
        f"training tokens: {sizes}; vocabulary {texts.tokenizer.vocabulary_size}; torch {torch.__version__}"
    )


def table(curves: dict[str, Curve]) -> str:
    """Losses and ratios as a Markdown table."""
    reference = next(iter(curves.values()))
    names = list(next(iter(reference.values())))
    head = [f"at {part}/{POINTS}" for part in range(1, POINTS)]
    rows = [["arm", *head, "at the end", f"÷ {next(iter(curves))}", *names]]
    for arm, curve in curves.items():
        points, final = list(curve.values()), list(curve.values())[-1]
        ratio = mean(final) / mean(list(reference.values())[-1])
        losses = [f"{mean(point):.3f}" for point in points]
        losses = (POINTS - len(losses)) * ["–"] + losses  # fewer rounds than points
        rows.append([arm, *losses, f"{ratio:.4f}", *(f"{final[name]:.3f}" for name in names)])
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


if __name__ == "__main__":
    main()
