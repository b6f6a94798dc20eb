"""Is a model that a swarm pretrained worth more than random weights, and does λ·L1 help, on real tasks?

A real swarm of two oracles with disjoint texts, each a process with a node of its own, pretrains a model on
half of the documents that every Python installation has: the manual, the standard library, and package
descriptions. Three tasks are made of the other half; training, validation and test share no document:

    corpus         which of the three collections is a passage from? (classification)
    code           is a passage from the library, or from the other two? (classification)
    continuation   which of two texts follows on a passage, the true one, or one of another
                   document of the same collection? (multiple choice)

Each is learnt with `Finetuner`, as `dupt-model finetune` does it, by four arms with equal examples and
epochs: from the swarm's weights or from random ones, each with λ = 0.5 and with λ = 0. Which rate suits a
model of this size is not known, and random weights need a higher one; so each arm is run with each of
``--rates``, and the one with the best validation accuracy counts. With λ = 0 the same updates take less time.

How to read it: accuracy on the test's examples, mean ± standard deviation over the seeds; each seed draws
examples, new weights, order and dropout anew, with the same examples for all arms. `chance` is the share of
the commonest answer. The sampling error of one accuracy is about 0.02 (400 examples).

    PYTHONPATH=. python benchmarks/finetuning.py [--rounds 40] [--examples 320] [--seeds 3] [--file PATH]
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import click
import torch
from _arms import GPT2
from _figures import head, mean_of, row
from _manifest import manifest_of
from _runs import Run, append, file_option
from _texts import tokenizer_of

from dupt_swarm.learning.finetuning.settings import FinetuningSettings
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.labelled.load import load_examples
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.objectives.scores import evaluate_task
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.manifest import Manifest
from dupt_swarm.models.fine_tuning import Finetuner, LabelledTask
from dupt_swarm.models.saved_model import SavedModel
from dupt_swarm.presets import load_preset
from dupt_swarm.replica.state import ReplicaState
from peers.demo import LOOPBACK, write_corpora
from peers.processes import LocalProcesses

PASSAGE = 80  # characters
PARTS = {"train": 6, "valid": 2, "test": 2}  # of ten documents that are not pretrained on
TESTED = 400
CODE = "library"
# Small, so that a swarm pretrains it in minutes on two cores.
SHAPE = {"context_length": 64, "layers": 2, "heads": 4, "width": 128, "hidden_width": 512, "dropout": 0.1}
VOCABULARY_SIZE = 2048
Documents = dict[str, list[str]]  # by collection
Row = dict[str, Any]


def split_documents(collections: list[Path], oracles: list[Path]) -> dict[str, Documents]:
    """Half of the documents to the oracles' folders, in turn; the others by part, then by collection."""
    parts: dict[str, Documents] = {name: {} for name in PARTS}
    names = [name for name, share in PARTS.items() for _ in range(share)]
    for folder in collections:
        files = sorted(folder.iterdir(), key=lambda path: hashlib.sha256(path.name.encode()).digest())
        half = len(files) // 2
        for number, file in enumerate(files[:half]):
            file.rename(oracles[number % len(oracles)] / f"{folder.name}-{file.name}")
        for number, file in enumerate(files[half:]):
            text = file.read_text(encoding="utf-8")
            parts[names[number % len(names)]].setdefault(folder.name, []).append(text)
    return parts


def write_manifest(path: Path, texts: Path) -> Manifest:
    """The preset `tiny` with a smaller model, and its tokenizer beside it."""
    tokenizer = tokenizer_of(texts, VOCABULARY_SIZE)
    manifest = manifest_of(load_preset("tiny") | {"model": GPT2 | SHAPE}, tokenizer)
    tokenizer.save(path.with_name("tokenizer.json"))
    path.write_text(manifest.to_toml(), encoding="utf-8")
    return manifest


