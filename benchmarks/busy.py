"""How fast oracles train on a machine that others use too, as ratios between three ways to use its cores.

    before    all threads all the time, as PyTorch does by itself, and as every version up to 0.2 did
    now       the number of threads follows what others leave (`dupt_swarm.learning.threads`), the default
    one       one thread, as with --threads 1

Each way trains the preset's model with an oracle's trainer and inner optimizer, without a swarm: alone,
beside one and two programs that compute without end, and as three oracles at once (speeds added up).
Everything is done in short slices in rotating order, because the speed of a machine changes. A slice
begins with all threads, runs for a while unmeasured, in which `now` finds its number, and is then measured.
A slice in which programs that do not belong to the benchmark used more than a tenth of a core does not count.

How to read it: ratios of the median tokens per second, in brackets of the slowest and of the fastest
slices; above 1 means that the first is faster. `others` is the CPU time that the busy programs got ÷ what
they got beside `one`.

    python benchmarks/busy.py [--preset tiny] [--slices 3] [--minutes 6] [--settle 5] [--seconds 2]
        [--file PATH]
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
import numpy as np
import psutil
import torch
from _child import Child, orders, say
from _manifest import speed_manifest
from _processes import cpu_seconds
from _runs import Run, append, file_option
from local_speed import plain_trainer

from dupt_swarm.learning.batches import Batches, cut_step
from dupt_swarm.learning.device import choose_device
from dupt_swarm.learning.threads import Threads
from dupt_swarm.learning.token_files import Split
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.presets import PRESETS

CORPUS_TOKENS = 1 << 20
BATCH_SIZE = 16
ORACLES = 3
WAYS = ("before", "now", "one")
SCENES = {"alone": (1, 0), "beside 1 busy": (1, 1), "beside 2 busy": (1, 2), "3 oracles": (ORACLES, 0)}

STRANGERS_MAX = 0.1  # cores

Turn = tuple[str, str]  # scene, way
Figures = dict[Turn, list[Run]]


def oracle_of(way: str, preset: str) -> Child:
    """A process that trains when told so."""
    environment = os.environ | ({"OMP_NUM_THREADS": "1"} if way == "one" else {})
    return Child([sys.executable, __file__, "--preset", preset, "--worker", way], environment)


@click.command()
@click.option("--preset", type=click.Choice(PRESETS), default="tiny", show_default=True)
@click.option("--slices", type=click.IntRange(1), default=3, show_default=True, help="Quiet ones, of each.")
@click.option("--minutes", type=float, default=6.0, show_default=True, help="Give up on quiet then.")
@click.option("--settle", type=float, default=5.0, show_default=True, help="Unmeasured seconds of a slice.")
@click.option("--seconds", type=float, default=2.0, show_default=True, help="Measured seconds of a slice.")
@click.option("--worker", type=click.Choice(WAYS), hidden=True)
@file_option
def main(
    preset: str,
    slices: int,
    minutes: float,
    settle: float,
    seconds: float,
    worker: str | None,
    file: Path | None,
) -> None:
    """Oracles on a busy machine: adaptive threads ÷ all threads ÷ one thread each."""
    if worker:
        work(worker, preset)
        return
    click.echo(f"{preset}, {platform.platform()}, {psutil.cpu_count()} cores, torch {torch.__version__}")
    with ExitStack() as stack:
        oracles: dict[str, list[Child]] = {way: [] for way in WAYS}
        for way in WAYS:
            for _ in range(ORACLES):
                oracles[way].append(stack.enter_context(oracle_of(way, preset)))
                oracles[way][-1].answer()
        asked = {"preset": preset, "settle": settle, "seconds": seconds}
        show(measure(oracles, slices, time.monotonic() + 60 * minutes, asked, file))


def measure(
    oracles: dict[str, list[Child]], slices: int, deadline: float, asked: Run, file: Path | None
) -> Figures:
    """All ways in all scenes in turn, until each has as many quiet slices as wanted."""
    figures: Figures = {(scene, way): [] for scene in SCENES for way in WAYS}
    tried, settle, seconds = 0, asked["settle"], asked["seconds"]
    while time.monotonic() < deadline and min(map(len, figures.values())) < slices:
        for scene, way in sorted(figures, key=lambda turn: len(figures[turn])):
            if len(figures[scene, way]) == slices or time.monotonic() > deadline:
                continue
            count, busy = SCENES[scene]
            found = run_slice(oracles[way][:count], busy, settle, seconds)
            append(file, asked | {"scene": scene, "way": way} | found)
            tried += 1
            tokens, strangers = found["tokens_per_second"], found["stranger_cores"]
            if strangers <= STRANGERS_MAX:
                figures[scene, way].append(found)
            print(f"{scene}, {way}: {tokens:,.0f} ({strangers:.2f} cores of strangers)", file=sys.stderr)
    quiet = sum(map(len, figures.values()))
    click.echo(f"{quiet} quiet slices of {tried}, {settle:g} + {seconds:g} s each")
    return figures


def run_slice(oracles: list[Child], busy: int, settle: float, seconds: float) -> Run:
    """Tokens per second of these together, cores of the busy programs, and cores of strangers."""
    with busy_programs(busy) as programs:
        for oracle in oracles:
            oracle.tell(settle=settle, seconds=seconds)
        time.sleep(settle)
        began, before, total = time.monotonic(), cpu_seconds(programs), machine_seconds()
        ours = cpu_seconds(psutil.Process().children(recursive=True))
        tokens = sum(oracle.answer()["tokens_per_second"] for oracle in oracles)
        passed = time.monotonic() - began
        used = cpu_seconds(programs) - before
        ours = cpu_seconds(psutil.Process().children(recursive=True)) - ours
        strangers = (machine_seconds() - total - ours) / passed
        return {"tokens_per_second": tokens, "busy_cores": used / passed, "stranger_cores": strangers}


def machine_seconds() -> float:
    """CPU time that all programs have used so far, and that the host of a virtual machine took."""
    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in ("user", "system", "nice", "irq", "softirq", "steal"))


@contextmanager
def busy_programs(count: int) -> Iterator[Sequence[psutil.Process]]:
    """So many programs that compute without end."""
    programs = [psutil.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield programs
    finally:
        for program in programs:
            program.kill()
            program.wait()


def show(figures: Figures) -> None:
    """A line for each scene."""
    for scene, (_, busy) in SCENES.items():
        turns = {way: figures[scene, way] for way in WAYS}
        if not all(turns.values()):
            click.echo(f"{scene}: no quiet slice; try again when the machine is idle")
            continue
        speeds = {way: [each["tokens_per_second"] for each in slices] for way, slices in turns.items()}
        medians = ", ".join(f"{way} {statistics.median(speeds[way]):,.0f}" for way in WAYS)
        line = [f"now/{way}: {ratio(speeds['now'], speeds[way])}" for way in ("before", "one")]
        if busy:
            others = {way: [each["busy_cores"] for each in slices] for way, slices in turns.items()}
            line += [f"others {way}: {ratio(others[way], others['one'])}" for way in ("before", "now")]
        click.echo(f"{scene}: {'; '.join(line)}  [tokens/s here: {medians}]")


def ratio(over: list[float], under: list[float]) -> str:
    """Of the medians, and of the smallest and the largest."""
    quotients = [pick(over) / pick(under) for pick in (statistics.median, min, max)]
    return f"{quotients[0]:.2f} ({quotients[1]:.2f}, {quotients[2]:.2f})"


def work(way: str, preset: str) -> None:
    """Train for the times of each order, first unmeasured; say the tokens per second."""
    trainer, all_threads = build_trainer(preset), torch.get_num_threads()
    trainer.step()
    say(ready=True)
    for order in orders():
        torch.set_num_threads(all_threads)
        threads = Threads(None if way == "now" else all_threads)
        train_for(trainer, threads, order["settle"])
        say(tokens_per_second=train_for(trainer, threads, order["seconds"]))


def train_for(trainer: Trainer, threads: Threads, seconds: float) -> float:
    """Tokens per second over at least ``seconds``."""
    began, tokens = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        threads.adapt()
        tokens += trainer.step().tokens
    return tokens / max(passed, 1e-9)


def build_trainer(preset: str) -> Trainer:
    """An oracle's trainer with its inner optimizer, on random tokens."""
    manifest, device = speed_manifest(preset), choose_device("cpu")
    batch, micro_batches = cut_step(manifest, BATCH_SIZE)
    model = GPT(manifest.model).to(device)
    size = manifest.model.vocabulary_size
    tokens = np.random.default_rng(0).integers(0, size, CORPUS_TOKENS, dtype=np.uint16)
    batches = Batches([Split([tokens])], manifest.model.context_length, batch, manifest.seed, "busy")
    return plain_trainer(model, manifest, (batches, micro_batches), device)


if __name__ == "__main__":
    main()
