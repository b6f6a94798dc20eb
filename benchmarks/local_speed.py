"""How fast one oracle trains, as ratios between three arms that are interleaved in one run.

    a  a plain loop in nanoGPT's manner (`_nanogpt`), same shape, batch, precision and clipping
    b  dupt_swarm's model and trainer with its inner optimizer, without a swarm
    c  the same inside a running oracle: a first peer and an oracle's node on loopback, rounds of the preset

The arms run in short slices in rotating order, because a machine's speed changes with load and temperature;
a slice of arm c consists of whole rounds. While a or b runs, the nodes' process groups are suspended
(SIGSTOP), so all CPU time of both nodes counts against arm c, including the first peer's, which would cost
the oracle nothing on a machine of its own. The oracle is alone in its swarm, so averaging takes no time;
what remains is the cost of the node, the contributions and the outer steps.

How to read it: b/a and c/b are ratios of tokens per second, the median over all triples of adjacent slices,
with minimum and maximum; above 1 means that the first is faster. On CUDA, `mfu` is the model FLOP
utilisation of arms b and c: 6·N + 12·layers·width·context FLOPs per token (Chowdhery et al. 2022, "PaLM",
appendix B; N without position embeddings) divided by the rate of a bf16 product of two 8192 × 8192 matrices
measured in the same run, so 1.0 is what the hardware gives in practice, not on paper. Each ratio is also
given per second of CPU time, the nodes' included: the one to look at on a shared CPU (with
OMP_NUM_THREADS=1, since waiting threads spin).

    python benchmarks/local_speed.py [--preset tiny|gpt1] [--slices 15] [--seconds 5] [--batch-size 16]
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import click
import numpy as np
import torch
from _nanogpt import PlainGPT, PlainLoop
from _solitary import Pause, solitary_swarm, speed_manifest

from dupt_swarm.learning.batches import Batches, cut_step
from dupt_swarm.learning.decoder.gpt import GPT
from dupt_swarm.learning.device import choose_device, maybe_compile
from dupt_swarm.learning.inner import build_inner
from dupt_swarm.learning.inner.matrices import block_matrices
from dupt_swarm.learning.interruptible import parameter_count
from dupt_swarm.learning.shards import Split
from dupt_swarm.learning.strategies.flat import clip_gradients
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.learning_rate import inner_learning_rate
from dupt_swarm.optimizer.collaborative import CollaborativeOptimizer
from dupt_swarm.presets import PRESETS

CORPUS_TOKENS = 1 << 22
SETTLE_SECONDS = 0.5  # resumed nodes first catch up on what is overdue
MATRIX, PRODUCTS = 8192, 20

Model = TypeVar("Model", PlainGPT, GPT)
Rate = tuple[float, float]  # tokens per second of wall-clock time, and of CPU time


class Arm(Protocol):
    """One arm of the benchmark."""

    def step(self) -> int:
        """Run one inner step; return its number of tokens."""

    def between_rounds(self) -> bool:
        """Whether a slice may end here."""

    @property
    def contributed_tokens(self) -> int:
        """Those that went into rounds."""


class PlainArm(PlainLoop):
    """Arm a."""

    def between_rounds(self) -> bool:
        """It has no rounds."""
        return True

    contributed_tokens = 0


class InnerOptimizer:
    """What `CollaborativeOptimizer` does in an inner step, without a swarm."""

    def __init__(self, model: GPT, manifest: Manifest) -> None:
        self._parameters = list(model.parameters())
        self._manifest, self._update = manifest, 0
        self._inner = build_inner(self._parameters, manifest.inner, block_matrices(model))

    def step(self, *, tokens: int) -> None:
        """Clip, set the scheduled learning rate, step."""
        del tokens
        clip_gradients(self._parameters, self._manifest.inner.clip_norm)
        for group in self._inner.param_groups:
            group["lr"] = inner_learning_rate(self._manifest, self._update)
        self._inner.step()
        self._update += 1

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self._inner.zero_grad()


@dataclass
class TrainerArm:
    """Arm b, and with a `CollaborativeOptimizer` arm c."""

    trainer: Trainer
    optimizer: CollaborativeOptimizer | None = None

    def step(self) -> int:
        """One inner step."""
        self._round = self.optimizer.last_round if self.optimizer else None
        return self.trainer.step().tokens

    def between_rounds(self) -> bool:
        """Whether the last step ended a round."""
        return self.optimizer is None or self.optimizer.last_round is not self._round

    @property
    def contributed_tokens(self) -> int:
        """Those that went into rounds."""
        return self.optimizer.contributed_tokens if self.optimizer else 0


@click.command()
@click.option("--preset", type=click.Choice(PRESETS), default="tiny", show_default=True)
@click.option("--slices", type=click.IntRange(2), default=15, show_default=True, help="Slices of each arm.")
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=5.0, show_default=True, help="Length of a slice."
)
@click.option(
    "--batch-size", type=click.IntRange(1), default=16, show_default=True, help="Sequences in a micro-batch."
)
@click.option("--device", "device_name", default="auto", show_default=True)
def main(preset: str, slices: int, seconds: float, batch_size: int, device_name: str) -> None:
    """Tokens per second of one oracle ÷ plain loops, in one interleaved run."""
    device, manifest = choose_device(device_name), speed_manifest(preset)
    with (
        tempfile.TemporaryDirectory(prefix="dupt-bench-") as folder,
        arms_of(manifest, Path(folder), batch_size, device) as (arms, pause),
    ):
        rates: dict[str, list[Rate]] = {name: [] for name in arms}
        names = list(arms)
        for number in range(-1, slices):
            for name in names[number % 3 :] + names[: number % 3]:
                # The first slice of each is warm-up: memory, compilation, the first round.
                rate = measure(arms[name], seconds, device, pause if name == "c" else None)
                if number >= 0:
                    rates[name].append(rate)
        product_rate = matrix_product_rate() if device.type == "cuda" else None
    click.echo(
        f"{preset}, {slices} slices of {seconds:g} s per arm, {device.type}, torch {torch.__version__}"
    )
    click.echo(f"rounds in arm c: {arms['c'].contributed_tokens // manifest.rounds.tokens_per_round}")
    for over, under in (("b", "a"), ("c", "b"), ("c", "a")):
        by = [ratio([r[kind] for r in rates[over]], [r[kind] for r in rates[under]]) for kind in (0, 1)]
        click.echo(f"{over}/{under}: {by[0]} by the clock, {by[1]} by CPU time")
    if product_rate:
        for name in ("a", "b", "c"):
            used = statistics.median(rate for rate, _ in rates[name]) * flops_per_token(manifest)
            click.echo(f"mfu {name}: {used / product_rate:.3f}")


@contextmanager
def arms_of(
    manifest: Manifest, folder: Path, batch_size: int, device: torch.device
) -> Iterator[tuple[dict[str, Arm], Pause]]:
    """The three arms, warmed up, with the nodes of the third suspended."""
    batch, micro_batches = cut_step(manifest, batch_size)
    context, size = manifest.model.context_length, manifest.model.vocabulary_size
    tokens = np.random.default_rng(0).integers(0, size, CORPUS_TOKENS, dtype=np.uint16)
    tokens.tofile(folder / "tokens")
    data = np.memmap(folder / "tokens", np.uint16, "r")

    def compiled(model: Model) -> Model:
        model.to(device)
        maybe_compile(model, device)
        return model

    def trainer_arm(build: Callable[[GPT], InnerOptimizer | CollaborativeOptimizer]) -> TrainerArm:
        model = GPT(manifest.model).to(device)
        optimizer = build(model)
        batches = Batches(Split([data]), context, batch, manifest.seed, "bench")
        trainer = Trainer(compiled(model), optimizer, batches, device, micro_batches)
        return TrainerArm(trainer, optimizer if isinstance(optimizer, CollaborativeOptimizer) else None)

    with solitary_swarm(manifest, folder) as (swarm, pause):
        shape = (micro_batches, batch, context)
        arms: dict[str, Arm] = {
            "a": PlainArm(compiled(PlainGPT(manifest.model)), manifest.inner, data, shape, device),
            "b": trainer_arm(lambda model: InnerOptimizer(model, manifest)),
            "c": trainer_arm(lambda model: CollaborativeOptimizer(model.parameters(), swarm)),
        }
        pause.stop()
        yield arms, pause
        pause.go_on()


def measure(arm: Arm, seconds: float, device: torch.device, pause: Pause | None) -> Rate:
    """The speed over at least ``seconds``, from the beginning of a round to the end of one."""
    if pause:
        pause.go_on()
        time.sleep(SETTLE_SECONDS)
    synchronize(device)
    used = time.process_time() + (pause.cpu_seconds() if pause else 0)
    started, tokens = time.perf_counter(), 0
    while True:
        tokens += arm.step()
        if time.perf_counter() - started >= seconds and arm.between_rounds():
            break
    synchronize(device)
    seconds = time.perf_counter() - started
    used = time.process_time() + (pause.cpu_seconds() if pause else 0) - used
    if pause:
        pause.stop()
    return tokens / seconds, tokens / used


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def ratio(over: list[float], under: list[float]) -> str:
    """Median, minimum and maximum of the ratios."""
    quotients = [a / b for a, b in zip(over, under, strict=True)]
    return f"{statistics.median(quotients):.3f} ({min(quotients):.3f}–{max(quotients):.3f})"


def flops_per_token(manifest: Manifest) -> int:
    """FLOPs per token, forward and backward (PaLM, appendix B)."""
    model = manifest.model
    weights = parameter_count(GPT(model)) - model.context_length * model.width
    return 6 * weights + 12 * model.layers * model.width * model.context_length


def matrix_product_rate() -> float:
    """FLOP per second of a bf16 product of two square matrices."""
    a, b = (torch.randn(MATRIX, MATRIX, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(PRODUCTS):
        a @ b
    torch.cuda.synchronize()
    return PRODUCTS * 2 * MATRIX**3 / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
