"""What the vote on held-out text costs an oracle.

Inner steps of the trainer's kind and calls of the oracle's own `Judge` take turns in one process, with a
model of a preset on the CPU. A round as short as is looked at with so many blocks is the worst case: a longer
one has more to train, and no more to judge.

How to read it, a row for each number of blocks:

    round      tokens that an oracle must have trained on, in a round, for so many blocks
    judge      processor time of judging one state ÷ that of training on the round's tokens; in brackets the
               least and the greatest of the slices
    first      the same where the state before was not judged either, as after a join

    OMP_NUM_THREADS=1 python benchmarks/judging.py [--size tiny] [--slices 9] [--file PATH]
"""

from __future__ import annotations

import statistics
from pathlib import Path

import click
import numpy as np
import torch
from _figures import seconds_of, spread
from _runs import Run, append, file_option
from families import inner_steps, random_batch

from dupt_swarm.learning.evaluation import evaluate
from dupt_swarm.learning.strategies.flat import flatten
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Inner, Model
from dupt_swarm.oracle.judge import BLOCKS, TOKENS_RATIO, Judge
from dupt_swarm.presets import load_preset

BATCH, STEPS, VOCABULARY = 8, 4, 4096
CPU = torch.device("cpu")


class Bench:
    """A model that trains, and is judged."""

    def __init__(self, size: str) -> None:
        tables = load_preset("gpt2", size)
        self.context = int(tables["model"]["context_length"])
        self.model = GPT(Model(**tables["model"] | {"vocabulary_size": VOCABULARY}))
        self.steps = inner_steps(self.model, Inner(**tables["inner"]), BATCH)
        self.parameters = list(self.model.parameters())
        self.states = 0

    def judge(self, blocks: int) -> float:
        """Processor seconds of a vote on one state, the one before being known."""
        judge = Judge(self.parameters, self.context, self._measure)
        before, after = ((f"{self.states + number}", flatten(self.parameters)) for number in range(2))
        self.states += 2
        tokens = self.needed(blocks)
        judge(tokens, before, before)
        return seconds_of(lambda: judge(tokens, before, after))

    def needed(self, blocks: int) -> int:
        """Tokens of the shortest round that is judged by so many blocks."""
        return int(blocks * self.context / TOKENS_RATIO) + 1

    def _measure(self, blocks: int, first: int) -> float:
        del first  # each batch is drawn anew
        shape = self.model.config
        batches = (random_batch(shape, min(BATCH, blocks)) for _ in range(0, blocks, BATCH))
        return evaluate(self.model, batches, np.ones(VOCABULARY, np.int64), CPU).loss_nats


@click.command()
@click.option("--size", type=click.Choice(["tiny", "124m"]), default="tiny", show_default=True)
@click.option("--slices", type=click.IntRange(2), default=9, show_default=True)
@file_option
def main(size: str, slices: int, file: Path | None) -> None:
    """The cost of judging a state ÷ that of training for a round."""
    bench = Bench(size)
    tokens = STEPS * BATCH * bench.context
    rows: dict[int, list[Run]] = {blocks: [] for blocks in BLOCKS}
    for number in range(slices + 1):
        trained = seconds_of(lambda: [next(bench.steps) for _ in range(STEPS)]) / tokens
        for blocks, found in rows.items():
            about = {"size": size, "blocks": blocks, "round_tokens": bench.needed(blocks), "slice": number}
            judged = {"judge_seconds": bench.judge(blocks), "train_seconds_per_token": trained}
            if number:  # the first slice is for warming up
                found.append(about | judged)
                append(file, found[-1])
    for blocks, found in rows.items():
        ratios = [
            each["judge_seconds"] / (each["train_seconds_per_token"] * each["round_tokens"]) for each in found
        ]
        click.echo(
            f"{blocks:2} blocks: round {found[0]['round_tokens']} tokens, judge {spread(ratios, 4)}, "
            f"first {2 * statistics.median(ratios):.4f}"
        )


if __name__ == "__main__":
    main()
