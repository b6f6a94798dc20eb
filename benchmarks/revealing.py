"""What do contributions tell of how often an oracle's corpus has each token?

Four oracles with the corpora of `convergence` train a small model by the product's arithmetic. In each round
their contributions are looked at as others decode them. Of each token's row of the embedding two things are
compared in ranks (Spearman), over all of the vocabulary, with how often the oracle has trained on the token
so far: the row's length, and how little it goes where most rows go. A second figure is of what tells this
oracle's corpus from others': both less the mean of all oracles, in ranks. Embeddings have the variances of
each oracle's own gradients, and then those that the model gives.

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/revealing.py [--rounds 10] [--file PATH]

How to read it: the median over oracles and the last half of the rounds; 1: the order of tokens is told
exactly, 0: nothing is.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from _arms import ARMS
from _manifest import changes_option, manifest_of, parsed
from _runs import append, file_option
from _swarm_arithmetic import Learner, Mixed, drawn_state, next_state, steps_of
from _texts import prepare_texts
from convergence import sources
from scipy.stats import rankdata, spearmanr
from torch import Tensor

from dupt_swarm.learning.batches import Batch, Batches
from dupt_swarm.replica.codec import PART_VALUES
from dupt_swarm.replica.replay import contribution_form
from dupt_swarm.replica.state import ReplicaState
from tests.support.vectors import decode_parts

CHANGES: dict[str, Any] = {
    "model.vocabulary_size": 2048,
    "model.layers": 2,
    "model.heads": 2,
    "model.width": 128,
    "model.hidden_width": 512,
    "rounds.growth": 1.0,
}


class Counted(Mixed):
    """Batches, and how often each token was in one."""

    def __init__(self, batches: Batches, vocabulary: int) -> None:
        super().__init__([batches])
        self.counts = torch.zeros(vocabulary, dtype=torch.int64)

    def __next__(self) -> Batch:
        """The next ``(inputs, targets)``, int64 [B, T] each."""
        inputs, targets = super().__next__()
        self.counts += torch.bincount(targets.reshape(-1), minlength=len(self.counts))
        return inputs, targets


@click.command()
@click.option("--rounds", type=click.IntRange(2), default=10, show_default=True)
@changes_option
@file_option
def main(rounds: int, changes: tuple[str, ...], file: Path | None) -> None:
    """Rank correlations with how often each token is in an oracle's corpus."""
    for scale in ("own", "model"):
        tables = ARMS["tiny-2bit"].tables(CHANGES | {"inner.embedding_scale": scale} | parsed(changes))
        asked = {"rounds": rounds, "changes": " ".join(changes), "embedding_scale": scale}
        for name, each in correlate(tables, rounds).items():
            append(file, asked | {"figure": name, "correlations": each})
            spread = f"{min(each):.2f} to {max(each):.2f}"
            click.echo(f"{scale}, {name}: {statistics.median(each):.2f} ({spread})")


def correlate(tables: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Those of all oracles and of the last half of the rounds."""
    shape = tables["model"]
    with tempfile.TemporaryDirectory(prefix="dupt-bench-") as folder:
        texts = prepare_texts(Path(folder), shape["vocabulary_size"], shape["context_length"], 0)
        manifest = manifest_of(tables, texts.tokenizer)
        state = drawn_state(manifest)
        form = contribution_form(manifest, state.anchor.numel())
        batches = [Counted(each, manifest.model.vocabulary_size) for each in sources(manifest, texts, 1)]
        learners = [Learner(manifest, state.anchor, each) for each in batches]
        found: defaultdict[str, list[float]] = defaultdict(list)
        for round in range(rounds):
            steps, first = steps_of(manifest, round), manifest.first_update(round)
            weights = [learner.train(steps, first) for learner in learners]
            sent = [decode_parts(form.codec, learner.contribute(), form.numel) for learner in learners]
            if 2 * round >= rounds:
                counts = np.stack([each.counts.numpy() for each in batches])
                for name, told in (("lengths of rows", lengths), ("their directions", directions)):
                    values = np.stack([told(embedding_of(state, each)).numpy() for each in sent])
                    found[name] += correlations(values, counts)
                    found[f"{name}, beside others'"] += correlations(specific(values), specific(counts))
            average = (part.clone() for part in torch.split(torch.stack(sent).mean(0), PART_VALUES))
            state = next_state(manifest, state, average, sum(weights), len(weights))
            for learner in learners:
                learner.accept(state.anchor)
    return found


def embedding_of(state: ReplicaState, contribution: Tensor) -> Tensor:
    """What becomes of the embedding, which is a model's first parameter: ``[V, C]``."""
    rows, width = state.layout[0]
    return contribution[: rows * width].view(rows, width)


def lengths(rows: Tensor) -> Tensor:
    """``[V, C]`` to ``[V]``."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms


def directions(rows: Tensor) -> Tensor:
    """``[V, C]`` to ``[V]``: how little each row goes where most go, that is down."""
    return -torch.cosine_similarity(rows, rows.mean(0, keepdim=True))


def correlations(values: np.ndarray, counts: np.ndarray) -> list[float]:
    """Of the ranks, for each oracle."""
    return [float(spearmanr(*pair).statistic) for pair in zip(values, counts, strict=True)]


def specific(values: np.ndarray) -> np.ndarray:
    """Ranks, less their mean over all oracles."""
    ranks: np.ndarray = np.stack([rankdata(each) for each in values])
    return np.asarray(ranks - ranks.mean(0))


if __name__ == "__main__":
    main()
