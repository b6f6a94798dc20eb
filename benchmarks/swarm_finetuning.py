"""Do two oracles with labelled examples of their own learn a task better together than either alone?

From which of three collections (Python's manual, its standard library, descriptions of packages) is a
passage? All arms begin with the same model, which one process pretrained on half of the documents of all
three; the passages of examples and test are from the other half, and no document is in both of these:

    before      nothing is learnt
    one, two    each oracle alone, on its own half of the examples
    both        one process with all examples: what nobody has whose examples are private
    swarm       the two oracles in rounds, by the peers' arithmetic, codec included: see `_swarm_arithmetic`
    swarm-2x    the same with as many steps for each oracle as `both` takes: twice the computation

Each arm but the last sees each of its examples ``--epochs`` times, by the manifest that `dupt-peer new
--from` writes, but for ``--set`` and the length of the schedule. So an oracle of the swarm takes as many
steps as it does alone, and `both` twice as many.

How to read it: accuracy on the test's passages, mean and standard deviation over the seeds, each of which
draws examples, W_y, order and dropout anew.

    python benchmarks/swarm_finetuning.py [--examples N] [--seeds N] [--set inner.learning_rate=5e-4]
        [--file PATH]
"""

from __future__ import annotations

import csv
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import torch
from _arms import GPT2
from _figures import head, row
from _manifest import changes_option, manifest_of, parsed
from _runs import Run, append, file_option
from _swarm_arithmetic import train_alone, train_swarm
from _texts import tokenizer_of
from torch import Tensor

from dupt_swarm.learning.batches import Batches
from dupt_swarm.learning.corpus import Corpus
from dupt_swarm.learning.labelled.encoded import EncodedBatches
from dupt_swarm.learning.labelled.examples import Examples
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.labelled.load import load_examples
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.objectives.scores import evaluate_task
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.learning.strategies.flat import unflatten
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Manifest, Objective
from dupt_swarm.models.beginning import begin_task
from dupt_swarm.models.saved_model import SavedModel
from dupt_swarm.presets import load_preset
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.state import ReplicaState
from peers.demo import write_corpora

ARMS = ("before", "one", "two", "both", "swarm", "swarm-2x")
TESTED = 1500  # passages
TEST_SHARE = 4  # one document in so many
BATCH = 16
# Small, so that three seeds of all arms take minutes on two cores.
SHAPE = {
    "vocabulary_size": 2048,
    "context_length": 64,
    "layers": 2,
    "heads": 4,
    "width": 128,
    "hidden_width": 512,
}


@click.command()
@click.option("--pretrain", type=click.IntRange(0), default=1_500_000, show_default=True, help="Tokens.")
@click.option("--examples", type=click.IntRange(2), default=800, show_default=True, help="Of each oracle.")
@click.option("--words", type=click.IntRange(1), default=10, show_default=True, help="Of a passage.")
@click.option("--epochs", type=click.IntRange(1), default=3, show_default=True)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--arms", default=",".join(ARMS), show_default=True)
@changes_option
@file_option
def main(
    pretrain: int,
    examples: int,
    words: int,
    epochs: int,
    seeds: int,
    arms: str,
    changes: tuple[str, ...],
    file: Path | None,
) -> None:
    """Accuracy of two oracles alone, together in a swarm, and of one process with the examples of both."""
    with tempfile.TemporaryDirectory(prefix="dupt-bench-") as folder:
        collections = Collections.write(Path(folder) / "texts")
        base = pretrained(Path(folder), collections, pretrain)
        asked: Run = {"pretrain": pretrain, "examples": examples, "words": words, "epochs": epochs}
        asked |= {"changes": " ".join(changes)}
        results: dict[str, list[Run]] = {arm: [] for arm in arms.split(",")}
        for seed in range(seeds):
            task = Task.draw(Path(folder), base, collections, examples, words, seed, changes)
            for arm, found in results.items():
                found.append(asked | {"seed": seed, "arm": arm, "accuracy": task.run(arm, epochs)})
                append(file, found[-1])
                click.echo(f"seed {seed}  {arm}: {found[-1]['accuracy']:.3f}", err=True)
    click.echo(
        f"{pretrain} tokens of pretraining, {examples} examples for each oracle, {words} words each, "
        f"{epochs} epochs, {seeds} seeds; {' '.join(changes) or 'manifest as it is'}; "
        f"torch {torch.__version__}"
    )
    click.echo(head(["arm", "accuracy", "standard deviation", "each"]))
    for arm, found in results.items():
        accuracies = [each["accuracy"] for each in found]
        deviation = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
        each = ", ".join(f"{accuracy:.3f}" for accuracy in accuracies)
        click.echo(row([arm, f"{statistics.mean(accuracies):.3f}", f"{deviation:.3f}", each]))


@dataclass(frozen=True)
class Collections:
    """Documents by the name of their collection: for pretraining, for examples, for the test."""

    pretraining: Path
    examples: dict[str, list[str]]
    test: dict[str, list[str]]

    @classmethod
    def write(cls, folder: Path) -> Collections:
        """Split the documents, so that no two parts share one."""
        parts: tuple[dict[str, list[str]], ...] = ({}, {})
        for collection in write_corpora(folder):
            files = sorted(collection.iterdir())
            random.Random(0).shuffle(files)
            half = len(files) // 2
            for number, file in enumerate(files[half:]):
                part = parts[number % TEST_SHARE == 0].setdefault(collection.name, [])
                part.append(file.read_text(encoding="utf-8"))
                file.unlink()
        return cls(folder, *parts)


