"""Does a swarm learn to write a text for a text as well as one process with all pairs?

The task is made of what every Python has: passages of a few words from docstrings, to be written again from
the same words without case and punctuation. A tenth is held out; the rest goes to one process that has
everything, or in three parts, of different modules, to the oracles of a swarm, by the peers' arithmetic,
codec included: see `_swarm_arithmetic`. Both see as many pairs in all; so an oracle takes a third of the
steps. Two arms that take as few steps say why they differ: one process with all pairs (what is lacking are
the steps), and one oracle alone with its part (what is lacking are the others' pairs, too). What the swarm
adds to the latter is what it is good for.

How to read it: of what is held out the loss (nats per target token, without smoothing), the share of tokens
that are right, and the error of what beam search writes, 100 − chrF; then the others' ÷ one process's. The
row `source` is the error of the sources as they are: it is what can be had for nothing.

    PYTHONPATH=. OMP_NUM_THREADS=1 python benchmarks/punctuation.py --seeds 0,1,2 [--file punctuation.jsonl]
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click
import torch
from _figures import head, mean_of, row
from _manifest import manifest_of
from _passages import passages
from _runs import Run, read, run_once
from _swarm_arithmetic import drawn_state, train_alone, train_swarm
from torch import Tensor

from dupt_swarm.learning.generation.beam import BeamSearch
from dupt_swarm.learning.generation.overlap import overlap
from dupt_swarm.learning.generation.translate import translate
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.labelled.pairs import PairBatches, Pairs, load_pairs
from dupt_swarm.learning.objectives import build_model, writer_of
from dupt_swarm.learning.objectives.seq2seq import evaluate_pairs
from dupt_swarm.learning.strategies.flat import unflatten
from dupt_swarm.learning.tokenizer import Tokenizer, train_tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.presets import load_preset

ORACLES, WORDS, PAIRS_PER_STEP, STEPS_PER_ROUND, WRITTEN = 3, 6, 32, 20, 200
# Small, so that a step takes a tenth of a second of a core; with few tokens, copying words is learnt early.
SHAPE = {
    "vocabulary_size": 512,
    "context_length": 48,
    "heads": 4,
    "width": 96,
    "hidden_width": 384,
    "dropout": 0.0,
    "init_std": 0.1,
}
LEARNING_RATE, WARMUP = 3e-3, 0.1


@dataclass(frozen=True)
class Arm:
    """Into how many parts the pairs are cut, how many of these learn, and for how long.

    Attributes:
        share: one process's steps ÷ those of each oracle of this arm.
    """

    parts: int
    oracles: int
    share: int


ALONE, SOURCE = "one process", "source"
FIGURES = ("loss", "accuracy", "error")
ARMS = {
    ALONE: Arm(parts=1, oracles=1, share=1),
    "one process, a third of the steps": Arm(parts=1, oracles=1, share=ORACLES),
    "three oracles": Arm(parts=ORACLES, oracles=ORACLES, share=ORACLES),
    "one oracle alone, a third of the steps": Arm(parts=ORACLES, oracles=1, share=ORACLES),
}


@click.command()
@click.option("--steps", type=click.IntRange(60), default=1000, show_default=True, help="Of one process.")
@click.option("--seeds", default="0", show_default=True)
@click.option("--file", type=click.Path(path_type=Path), default=Path("punctuation.jsonl"), show_default=True)
def main(steps: int, seeds: str, file: Path) -> None:
    """Held-out loss, accuracy and error of each arm; a line of JSON each. What FILE has is not repeated."""
    chosen = [int(seed) for seed in seeds.split(",")]
    for seed in chosen:
        task = Task.draw(seed)
        about: Run = {"seed": seed, "steps": steps, "train": len(task.train), "held_out": len(task.held_out)}
        about |= {"weights": task.manifest.model.numel, "torch": str(torch.__version__)}
        run_once(file, about | {"arm": SOURCE}, lambda task=task: {"error": task.copied})  # type: ignore[misc]
        for name, arm in ARMS.items():
            run_once(file, about | {"arm": name}, partial(measure, task, arm, steps))
    runs = [line for line in read(file) if line["seed"] in chosen and line["steps"] == steps]
    show_table({(line["arm"], line["seed"]): line for line in runs}, chosen)


def measure(task: Task, arm: Arm, steps: int) -> Run:
    """What an arm comes to, and the processor time that it took."""
    began = time.process_time()
    found = task.run(arm, steps)
    return found | {"processor_seconds": time.process_time() - began}


def show_table(runs: dict[tuple[str, int], Run], seeds: list[int]) -> None:
    """As Markdown: means over the seeds, then each ÷ one process with the same seed."""
    click.echo(head(["arm", *FIGURES]))
    click.echo(row([SOURCE, "–", "–", mean_of([runs[SOURCE, seed]["error"] for seed in seeds])]))
    for name in ARMS:
        click.echo(row([name, *(mean_of([runs[name, seed][each] for seed in seeds]) for each in FIGURES)]))
    for name in list(ARMS)[1:]:
        ratios = [[runs[name, seed][each] / runs[ALONE, seed][each] for seed in seeds] for each in FIGURES]
        click.echo(row([f"{name} ÷ {ALONE}", *map(mean_of, ratios)]))


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
        rows = passages(WORDS)
        tokenizer = train_tokenizer(
            (text for row in rows for text in row.values()), int(SHAPE["vocabulary_size"])
        )
        tables = load_preset("transformer", "tiny")
        tables["model"] |= SHAPE
        tables["inner"]["learning_rate"] = LEARNING_RATE
        step = PAIRS_PER_STEP * tables["model"]["context_length"]
        tables["rounds"] |= {"tokens_per_step": step, "tokens_per_round": STEPS_PER_ROUND * step}
        manifest = manifest_of(tables, tokenizer, seed=seed)
        with tempfile.TemporaryDirectory(prefix="dupt-bench-") as folder:
            table = Path(folder) / "pairs.jsonl"
            table.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            pairs = load_pairs(LabelledFiles(table), tokenizer, manifest.model.context_length)
        return cls(manifest, tokenizer, *pairs.split(seed))

    @property
    def copied(self) -> float:
        """The error of the sources as they are."""
        return _error(*self._written())

    def run(self, arm: Arm, steps: int) -> Run:
        """The `FIGURES` of what an arm comes to on what is held out."""
        torch.manual_seed(self.manifest.seed)
        parts = cut(self.train, arm.parts)[: arm.oracles]
        updates = steps // arm.share
        batches = [
            PairBatches(part, PAIRS_PER_STEP, PAIRS_PER_STEP, self.manifest.seed, str(number))
            for number, part in enumerate(parts)
        ]
        first = drawn_state(self.manifest).anchor
        tokens = updates * len(parts) * self.manifest.rounds.tokens_per_step
        schedule = {"decay": "linear", "warmup_updates": round(WARMUP * updates), "total_updates": updates}
        manifest = self.manifest.changed({"schedule": schedule})
        if len(parts) == 1:
            return self._measure(train_alone(manifest, first, batches[0], tokens))
        return self._measure(train_swarm(manifest, first, batches, tokens))

    def _measure(self, weights: Tensor) -> Run:
        model = writer_of(build_model(self.manifest))
        unflatten(weights, list(model.parameters()))
        quality = evaluate_pairs(model, self.held_out.in_order(PAIRS_PER_STEP), torch.device("cpu"))
        sources, targets = self._written()
        written = translate(model, self.tokenizer, sources, BeamSearch(), at_once=64)
        error = _error([one.text for one in written], targets)
        return dict(zip(FIGURES, (quality.loss_nats, quality.accuracy, error), strict=True))

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


def _error(written: list[str], targets: list[str]) -> float:
    """What is missing to the highest chrF: 100 − chrF."""
    return 100 - overlap(written, targets)["chrF"]


def cut(pairs: Pairs, count: int) -> list[Pairs]:
    """As many parts of one size, each of other topics."""
    size = -(-len(pairs) // count)
    return [
        replace(pairs, sequences=pairs.sequences[start : start + size])
        for start in range(0, len(pairs), size)
    ]


if __name__ == "__main__":
    main()