def pretrain(folder: Path, texts: Path, oracles: list[Path], rounds: int) -> SavedModel:
    """What a swarm of these oracles makes in so many rounds, by the programs."""
    manifest = write_manifest(folder / "run.toml", texts)
    with LocalProcesses(folder / "logs") as processes:
        processes.start(
            "first",
            *("dupt-peer", "bootstrap", str(folder / "run.toml"), "--json"),
            *("--host-maddrs", LOOPBACK, "--state-dir", str(folder / "first")),
        )
        address = json.loads(processes.first_line("first"))["addresses"][0]
        for path in oracles:
            processes.start(
                path.name,
                *("dupt-peer", "join", "--initial-peers", address, "--corpus", str(path), "--json"),
                *("--host-maddrs", LOOPBACK, "--state-dir", str(folder / f"{path.name}-state")),
                *("--name", path.name, "--rounds", str(rounds)),
            )
        for path in oracles:
            output, code = processes.finish(path.name)
            if code:
                raise click.ClickException(processes.log_tail(path.name))
            found = json.loads(output)
            before, after = found["heldout_loss_before"], found["heldout_loss_after"]
            click.echo(f"{path.name}: held-out loss {before:.3f} → {after:.3f} nats", err=True)
    return SavedModel.load(folder / f"{oracles[0].name}-state" / manifest.swarm_id)


def untrained(base: SavedModel, seed: int) -> SavedModel:
    """The same model with random weights."""
    model = build_model(base.manifest)
    model.init_weights(seed)  # type: ignore[operator]
    return replace(base, state=ReplicaState.initial(list(model.parameters()), ()))


def passage(draw: random.Random, text: str, length: int = PASSAGE) -> str:
    """Some characters from anywhere, beginning with a word."""
    start = draw.randrange(max(1, len(text) - length))
    start = start if not start else text.find(" ", start, len(text) - 20) + 1
    return text[start : start + length]


def corpus_rows(draw: random.Random, documents: Documents) -> Iterator[Row]:
    """Each collection as often."""
    while True:
        label = draw.choice(sorted(documents))
        yield {"text": passage(draw, draw.choice(documents[label])), "label": label}


def code_rows(draw: random.Random, documents: Documents) -> Iterator[Row]:
    """Code as often as prose."""
    prose = [text for name, texts in documents.items() if name != CODE for text in texts]
    while True:
        label = draw.choice(("code", "prose"))
        yield {
            "text": passage(draw, draw.choice(documents[CODE] if label == "code" else prose)),
            "label": label,
        }


