"""What oracles make of a GPU, as ratios between arms that take turns; a line of JSON for each part.

    checks   that it computes what a CPU computes
    loops    tokens per second of the product's model and trainer, and its model FLOP utilisation: FLOP per
             token (Chowdhery et al. 2022, "PaLM", appendix B) × tokens per second ÷ the rate of a product of
             two 8192 × 8192 matrices in bf16, measured in the same run
    items    a model as it ships ÷ with one thing changed, and ÷ a loop in nanoGPT's manner
    profile  the operations that take most of the device's time
    swarm    two oracles on the one device, with all that they do after their first half hour, ÷ the same two
             training without a swarm

    python benchmarks/gpu.py [--parts loops,items,profile,swarm] [--file gpu.jsonl]

Without a GPU it runs the smallest models on the CPU (`--small`), to show that all of it works.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import torch
from _child import Child
from _figures import ratio
from _gpu_checks import check
from _gpu_item import AS_IT_SHIPS, ITEMS, NANOGPT
from _gpu_loops import (
    Loop,
    Shape,
    flops_per_token,
    forget,
    matrix_product_rate,
    own_loop,
    tokens_file,
    top_operations,
)
from _manifest import with_tokenizer
from _runs import append, file_option
from _solitary import first_peer
from _texts import tokenizer_of, write_four

from dupt_swarm.learning.device import choose_device
from dupt_swarm.manifest import Manifest

SHAPES = {
    "gpt1": Shape("gpt1", None, 64),
    "llama-160m": Shape("llama", "160m", 16),
    "llama-1b": Shape("llama", "1b", 4),
}
SMALL = {"tiny": Shape("tiny", None, 16)}
PARTS = ("checks", "loops", "items", "profile", "swarm")
ITEM_BYTES = 18 << 30  # of the first model in its steps, as measured

Facts = dict[str, Any]


@click.command()
@click.option("--parts", default=",".join(PARTS), show_default=True)
@click.option("--models", default=None, help="Of the loops. [default: all]")
@click.option("--seconds", type=float, default=3.0, show_default=True, help="Length of a slice.")
@click.option("--slices", type=click.IntRange(1), default=3, show_default=True)
@click.option("--device", "name", default="auto", show_default=True)
@click.option("--small", is_flag=True, help="The smallest models.")
@file_option
def main(
    parts: str, models: str | None, seconds: float, slices: int, name: str, small: bool, file: Path | None
) -> None:
    """What oracles make of a GPU."""
    device = choose_device(name)
    shapes = SMALL if small else SHAPES
    if models:
        shapes = {model: shapes[model] for model in models.split(",")}
    found: Facts = card(device)
    with tempfile.TemporaryDirectory(prefix="dupt-gpu-") as folder:
        place = Path(folder)
        if device.type == "cuda":
            found["product_flop_per_second"] = matrix_product_rate()
        work: dict[str, Callable[[], Facts]] = {
            "loops": lambda: loops(shapes, place, device, seconds, slices, found),
            "checks": lambda: dict(check(next(iter(shapes.values())).manifest, device)),
            "items": lambda: items(shapes, place, device, seconds, slices, found),
            "profile": lambda: profiles(shapes, place, device),
            "swarm": lambda: swarm(next(iter(shapes.values())), place, device, seconds, slices),
        }
        for part in parts.split(","):
            began = time.monotonic()
            try:
                row = work[part]()
            except Exception as error:  # what else there is to find is not to be lost
                row = {"error": f"{type(error).__name__}: {error}"[:2000]}
            row["took_seconds"] = round(time.monotonic() - began, 1)
            click.echo(json.dumps({part: row}, indent=1))
            append(file, found | {part: row})


def card(device: torch.device) -> Facts:
    """What it is, and Python's version."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    return {"device": f"{device}", "card": name, "python": platform.python_version()}


def loops(
    shapes: dict[str, Shape], folder: Path, device: torch.device, seconds: float, slices: int, found: Facts
) -> Facts:
    """Each model, as it ships."""
    facts: Facts = {}
    for name, shape in shapes.items():
        manifest = shape.manifest
        data = tokens_file(folder, manifest.model.vocabulary_size)
        trainer = own_loop(shape, data, device)
        loop = Loop(lambda trainer=trainer: trainer.step().tokens, device)  # type: ignore[misc]
        for _ in range(slices):
            loop.run(seconds)
        facts[name] = {"tokens_per_second": round(loop.rate), "peak_gib": round(loop.peak_bytes / 2**30, 2)}
        if "product_flop_per_second" in found:
            facts[name]["mfu"] = mfu(loop.rate, manifest, found)
        click.echo(json.dumps({name: facts[name]}))
        del loop, trainer
        forget()
    return facts


