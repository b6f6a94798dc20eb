"""Training loops on one device, without a swarm: what `gpu.py` compares."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from _manifest import manifest_of
from _nanogpt import PlainGPT, PlainLoop
from local_speed import measure, plain_trainer

from dupt_swarm.learning.batches import Batches, cut_step
from dupt_swarm.learning.device import maybe_compile, wait_for
from dupt_swarm.learning.room import NOTHING, Saving
from dupt_swarm.learning.token_files import Split
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Manifest
from dupt_swarm.presets import load_preset

CORPUS_TOKENS = 1 << 23
WARM_STEPS, PROFILED_STEPS, OPERATIONS = 3, 6, 30
MATRIX, PRODUCTS = 8192, 20


@dataclass(frozen=True)
class Shape:
    """A preset as it ships, and how many sequences at once to train it with at most."""

    preset: str
    size: str | None
    sequences: int

    @property
    def manifest(self) -> Manifest:
        """With a tokenizer that nobody reads: the tokens are random numbers."""
        return manifest_of(load_preset(self.preset, self.size))


class Loop:
    """One way to train, warmed up."""

    def __init__(self, step: Callable[[], int], device: torch.device) -> None:
        """``step`` trains on as many tokens as it returns."""
        self.step, self._device = step, device
        self.rates: list[float] = []
        for _ in range(WARM_STEPS):
            step()
        wait_for(device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        step()
        wait_for(device)
        self.peak_bytes = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0

    def run(self, seconds: float) -> None:
        """Train for so long, and note the speed."""
        self.rates.append(measure(self.step, seconds, self._device, None)["by_clock"])

    @property
    def rate(self) -> float:
        """Tokens per second, the median of all runs."""
        return statistics.median(self.rates)


def tokens_file(folder: Path, vocabulary_size: int) -> np.memmap:
    """Random tokens on disk."""
    path = folder / f"tokens-{vocabulary_size}"
    if not path.exists():
        numbers = np.random.default_rng(0).integers(0, vocabulary_size, CORPUS_TOKENS, dtype=np.uint16)
        numbers.tofile(path)
    return np.memmap(path, np.uint16, "r")


def own_loop(
    shape: Shape,
    data: np.ndarray,
    device: torch.device,
    *,
    compiled: bool | None = None,
    saving: Saving = NOTHING,
) -> Trainer:
    """The product's model, trainer and inner optimizer."""
    manifest = shape.manifest
    batch, micro_batches = cut_step(manifest, shape.sequences)
    batches = Batches([Split([data])], manifest.model.context_length, batch, manifest.seed, "bench")
    model = GPT(manifest.model).to(device)
    return plain_trainer(model, manifest, (batches, micro_batches), device, compiled=compiled, saving=saving)


def nanogpt_loop(shape: Shape, data: np.ndarray, device: torch.device) -> PlainLoop:
    """The same size in nanoGPT's manner."""
    manifest = shape.manifest
    batch, micro_batches = cut_step(manifest, shape.sequences)
    model = PlainGPT(manifest.model).to(device)
    maybe_compile(model, device)
    return PlainLoop(
        model, manifest.inner, data, (micro_batches, batch, manifest.model.context_length), device
    )


def flops_per_token(manifest: Manifest) -> int:
    """Forward and backward (Chowdhery et al. 2022, "PaLM", appendix B); embeddings that are only looked up
    do not count."""
    model = manifest.model
    with torch.device("meta"):
        sizes = {name: parameter.numel() for name, parameter in GPT(model).named_parameters()}
    looked_up = {"wpe.weight", *(() if model.tie_embeddings else ("wte.weight",))}
    weights = sum(size for name, size in sizes.items() if name not in looked_up)
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


def top_operations(step: Callable[[], int], device: torch.device) -> Mapping[str, float]:
    """Which operations take most of the device's time, each as a part of all."""
    from torch.profiler import ProfilerActivity, profile

    # Watching the CPU too would slow it down, and the device would seem to wait for it.
    activity = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
    with profile(activities=[activity]) as found:
        for _ in range(PROFILED_STEPS):
            step()
        wait_for(device)
    kernels: dict[str, float] = {}
    spans = []
    for event in found.events():
        if str(event.device_type).endswith("CUDA"):
            kernels[event.name] = kernels.get(event.name, 0.0) + event.self_device_time_total
            spans += [event.time_range.start, event.time_range.end]
    total = sum(kernels.values()) or 1.0
    largest = sorted(kernels.items(), key=lambda kernel: -kernel[1])[:OPERATIONS]
    busy = {"busy": round(total / (max(spans) - min(spans)), 4)} if spans else {}
    return busy | {name[:100]: round(spent / total, 4) for name, spent in largest}


def forget() -> None:
    """Free what compiled models hold that nobody has any longer."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