def pretrained(folder: Path, collections: Collections, tokens: int) -> SavedModel:
    """A language model of the collections' first halves."""
    text = TextFiles(collections.pretraining)
    tokenizer = tokenizer_of(collections.pretraining, SHAPE["vocabulary_size"])
    tables = load_preset("tiny")
    tables["model"] = GPT2 | SHAPE | {"dropout": 0.1}
    tables["schedule"]["total_updates"] = max(100, tokens // tables["rounds"]["tokens_per_step"])
    manifest = manifest_of(tables, tokenizer)
    context_length = manifest.model.context_length
    corpus = Corpus.prepare(text, tokenizer, folder / "tokens", context_length=context_length, seed=0)
    model = GPT(manifest.model)
    state = first_state(manifest, list(model.parameters()))
    batches = Batches(
        [corpus.train], context_length, tables["rounds"]["tokens_per_step"] // context_length, 0, ""
    )
    unflatten(train_alone(manifest, state.anchor, batches, tokens), list(model.parameters()))
    return SavedModel(folder, manifest, tokenizer, ReplicaState.initial(list(model.parameters()), ()))


@dataclass(frozen=True)
class Task:
    """One draw of everything: both oracles' examples, the test, and the weights to begin with."""

    manifest: Manifest
    start: Tensor
    examples: Examples
    test: Examples

    @classmethod
    def draw(
        cls,
        folder: Path,
        base: SavedModel,
        collections: Collections,
        count: int,
        words: int,
        seed: int,
        changes: Sequence[str],
    ) -> Task:
        """The examples of ``seed``, and what `dupt-peer new --from` gives, but for ``changes``."""
        objective = Objective(kind="classification", labels=sorted(collections.examples))
        manifest, state = begin_task(base, objective, name="bench", seed=seed)
        manifest = changed(manifest, parsed(changes))
        rng = random.Random(seed)

        def load(documents: dict[str, list[str]], number: int) -> Examples:
            path = folder / "rows.csv"
            write_rows(path, documents, number, words, rng)
            return load_examples(LabelledFiles(path), manifest, base.tokenizer)

        every = load(collections.examples, 2 * count)
        test = load(collections.test, TESTED)
        return cls(manifest, state.anchor, every, test)

    def run(self, arm: str, epochs: int) -> float:
        """The accuracy of an arm after its training."""
        if arm == "before":
            return self._accuracy(self.start)
        half = len(self.examples) // 2  # with as many examples of each label, as they were written in turn
        one = picked(self.examples, range(half))
        two = picked(self.examples, range(half, len(self.examples)))
        examples = {"one": [one], "two": [two], "both": [self.examples]}.get(arm, [one, two])
        steps = sum(map(len, examples)) * epochs // self._batch
        if arm == "swarm":
            steps //= 2  # of each
        trained = sum(map(len, examples)) * epochs * (2 if arm == "swarm-2x" else 1)
        steps = max(2, steps)  # a schedule has a warm-up and an end
        schedule = {"schedule.total_updates": steps, "schedule.warmup_updates": max(1, steps // 500)}
        manifest = changed(self.manifest, schedule)
        return self._accuracy(self._train(manifest, examples, trained * manifest.model.context_length))

    @property
    def _batch(self) -> int:
        return self.manifest.rounds.tokens_per_step // self.manifest.model.context_length

    def _train(self, manifest: Manifest, examples: list[Examples], tokens: int) -> Tensor:
        torch.manual_seed(manifest.seed)
        sources = [EncodedBatches(own, self._batch, manifest.seed, str(n)) for n, own in enumerate(examples)]
        if len(sources) == 1:
            return train_alone(manifest, self.start, sources[0], tokens)
        return train_swarm(manifest, self.start, sources, tokens)

    def _accuracy(self, weights: Tensor) -> float:
        model = build_model(self.manifest)
        assert isinstance(model, TaskModel)
        unflatten(weights, list(model.parameters()))
        found = evaluate_task(model, self.test.in_order(BATCH), torch.device("cpu")).accuracy
        assert found is not None
        return found


def write_rows(
    path: Path, documents: dict[str, list[str]], count: int, words: int, rng: random.Random
) -> None:
    """Labelled passages, all different, as many of each collection."""
    seen: set[str] = set()
    rows: list[list[str]] = []
    while len(rows) < count:
        label = sorted(documents)[len(rows) % len(documents)]
        text = rng.choice(documents[label]).split()
        start = rng.randrange(max(1, len(text) - words))
        passage = " ".join(text[start : start + words])
        if passage not in seen:
            seen.add(passage)
            rows.append([passage, label])
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text", "label"], *rows])


def changed(manifest: Manifest, changes: Mapping[str, Any]) -> Manifest:
    """A manifest with changes by their keys, such as ``inner.learning_rate``."""
    tables: dict[str, Any] = manifest.model_dump()
    for key, value in changes.items():
        section, _, name = key.partition(".")
        if name not in tables.get(section, {}):
            raise click.UsageError(f"--set {key}={value}: the manifest has no key `{key}`")
        tables[section][name] = value
    return Manifest.model_validate(tables)


def picked(examples: Examples, indices: range) -> Examples:
    """Some examples."""
    return replace(
        examples,
        sequences=[examples.sequences[index] for index in indices],
        labels=examples.labels[indices.start : indices.stop],
    )


if __name__ == "__main__":
    main()