def items(
    shapes: dict[str, Shape], folder: Path, device: torch.device, seconds: float, slices: int, found: Facts
) -> Facts:
    """The first model as it ships ÷ with one thing changed, each in a process of its own."""
    name, shape = next(iter(shapes.items()))
    tokens_file(folder, shape.manifest.model.vocabulary_size)
    about = (shape.preset, shape.size or "", str(shape.sequences), folder, str(device))
    alike = shape.manifest.model.positions == "learned"  # as nanoGPT's are
    names = [item for item in ITEMS if alike or item != NANOGPT]
    # As many as have room warm up at once; then each gives back what it needs for its steps only.
    rooms = 1
    if device.type == "cuda":
        rooms = max(1, torch.cuda.get_device_properties(device).total_memory // ITEM_BYTES)
    with ExitStack() as stack:
        arms: dict[str, Child] = {}
        facts: Facts = {}
        for first in range(0, len(names), rooms):
            some = names[first : first + rooms]
            arms |= {item: stack.enter_context(child("_gpu_item.py", *about, item)) for item in some}
            facts |= {item: {"peak_gib": round(arms[item].answer()["peak_gib"], 2)} for item in some}
        facts["sequences at once"] = shape.sequences
        rates: dict[str, list[float]] = {item: [] for item in arms}
        for _ in range(slices):
            for item, arm in arms.items():
                arm.tell(seconds=seconds)
                rates[item].append(round(arm.answer()["rate"]))
        for arm in arms.values():
            arm.end()
    for item in rates:
        facts[item][f"{AS_IT_SHIPS} ÷ this"] = ratio(rates[AS_IT_SHIPS], rates[item], 3)
        facts[item]["tokens_per_second"] = rates[item]
    if "product_flop_per_second" in found:
        rate = statistics.median(rates[AS_IT_SHIPS])
        facts[AS_IT_SHIPS]["mfu"] = mfu(rate, shape.manifest, found)
    return {name: facts}


def mfu(rate: float, manifest: Manifest, found: Facts) -> float:
    """Model FLOP utilisation."""
    return round(rate * flops_per_token(manifest) / float(found["product_flop_per_second"]), 3)


def profiles(shapes: dict[str, Shape], folder: Path, device: torch.device) -> Facts:
    """What takes the device's time in the first model's steps."""
    name, shape = next(iter(shapes.items()))
    trainer = own_loop(shape, tokens_file(folder, shape.manifest.model.vocabulary_size), device)
    loop = Loop(lambda: trainer.step().tokens, device)
    return {name: dict(top_operations(loop.step, device))}


def swarm(shape: Shape, folder: Path, device: torch.device, seconds: float, slices: int) -> Facts:
    """Two oracles and a first peer."""
    texts = write_four(folder / "texts")[:2]
    tokenizer = tokenizer_of(folder / "texts", 2000)
    manifest = with_tokenizer(shape.manifest, tokenizer)
    with ExitStack() as stack:
        first = stack.enter_context(first_peer(manifest, tokenizer.to_bytes(), folder / "first"))
        peers = [
            stack.enter_context(
                child("_gpu_peer.py", first.addresses[0], folder / f"peer-{text.name}", text, str(device))
            )
            for text in texts
        ]
        sequences = [one.answer()["sequences"] for one in peers]
        click.echo(f"two oracles train, {sequences} sequences at once", err=True)
        turns: dict[str, list[list[Facts]]] = {"plain": [], "oracle": []}
        for _ in range(slices):
            for way, order in (("plain", {"seconds": seconds}), ("oracle", {"rounds": 2})):
                for one in peers:
                    one.tell(**order)
                turns[way].append([one.answer() for one in peers])
                click.echo(json.dumps({way: turns[way][-1]}), err=True)
        for one in peers:
            one.end()
    rates = {
        way: [sum(found["tokens"] / found["seconds"] for found in turn) for turn in made]
        for way, made in turns.items()
    }
    return {
        "oracles/plain": ratio(rates["oracle"], rates["plain"], 3),
        "tokens_per_second": {way: round(statistics.median(made)) for way, made in rates.items()},
        "sequences": sequences,
        "turns": turns,
    }


def child(script: str, *arguments: str | Path) -> Child:
    """A process of a script of this folder."""
    return Child([sys.executable, Path(__file__).with_name(script), *arguments])


if __name__ == "__main__":
    main()
