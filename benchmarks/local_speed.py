"""How fast one oracle trains, as ratios between three arms that are interleaved in one run.

    a  a plain loop in nanoGPT's manner (`_nanogpt`), same shape, batch, precision and clipping
    b  dupt_swarm's model and trainer with its inner optimizer, without a swarm
    c  a whole oracle (`Oracle.run`) with its node, and a first peer, on loopback: rounds, judge, held-out
       evaluation, reports, records and checkpoints as they come

The arms run in short slices in rotating order, because a machine's speed changes with load and temperature;
a slice of arm c consists of whole rounds. While a or b runs, the oracle stands where a round has ended, and
the nodes' process groups are suspended (SIGSTOP), so all CPU time of both nodes counts against arm c,
including the first peer's, which would cost the oracle nothing on a machine of its own. The oracle is alone
in its swarm: it waits for each round's end, and nothing of that is hidden behind training. Its clock goes
on while the others run, so evaluations are allowed a third of the time that they have in the long run, and
checkpoints are three times as frequent as they are.

How to read it: b/a and c/b are ratios of tokens per second, the median over all triples of adjacent slices,
with minimum and maximum; above 1 means that the first is faster. Each ratio is also given per second of CPU
time, the nodes' included: the one to look at on a shared CPU (with OMP_NUM_THREADS=1, since waiting threads
spin); and once more without the first peer's node, which is what a volunteer's machine has to do. For a GPU
there is `gpu.py`.

    python benchmarks/local_speed.py [--preset tiny|gpt1] [--slices 15] [--seconds 5] [--batch-size 16]
        [--file PATH]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import click
import numpy as np
import torch
from _figures import ratio, rotated
from _gated import GatedOracle
from _manifest import speed_manifest, with_tokenizer
from _nanogpt import PlainGPT, PlainLoop
from _runs import Run, append, file_option
from _solitary import Pause, solitary_swarm
from _texts import tokenizer_of, write_four
from torch import nn

from dupt_swarm.learning.activation_checkpointing import checkpoint_activations
from dupt_swarm.learning.batches import Batches, BatchSource, cut_step
from dupt_swarm.learning.device import maybe_compile, wait_for
from dupt_swarm.learning.inner import build_inner
from dupt_swarm.learning.inner.matrices import block_matrices
from dupt_swarm.learning.inner.offloading import Offloaded
from dupt_swarm.learning.inner.unigrams import unigrams_of
from dupt_swarm.learning.objectives.language import Language
from dupt_swarm.learning.room import NOTHING, Saving
from dupt_swarm.learning.strategies.flat import clip_gradients
from dupt_swarm.learning.token_files import Split
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.learning_rate import inner_learning_rate
from dupt_swarm.node import link
from dupt_swarm.oracle import held_out
from dupt_swarm.oracle.oracle import Oracle
from dupt_swarm.presets import PRESETS, load_preset
from dupt_swarm.settings import OracleSettings

CPU = torch.device("cpu")
SETTLE_SECONDS = 0.5  # resumed nodes first catch up on what is overdue

KINDS = {"by_clock": "by the clock", "by_cpu": "by CPU time", "by_own_cpu": "without the first peer's"}

Rates = dict[str, float]  # tokens per second of each kind of time


Step = Callable[[], int]
"""Runs one inner step, or a round of them; the number of its tokens."""


class InnerOptimizer:
    """What `CollaborativeOptimizer` does in an inner step, without a swarm."""

    def __init__(self, model: nn.Module, manifest: Manifest, *, offload: bool = False) -> None:
        self._parameters = list(model.parameters())
        self._manifest, self._update = manifest, 0
        self._inner = build_inner(self._parameters, manifest.inner, block_matrices(model), unigrams_of(model))
        self._offloaded = Offloaded(self._inner) if offload else None

    def step(self, *, tokens: int) -> None:
        """Clip, set the scheduled learning rate, step."""
        del tokens
        clip_gradients(self._parameters, self._manifest.inner.clip_norm)
        for group in self._inner.param_groups:
            group["lr"] = inner_learning_rate(self._manifest, self._update)
        (self._offloaded or self._inner).step()
        self._update += 1

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self._inner.zero_grad()


def plain_trainer(
    model: nn.Module,
    manifest: Manifest,
    batches: tuple[BatchSource, int],
    device: torch.device,
    *,
    compiled: bool | None = None,
    saving: Saving = NOTHING,
) -> Trainer:
    """The product's trainer and inner optimizer for ``model``, without a swarm.

    Args:
        model: on ``device``.
        manifest: of its swarm.
        batches: and how many of them make a step.
        device: where it is.
        compiled: see `maybe_compile`.
        saving: what gives way.
    """
    optimizer = InnerOptimizer(model, manifest, offload=saving.offload)
    checkpoint_activations(model, wanted=saving.checkpointing)
    maybe_compile(model, device, compiled)
    source, micro_batches = batches
    return Trainer(model, optimizer, source, device, micro_batches)


@click.command()
@click.option("--preset", type=click.Choice(PRESETS), default="tiny", show_default=True)
@click.option("--slices", type=click.IntRange(2), default=15, show_default=True, help="Slices of each arm.")
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=5.0, show_default=True, help="Length of a slice."
)
@click.option(
    "--batch-size", type=click.IntRange(1), default=16, show_default=True, help="Sequences in a micro-batch."
)
@file_option
def main(preset: str, slices: int, seconds: float, batch_size: int, file: Path | None) -> None:
    """Tokens per second of one oracle ÷ plain loops, in one interleaved run."""
    with (
        tempfile.TemporaryDirectory(prefix="dupt-bench-") as folder,
        arms_of(preset, Path(folder), batch_size) as (arms, oracle, pause),
    ):
        asked = {"preset": preset, "seconds": seconds, "batch_size": batch_size}
        rows: dict[str, list[Run]] = {name: [] for name in arms}
        for number in range(-1, slices):
            for name in rotated(arms, number):
                # The first slice of each is warm-up: memory, compilation, the first round.
                rates = measure(arms[name], seconds, CPU, pause if name == "c" else None)
                if number >= 0:
                    rounds = oracle.status().rounds_done if name == "c" else 0
                    about = {"arm": name, "slice": number, "rounds": rounds}
                    rows[name].append(asked | about | rates)
                    append(file, rows[name][-1])
        checkpoints = len(list(Path(folder).glob("oracle/*/checkpoint-*")))
    click.echo(f"{preset}, {slices} slices of {seconds:g} s per arm, torch {torch.__version__}")
    click.echo(f"arm c: {rows['c'][-1]['rounds']} rounds; {checkpoints} of its checkpoints are there")
    for over, under in (("b", "a"), ("c", "b"), ("c", "a")):
        by = [
            f"{ratio([each[kind] for each in rows[over]], [each[kind] for each in rows[under]], 3)} {words}"
            for kind, words in KINDS.items()
        ]
        click.echo(f"{over}/{under}: {', '.join(by)}")


@contextmanager
def arms_of(preset: str, folder: Path, batch_size: int) -> Iterator[tuple[dict[str, Step], Oracle, Pause]]:
    """The three arms, warmed up, and the oracle of the third, whose nodes are suspended."""
    most = load_preset(preset)["model"]["vocabulary_size"]
    texts = write_four(folder / "texts")
    tokenizer = tokenizer_of(folder / "texts", most)
    manifest = with_tokenizer(speed_manifest(preset), tokenizer)
    batch, micro_batches = cut_step(manifest, batch_size)
    context = manifest.model.context_length

    # As in the long run: only at first do evaluations get more.
    with (
        solitary_swarm(manifest, tokenizer.to_bytes(), folder) as (swarm, pause),
        patch.object(link, "SILENT_CHECKS_MAX", sys.maxsize),  # a suspended node is silent, and not dead
        patch.object(held_out, "SECONDS", 0.0),
        patch.object(held_out, "TIME_RATIO_LASTING", held_out.TIME_RATIO_LASTING / 3),
    ):
        oracle = Oracle(swarm, OracleSettings(texts[0].parent, device="cpu", batch_size=batch_size))
        assert isinstance(oracle.objective, Language)
        tokens = oracle.objective.mixture.corpora[0].train
        data = np.asarray(tokens.read(0, len(tokens)), np.uint16)
        batches = Batches([Split([data])], context, batch, manifest.seed, "bench")
        trainer = plain_trainer(GPT(manifest.model), manifest, (batches, micro_batches), CPU)
        shape = (micro_batches, batch, context)
        gated = GatedOracle(oracle, CPU)
        arms: dict[str, Step] = {
            "a": PlainLoop(PlainGPT(manifest.model), manifest.inner, data, shape, CPU).step,
            "b": lambda: trainer.step().tokens,
            "c": lambda: gated.go_on(1),
        }
        gated.go_on(1)
        pause.stop()
        yield arms, oracle, pause
        pause.go_on()
        gated.end()


def measure(step: Step, seconds: float, device: torch.device, pause: Pause | None) -> Rates:
    """The speed over at least ``seconds``, by each of `KINDS`."""

    def used() -> list[float]:
        first, *others = pause.cpu_seconds() if pause else [0.0]
        own = time.process_time() + sum(others)
        return [time.perf_counter(), own + first, own]

    if pause:
        pause.go_on()
        time.sleep(SETTLE_SECONDS)
    wait_for(device)
    before, tokens = used(), 0
    while time.perf_counter() - before[0] < seconds:
        tokens += step()
    wait_for(device)
    rates = [tokens / (now - then) for now, then in zip(used(), before, strict=True)]
    if pause:
        pause.stop()
    return dict(zip(KINDS, rates, strict=True))


if __name__ == "__main__":
    main()
