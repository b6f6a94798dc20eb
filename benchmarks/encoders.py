"""Does an encoder trained on masked text learn tasks better than a decoder? BERT's claim, measured small.

One process pre-trains each of them on half of the documents of `finetuning.py`: the same text, as many tokens
in sequences (an encoder's [CLS], [SEP] and padding count as tokens, and its masks are drawn anew in each
epoch), models of about 5 million weights (equal to 1 %: the feed-forward layers are as wide as makes them
so), a vocabulary of 4096 trained on those texts, Muon at 2e-3.

    decoder   GPT-2's block; learns to continue (`lm`)
    mlm       BERT's; learns to predict the 15 % of the tokens that are masked
    mlm-nsp   the same, of pairs of texts, and whether the second follows on the first
    mlm-pre   as `mlm` with the norms where GPT-2 has them

Each then learns two classifications of `finetuning.py` from few labelled passages of 80 characters, which are
of other documents: from which of three collections one is (`corpus`), and whether it is code or prose
(`code`). All arms have the same examples, epochs and rates to choose from, by accuracy on the validation
examples; the decoder has λ = 0 and λ = 0.5. With ``--tokens 0`` there is no pre-training: random weights.

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/encoders.py run --seeds 0,1,2 --file encoders.jsonl
    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/encoders.py run --seeds 0,1,2 --tokens 0 --file …
    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/encoders.py speed
    PYTHONPATH=. python benchmarks/encoders.py table encoders.jsonl

How to read it: accuracy on the test's examples, mean ± standard deviation over the seeds, each of which draws
weights, the order of text, and examples anew; the sampling error of one accuracy of 0.85 is 0.011. The
differences are to `decoder, λ = 0` with the same seed and as many tokens, or as many as ``--against`` says.
Held-out losses are nats per token that is predicted (with pairs, and per answer); they do not compare between
objectives. `speed` prints tokens of pre-training per second of processor time ÷ those of the decoder, medians
of slices that take turns: at equal time the decoder has had so many fewer ``--tokens``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click
import torch
from _arms import Arm
from _figures import head, in_turns, mean_of, ratio, row
from _manifest import manifest_of
from _runs import by_seed, run_once
from _swarm_arithmetic import Learner, drawn_state, train_alone
from _texts import tokenizer_of
from families import INNER, SHAPE, SLICES, STEPS, shape_of, widened
from finetuning import TASKS, Documents, split_documents, try_rates, write_examples

from dupt_swarm.learning.finetuning.settings import FinetuningSettings
from dupt_swarm.learning.objectives import first_model, kind_of
from dupt_swarm.learning.objectives.training import TrainingObjective
from dupt_swarm.learning.strategies.flat import flatten, unflatten
from dupt_swarm.learning.tokenizer import ENCODER_SPECIAL, END_OF_TEXT, Tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.models.fine_tuning import LabelledTask
from dupt_swarm.models.saved_model import SavedModel
from dupt_swarm.presets import load_preset
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.settings import OracleSettings
from peers.demo import write_corpora

TOKENS, BATCH, HELD_OUT_BLOCKS, SAMPLED = 409_600, 8, 96, 32
SIZES = {"train": 200, "valid": 100, "test": 1000}
EPOCHS, EXAMPLES_AT_ONCE, RATES = 6, 16, (3e-4, 1e-3)
DROPOUT = 0.1  # of fine-tuning; one pass through a text needs none
LEARNT = ("corpus", "code")


@dataclass(frozen=True)
class Reader:
    """What is pre-trained: the manifest's objective, parts other than the preset's, and λ of fine-tuning."""

    objective: dict[str, Any]
    parts: dict[str, Any] = field(default_factory=dict)
    lm_weights: tuple[float, ...] = (0.0,)

    @property
    def encodes(self) -> bool:
        """Whether it is an encoder."""
        return bool(self.objective["kind"] == "mlm")

    @property
    def shape(self) -> dict[str, Any]:
        """The table `[model]`: about as many weights as those of `families.py`."""
        if not self.encodes:
            return shape_of("gpt2")
        return widened({**load_preset("bert", "tiny")["model"], **SHAPE, **self.parts, "dropout": 0.0})


READERS = {
    "decoder": Reader({"kind": "lm"}, lm_weights=(0.0, 0.5)),
    "mlm": Reader({"kind": "mlm"}),
    "mlm-nsp": Reader({"kind": "mlm", "nsp": True}),
    "mlm-pre": Reader({"kind": "mlm"}, {"placement": "pre", "norm_epsilon": 1e-5}),
}
REFERENCE = "decoder"


@click.group()
def main() -> None:
    """Accuracy after fine-tuning: an encoder beside a decoder, at equal weights and tokens."""


@main.command()
@click.option("--seeds", default="0", show_default=True)
@click.option("--arm", "arms", multiple=True, type=click.Choice(list(READERS)), default=tuple(READERS))
@click.option("--tokens", type=click.IntRange(0), default=TOKENS, show_default=True, help="Of pre-training.")
@click.option("--file", type=click.Path(path_type=Path), default=Path("encoders.jsonl"), show_default=True)
def run(seeds: str, arms: tuple[str, ...], tokens: int, file: Path) -> None:
    """Pre-train and fine-tune each with each seed; a line of JSON each. What FILE has is not repeated."""
    for seed in map(int, seeds.split(",")):
        for arm in arms:
            about = {"arm": arm, "seed": seed, "tokens": tokens}
            run_once(file, about, partial(measure, READERS[arm], seed, tokens))


def measure(reader: Reader, seed: int, tokens: int) -> dict[str, Any]:
    """What pre-training comes to on held-out text, and the accuracies by task and λ."""
    with tempfile.TemporaryDirectory(prefix="dupt-bench-") as name:
        folder = Path(name)
        manifest, tokenizer, objective, parts = prepare(reader, folder, seed)
        model = first_model(manifest)
        first = flatten(list(model.parameters()))
        weights = train_alone(manifest, first, objective.batches(BATCH, "oracle")[0], tokens)
        unflatten(weights, list(model.parameters()))
        quality = objective.measure_held_out(model, torch.device("cpu"), 16, HELD_OUT_BLOCKS, lambda *_: None)
        shaped = manifest.model_copy(update={"model": manifest.model.model_copy(update={"dropout": DROPOUT})})
        state = ReplicaState.initial(list(model.parameters()), ())
        base = SavedModel(folder, shaped, tokenizer, state)
        accuracies = {task: fine_tune(folder, base, task, parts, reader.lm_weights, seed) for task in LEARNT}
        return {
            "weights": manifest.model.numel,
            "hidden_width": manifest.model.hidden_width,
            "corpus_tokens": objective.size,
            "of_text": share_of_text(objective),
            "heldout_loss": quality.loss_nats,
            "heldout_bits_per_byte": quality.bits_per_byte,
            "heldout_accuracy": quality.accuracy,
            "heldout_nsp_accuracy": quality.nsp_accuracy,
            "accuracies": accuracies,
        }


def prepare(
    reader: Reader, folder: Path, seed: int
) -> tuple[Manifest, Tokenizer, TrainingObjective, dict[str, Documents]]:
    """Half of the documents as pre-training has them, and the other half by part."""
    collections = write_corpora(folder / "corpora")
    oracle = folder / "texts"
    oracle.mkdir()
    parts = split_documents(collections, [oracle])
    special = ENCODER_SPECIAL if reader.encodes else (END_OF_TEXT,)
    tokenizer = tokenizer_of(oracle, SHAPE["vocabulary_size"], special)
    tables = Arm(INNER | {"model": reader.shape, "objective": reader.objective}, alone=True).tables({})
    manifest = manifest_of(tables, tokenizer, seed=seed)
    objective = kind_of(manifest).open(manifest, tokenizer, OracleSettings(corpus=oracle), folder / "tokens")
    return manifest, tokenizer, objective, parts


def share_of_text(objective: TrainingObjective) -> float:
    """Of the tokens of a sequence those that are no padding."""
    batches, _ = objective.batches(BATCH, "oracle")
    # After tokens, places and targets a pair has its length, and whether it follows.
    lengths = [batch[3] for batch in (next(batches) for _ in range(SAMPLED)) if len(batch) > 3]
    return torch.cat(lengths).float().mean().item() / batches.tokens_per_example if lengths else 1.0


def fine_tune(
    folder: Path,
    base: SavedModel,
    name: str,
    parts: dict[str, Documents],
    lm_weights: tuple[float, ...],
    seed: int,
) -> dict[str, float]:
    """The test accuracy by λ, with the rate whose validation accuracy is best; and `chance`."""
    files, chance = write_examples(folder, name, parts, SIZES, seed)
    found = {"chance": chance}
    for lm_weight in lm_weights:
        task = LabelledTask(TASKS[name][0], files["train"], files["valid"], lm_weight=lm_weight)
        settings = FinetuningSettings(EPOCHS, batch_size=EXAMPLES_AT_ONCE, seed=seed)
        tried, found[f"{lm_weight:g}"] = try_rates(folder, base, task, files["test"], settings, RATES)
        click.echo(f"{name}, seed {seed}, λ = {lm_weight:g}: {tried}", err=True)
    return found


@main.command()
@click.option("--slices", type=click.IntRange(2), default=SLICES, show_default=True)
def speed(slices: int) -> None:
    """Tokens of pre-training per second of processor time ÷ those of the decoder."""
    with tempfile.TemporaryDirectory(prefix="dupt-bench-") as name:
        arms = {}
        for arm, reader in READERS.items():
            (folder := Path(name, arm)).mkdir()
            arms[arm] = slice_of(reader, folder)
        found = in_turns(arms, slices)
        for arm, seconds in found.items():
            click.echo(f"{arm}: {ratio(found[REFERENCE], seconds)}")


def slice_of(reader: Reader, folder: Path) -> Callable[[], int]:
    """`STEPS` inner steps, the making of batches included."""
    manifest, _, objective, _ = prepare(reader, folder, 0)
    learner = Learner(manifest, drawn_state(manifest).anchor, objective.batches(BATCH, "oracle")[0])
    return partial(learner.train, STEPS, 0)


@main.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True))
@click.option("--against", type=int, help="Compare with the decoder of so many tokens; default: as many.")
def table(file: Path, against: int | None) -> None:
    """The runs as a Markdown table, each the mean over the seeds."""
    runs = by_seed(file, "tokens", "arm")
    columns = [column for task in LEARNT for column in (f"`{task}`", "− decoder, λ = 0")]
    click.echo(head(["pre-trained as", "tokens", "held-out loss", *columns, "seeds"]))
    for tokens, (arm, reader) in product(
        sorted({tokens for tokens, _ in runs}, reverse=True), READERS.items()
    ):
        found = runs.get((tokens, arm), {})
        reference = runs.get((tokens if against is None else against, REFERENCE), {})
        for lm_weight in map("{:g}".format, reader.lm_weights) if found else ():
            cells = [f"`{arm}`, λ = {lm_weight}", f"{tokens:,}"]
            cells.append(mean_of([line["heldout_loss"] for line in found.values()]))
            for task in LEARNT:
                accuracies = {seed: line["accuracies"][task][lm_weight] for seed, line in found.items()}
                cells.append(mean_of(list(accuracies.values())))
                both = accuracies.keys() & reference.keys()
                others = {seed: reference[seed]["accuracies"][task]["0"] for seed in both}
                cells.append(mean_of([accuracies[seed] - others[seed] for seed in both]))
            click.echo(row([*cells, ", ".join(map(str, sorted(found)))]))


if __name__ == "__main__":
    main()