def continuation_rows(draw: random.Random, documents: Documents) -> Iterator[Row]:
    """A passage, what follows on it, and as much of another document of the same collection."""
    while True:
        texts = documents[draw.choice(sorted(documents))]
        true, false = draw.sample(texts, 2)
        both = passage(draw, true, 2 * PASSAGE)
        cut = both.find(" ", len(both) // 2)
        if cut < 0:
            continue
        choices = [both[cut:], passage(draw, false, len(both) - cut)]
        label = draw.randrange(2)
        yield {"context": both[:cut], "choices": choices if label == 0 else choices[::-1], "label": label}


TASKS: dict[str, tuple[str, Callable[[random.Random, Documents], Iterator[Row]]]] = {
    "corpus": ("classification", corpus_rows),
    "code": ("classification", code_rows),
    "continuation": ("multiple-choice", continuation_rows),
}


def write_rows(path: Path, rows: Iterator[Row], count: int) -> LabelledFiles:
    """The first ``count`` rows without an empty text, all different."""
    lines: dict[str, None] = {}
    while len(lines) < count:
        row = next(rows)
        texts = [row["text"]] if "text" in row else [row["context"], *row["choices"]]
        if all(text.strip() for text in texts):
            lines[json.dumps(row)] = None
    path.write_text("\n".join(lines), encoding="utf-8")
    return LabelledFiles(path)


def write_examples(
    folder: Path, task: str, parts: dict[str, Documents], sizes: dict[str, int], seed: int
) -> tuple[dict[str, LabelledFiles], float]:
    """So many examples of a task by part, and the share of the commonest answer in the test's."""
    _, rows = TASKS[task]
    files = {
        part: write_rows(
            folder / f"{task}-{part}.jsonl", rows(random.Random(f"{task} {part} {seed}"), parts[part]), size
        )
        for part, size in sizes.items()
    }
    answers = [row.cells["label"] for row in files["test"].rows(["label"])]
    return files, max(map(answers.count, set(answers))) / len(answers)


def learn(
    folder: Path, base: SavedModel, task: LabelledTask, test: LabelledFiles, settings: FinetuningSettings
) -> tuple[float, float]:
    """Accuracy on the validation and on the test examples."""
    finetuner = Finetuner(base, task, folder / "out", settings, "cpu", threads=1)
    finetuner.run()
    report = finetuner.report
    assert report is not None
    valid = max(epoch["scores"]["accuracy"] for epoch in report["epochs"])
    saved = SavedModel.load(folder / "out")
    examples = load_examples(test, saved.manifest, saved.tokenizer)
    device = torch.device("cpu")
    model = saved.build(device)
    assert isinstance(model, TaskModel)
    found = evaluate_task(model, examples.in_order(32), device).accuracy
    assert found is not None
    return valid, found


def try_rates(
    folder: Path,
    base: SavedModel,
    task: LabelledTask,
    test: LabelledFiles,
    settings: FinetuningSettings,
    rates: Sequence[float],
) -> tuple[list[Run], float]:
    """The accuracies with each learning rate, and the test's with the one that is best in validation."""
    tried: list[Run] = []
    for rate in rates:
        with tempfile.TemporaryDirectory(dir=folder) as out:
            chosen = replace(settings, learning_rate=rate)
            valid, tested = learn(Path(out), base, task, test, chosen)
            tried.append({"rate": rate, "valid": valid, "test": tested})
    return tried, max(tried, key=lambda each: each["valid"])["test"]


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=40, show_default=True, help="Of the swarm.")
@click.option("--examples", type=click.IntRange(8), default=320, show_default=True, help="To train on.")
@click.option("--epochs", type=click.IntRange(1), default=3, show_default=True)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--rates", default="3e-4,1e-3", show_default=True, help="Learning rates to choose from.")
@click.option("--tasks", default=",".join(TASKS), show_default=True)
@file_option
def main(
    rounds: int, examples: int, epochs: int, seeds: int, rates: str, tasks: str, file: Path | None
) -> None:
    """Test accuracy after fine-tuning: a swarm's weights or random ones, λ = 0.5 or 0."""
    with tempfile.TemporaryDirectory(prefix="dupt-bench-") as name:
        folder = Path(name)
        oracles = [folder / "texts" / "one", folder / "texts" / "two"]
        collections = write_corpora(folder / "corpora")
        for path in oracles:
            path.mkdir(parents=True)
        parts = split_documents(collections, oracles)
        started = time.monotonic()
        base = pretrain(folder, folder / "texts", oracles, rounds)
        click.echo(
            f"pretrained on {base.state.swarm_tokens:,} tokens in {time.monotonic() - started:.0f} s",
            err=True,
        )
        tokens = base.state.swarm_tokens
        asked = {"rounds": rounds, "swarm_tokens": tokens, "examples": examples, "epochs": epochs}
        chosen = list(map(float, rates.split(",")))
        results: list[Run] = []
        for task, seed in product(tasks.split(","), range(seeds)):
            place = folder / f"{task}-{seed}"
            for found in measure(place, base, task, parts, examples, seed, epochs, chosen):
                results.append(asked | {"task": task, "seed": seed} | found)
                append(file, results[-1])
    click.echo(
        f"{rounds} rounds, {tokens:,} tokens; {examples} examples, {epochs} epochs, rates {rates}, "
        f"{seeds} seeds, {TESTED} test examples; torch {torch.__version__}"
    )
    arms = list(dict.fromkeys(found["arm"] for found in results))
    click.echo(head(["task", *arms]))
    for task in tasks.split(","):
        cells = []
        for arm in arms:
            accuracies = [each["accuracy"] for each in results if (each["task"], each["arm"]) == (task, arm)]
            cells.append(mean_of(accuracies))
        click.echo(row([task, *cells]))


def measure(
    folder: Path,
    base: SavedModel,
    name: str,
    parts: dict[str, Documents],
    count: int,
    seed: int,
    epochs: int,
    rates: Sequence[float],
) -> Iterator[Run]:
    """The test accuracy of the commonest answer and of each arm, with what was tried for it."""
    folder.mkdir()
    sizes = {"train": count, "valid": max(64, count // 4), "test": TESTED}
    files, chance = write_examples(folder, name, parts, sizes, seed)
    yield {"arm": "chance", "accuracy": chance}
    bases = {"swarm": base, "random": untrained(base, seed)}
    for (weights, model), lm_weight in product(bases.items(), (0.5, 0.0)):
        arm = f"{weights}, λ = {lm_weight:g}"
        task = LabelledTask(TASKS[name][0], files["train"], files["valid"], lm_weight=lm_weight)
        settings = FinetuningSettings(epochs, seed=seed)
        tried, accuracy = try_rates(folder, model, task, files["test"], settings, rates)
        click.echo(f"{name}, seed {seed}, {arm}: {accuracy:.3f}", err=True)
        yield {"arm": arm, "accuracy": accuracy, "tried": tried}


if __name__ == "__main__":
    main()
