"""Does a swarm learn to write a text for a text as well as one process with all pairs?

The task is made of what every Python has: sentences of its manual (`pydoc_data.topics`), to be written again
from the same words without case and punctuation. A tenth is held out; the rest goes to one process that has
everything, or in three parts, of different topics, to the oracles of a swarm, by the peers' arithmetic, codec
included: see `_swarm_arithmetic`. Both see as many pairs in all; so an oracle takes a third of the steps.

How to read it: of what is held out the loss (nats per target token, without smoothing), the share of tokens
that are right, and chrF of what beam search writes; then the swarm's ÷ one process's. The row `source` is
what chrF the sources have as they are: it is what can be had for nothing.

    PYTHONPATH=. OMP_NUM_THREADS=1 python benchmarks/punctuation.py [--epochs N] [--seeds N]
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import click
import torch
from _runs import mean_of, row
from _swarm_arithmetic import train_alone, train_swarm
from torch import Tensor

from dupt_swarm.learning.generation.beam import BeamSearch
from dupt_swarm.learning.generation.overlap import overlap
from dupt_swarm.learning.generation.translate import translate
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.labelled.pairs import PairBatches, Pairs, load_pairs
from dupt_swarm.learning.objectives.open import build_model, first_model, writer_of
from dupt_swarm.learning.objectives.seq2seq import evaluate_pairs
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.strategies.flat import unflatten
from dupt_swarm.learning.tokenizer import Tokenizer, train_tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.presets import load_preset
from dupt_swarm.replica.first_state import first_state
from tests.support.pairs import sentences

ALONE, TOGETHER = "one process", "three oracles"
ORACLES, WORDS, PAIRS_PER_STEP, STEPS_PER_ROUND, WRITTEN = 3, 30, 16, 20, 100
# Small, so that an epoch takes seconds on a core.
SHAPE = {"vocabulary_size": 2048, "context_length": 80, "width": 128, "hidden_width": 512, "init_std": 0.09}


@click.command()
@click.option("--epochs", type=click.IntRange(1), default=20, show_default=True, help="Of all pairs.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True)
def main(epochs: int, seeds: int) -> None:
    """Held-out loss, accuracy and chrF of one process, and of three oracles, at equal tokens."""
    found: dict[str, list[Found]] = {ALONE: [], TOGETHER: []}
    for seed in range(seeds):
        task = Task.draw(seed)
        for arm, results in found.items():
            began = time.process_time()
            results.append(task.run(arm, epochs))
            seconds = time.process_time() - began
            click.echo(f"seed {seed}, {arm}: {results[-1]}, {seconds:.0f} s of processor time", err=True)
    click.echo(
        f"{len(task.train)} pairs, {len(task.held_out)} held out, {epochs} epochs, seeds {seeds}; "
        f"{task.manifest.model.numel:,} weights; torch {torch.__version__}\n"
    )
    click.echo(row(["arm", "loss", "accuracy", "chrF"]))
    click.echo(row(["---"] * 4))
    click.echo(row(["source", "–", "–", f"{task.copied:.1f}"]))
    for arm, results in found.items():
        click.echo(
            row([arm, *(mean_of(values) for values in zip(*map(Found.figures, results), strict=True))])
        )
    pairs = zip(found[ALONE], found[TOGETHER], strict=True)
    ratios = [[many / one for one, many in zip(a.figures(), b.figures(), strict=True)] for a, b in pairs]
    click.echo(row([f"{TOGETHER} ÷ {ALONE}", *map(mean_of, zip(*ratios, strict=True))]))


@dataclass(frozen=True)
class Found:
    """What an arm came to on what is held out."""

    quality: Quality
    chrf: float

    def figures(self) -> tuple[float, float, float]:
        """Loss, accuracy, chrF."""
        assert self.quality.accuracy is not None
        return self.quality.loss_nats, self.quality.accuracy, self.chrf

    def __str__(self) -> str:
        loss, accuracy, chrf = self.figures()
        return f"loss {loss:.3f}, accuracy {accuracy:.3f}, chrF {chrf:.1f}"


@dataclass(frozen=True)
class Task:
    """One draw: what is held out, the order, and the first weights."""

    manifest: Manifest
    tokenizer: Tokenizer
    train: Pairs
    held_out: Pairs

    @classmethod
    def draw(cls, seed: int) -> Task:
        """That of ``seed``."""
        rows = sentences(WORDS)
        tokenizer = train_tokenizer((text for row in rows for text in row.values()), SHAPE["vocabulary_size"])
        tables = load_preset("transformer", "tiny")
        tables["model"] |= SHAPE | {"vocabulary_size": tokenizer.vocabulary_size}
        step = PAIRS_PER_STEP * SHAPE["context_length"]
        tables["rounds"] |= {"tokens_per_step": step, "tokens_per_round": STEPS_PER_ROUND * step}
        about = {"sha256": tokenizer.sha256, "vocabulary_size": tokenizer.vocabulary_size}
        manifest = Manifest.model_validate({"name": "bench", "seed": seed, "tokenizer": about, **tables})
        with tempfile.TemporaryDirectory(prefix="dupt-bench-") as folder:
            table = Path(folder) / "pairs.jsonl"
            table.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            pairs = load_pairs(LabelledFiles(table), tokenizer, manifest.model.context_length)
        return cls(manifest, tokenizer, *pairs.split(seed))

    @property
    def copied(self) -> float:
        """ChrF of the sources as they are."""
        sources, targets = self._written()
        return overlap(sources, targets)["chrF"]

    def run(self, arm: str, epochs: int) -> Found:
        """What an arm comes to."""
        torch.manual_seed(self.manifest.seed)
        parts = [self.train] if arm == ALONE else cut(self.train, ORACLES)
        batches = [
            PairBatches(part, PAIRS_PER_STEP, PAIRS_PER_STEP, self.manifest.seed, str(number))
            for number, part in enumerate(parts)
        ]
        first = first_state(self.manifest, list(first_model(self.manifest).parameters())).anchor
        tokens = epochs * len(self.train) * self.manifest.model.context_length
        updates = tokens // len(parts) // self.manifest.rounds.tokens_per_step
        manifest = self.manifest.changed(
            {"schedule": self.manifest.schedule.model_dump() | {"total_updates": updates}}
        )
        weights = [first]
        keep = lambda now, _: weights.append(now)  # noqa: E731
        if arm == ALONE:
            train_alone(manifest, first, batches[0], tokens, keep)
        else:
            train_swarm(manifest, first, batches, tokens, keep)
        return self._measure(weights[-1])

    def _measure(self, weights: Tensor) -> Found:
        model = writer_of(build_model(self.manifest))
        unflatten(weights, list(model.parameters()))
        quality = evaluate_pairs(model, self.held_out.in_order(PAIRS_PER_STEP), torch.device("cpu"))
        sources, targets = self._written()
        written = translate(model, self.tokenizer, sources, BeamSearch(), at_once=64)
        return Found(quality, overlap([one.text for one in written], targets)["chrF"])

    def _written(self) -> tuple[list[str], list[str]]:
        """Sources and targets to be compared with what is written."""
        pairs = self.held_out.sequences[:WRITTEN]
        sources, targets = (
            [
                self.tokenizer.decode([token for token in pair[side].tolist() if token != self.held_out.end])
                for pair in pairs
            ]
            for side in (0, 1)
        )
        return sources, targets


def cut(pairs: Pairs, count: int) -> list[Pairs]:
    """As many parts of one size, each of other topics."""
    size = -(-len(pairs) // count)
    return [
        replace(pairs, sequences=pairs.sequences[start : start + size])
        for start in range(0, len(pairs), size)
    ]


if __name__ == "__main__":
    main()
