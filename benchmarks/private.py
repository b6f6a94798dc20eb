"""What does privacy cost? None, one or all of four or eight oracles contribute with clipping and noise.

The corpora, the model and the arithmetic are those of `byzantine.py`, without attackers: see `_besieged`.
What a private oracle does to its contribution, and ε, are the product's (`dupt_swarm.privacy`). With
`--absent` the private oracles are left out altogether: what the others reach without them.

Each run is a line of JSON. A run that FILE has already is not repeated, so that a series can be stopped:

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/private.py run --private 0,1,4
        --noise 0.001,0.01,0.1,1,10
    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/private.py table private.jsonl
    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/private.py norms
    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/private.py cost

How to read the table: the loss on held-out documents of all corpora ÷ that of the same oracles when none is
private, after as many steps of each; and ε of one private oracle after all rounds. `norms` has the norms of
contributions ÷ the one that the manifest lets expect, by which `--private-clip` is chosen. `cost` has the
time that privacy takes ÷ that of encoding.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from _arms import ARMS
from _besieged import Siege, Swarm
from _runs import read, row, run_once
from _swarm_arithmetic import Learner
from byzantine import SHAPE, texts_of
from convergence import build_manifest, held_out, sources
from torch import Tensor

from dupt_swarm.learning.batches import Batches
from dupt_swarm.learning.decoder.gpt import GPT
from dupt_swarm.learning.strategies.flat import flatten
from dupt_swarm.manifest import Encoding, Manifest
from dupt_swarm.privacy.accountant import epsilon
from dupt_swarm.privacy.gaussian import privatize
from dupt_swarm.privacy.mechanism import Mechanism, Open, Private
from dupt_swarm.privacy.scale import scale
from dupt_swarm.replica.codec import build_codec
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.settings import PrivacySettings
from tests.support.vectors import encode_parts

NAMED = ("members", "private", "absent", "rule", "noise", "clip", "steps", "seed")  # what makes a run another
PEACE = Siege("none", 0, plain=False, vote=False)


class PrivateLearner(Learner):
    """An oracle whose contributions go through a mechanism before they are encoded."""

    def __init__(self, manifest: Manifest, anchor: Tensor, batches: Batches, mechanism: Mechanism) -> None:
        super().__init__(manifest, anchor, batches)
        self.mechanism, self.round = mechanism, 0
        self.norms: list[float] = []

    def contribute(self) -> bytes:
        """See `Learner`; the norm, ÷ the one expected, is noted."""
        self.strategy.mark()
        values = self.strategy.contribute()
        expected = scale(self._manifest, self.round, values.numel())
        self.norms.append(float(values.norm()) / expected)
        self.mechanism.release(values, self.round)
        self.round += 1
        return self._feedback.encode(values)


@click.group()
def main() -> None:
    """The cost of privacy."""


def _series(kind: type[Any]) -> Any:
    return lambda _context, _option, text: [kind(each) for each in text.split(",")]


@main.command()
@click.option("--members", type=click.Choice(["4", "8"]), default="4", show_default=True)
@click.option("--private", "privates", default="0,1,4", callback=_series(int), show_default=True)
@click.option("--absent/--present", default=False, show_default=True)
@click.option("--rules", default="mean,agreeing_mean", callback=_series(str), show_default=True)
@click.option("--noise", "noises", default="0.001,0.01,0.1,1,10", callback=_series(float), show_default=True)
@click.option("--clip", type=float, default=PrivacySettings.clip, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=64, show_default=True, help="Of each oracle.")
@click.option("--seeds", default="0", callback=_series(int), show_default=True)
@click.option("--file", type=click.Path(path_type=Path), default=Path("private.jsonl"), show_default=True)
def run(
    members: str,
    privates: list[int],
    rules: list[str],
    noises: list[float],
    seeds: list[int],
    file: Path,
    **chosen: Any,
) -> None:
    """Run each combination that FILE does not have yet."""
    for seed in seeds:
        for rule in rules:
            for private in privates:
                for noise in noises if private and not chosen["absent"] else [0.0]:
                    about = {"members": int(members), "private": private, "rule": rule, "noise": noise}
                    about |= {"seed": seed, **chosen}
                    run_once(file, about, partial(train, about))


@main.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True))
def table(file: Path) -> None:
    """Final losses ÷ those without privacy, as a Markdown table; each the mean over the seeds."""
    runs = {tuple(line[key] for key in NAMED): line for line in read(file)}
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in runs.values():
        if line["private"]:
            groups.setdefault(tuple(line[key] for key in NAMED[:-1]), []).append(line)
    click.echo(row(["oracles", "private", "rule", "noise", "clip", "steps", "ε", "loss", "seeds"]))
    click.echo(row(["---"] * 9))
    for (members, private, absent, rule, noise, clip, steps), lines in sorted(groups.items()):
        ratios = [line["loss"] / _open(runs, line)["loss"] for line in lines]
        shown = ["absent", "–"] if absent else [f"{noise:g}", f"{clip:g}"]
        spent = "–" if absent else f"{lines[0]['epsilon']:.3g}"
        seeds = ", ".join(str(line["seed"]) for line in lines)
        mean = f"{statistics.mean(ratios):.3f}"
        click.echo(row([str(members), str(private), rule, *shown, str(steps), spent, mean, seeds]))


@main.command()
@click.option("--steps", type=click.IntRange(1), default=64, show_default=True)
def norms(steps: int) -> None:
    """Norms of contributions ÷ those expected: the smallest, the median and the largest of each round."""
    about = {"members": 4, "private": 0, "absent": False, "rule": "mean", "noise": 0.0, "clip": 1.0}
    found = train(about | {"steps": steps, "seed": 0})["norms"]
    click.echo(row(["round", "smallest", "median", "largest"]))
    click.echo(row(["---"] * 4))
    for number, values in enumerate(found):
        three = (min(values), statistics.median(values), max(values))
        click.echo(row([str(number), *(f"{value:.3f}" for value in three)]))


@main.command()
@click.option("--values", type=click.IntRange(1), default=10_000_000, show_default=True)
@click.option("--turns", type=click.IntRange(1), default=3, show_default=True)
def cost(values: int, turns: int) -> None:
    """Processor time of clipping and noise ÷ that of encoding in two bits, measured in turns."""
    codec, given = build_codec("two_bit", Encoding()), torch.randn(values)
    spent: dict[str, list[float]] = {"privacy": [], "encoding": []}
    for _ in range(turns):
        began = time.process_time()
        privatize(given, 1.0, 10.0)
        between = time.process_time()
        encode_parts(codec, given)
        spent["privacy"].append(between - began)
        spent["encoding"].append(time.process_time() - between)
    ratio = statistics.median(spent["privacy"]) / statistics.median(spent["encoding"])
    click.echo(f"clipping and noise ÷ encoding in two bits: {ratio:.1f}")


def _open(runs: dict[tuple[Any, ...], dict[str, Any]], line: dict[str, Any]) -> dict[str, Any]:
    """The run that this one is compared with."""
    same = ("members", "rule", "steps", "seed")
    return next(
        other
        for other in runs.values()
        if not other["private"] and all(other[key] == line[key] for key in same)
    )


def train(about: dict[str, Any]) -> dict[str, Any]:
    """One run: the loss at the end, ε, and each round's norms ÷ those expected."""
    tables = ARMS["tiny-2bit"].tables(SHAPE | {"aggregation.rule": about["rule"]})
    texts = texts_of(about["members"], about["seed"])
    manifest = build_manifest(tables, texts, about["seed"])
    first = GPT(manifest.model)
    first.init_weights(about["seed"])
    anchor = flatten(list(first.parameters()))
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="dupt-bench-") as folder:
        learners = _learners(manifest, anchor, sources(manifest, texts, 1), about, Path(folder))
        shapes = [parameter.detach() for parameter in learners[0].parameters]
        state = ReplicaState.initial(shapes, build_outer(manifest).buffer_names)
        swarm = Swarm(manifest, PEACE, list(learners), [], state)
        steps = rounds = 0
        while steps < about["steps"]:
            steps += swarm.end_round(rounds)
            rounds += 1
    loss = held_out(manifest, texts, swarm.state.anchor)[0]
    made = {about["noise"]: rounds} if about["noise"] else {}
    spent = epsilon(made, PrivacySettings.delta)
    click.echo(f"{about}: {loss:.4f}, {round(time.process_time() - began)} s", err=True)
    told = [list(values) for values in zip(*(learner.norms for learner in learners), strict=True)]
    return {"loss": loss, "epsilon": spent, "rounds": rounds, "norms": told}


def _learners(
    manifest: Manifest, anchor: Tensor, batches: list[Batches], about: dict[str, Any], folder: Path
) -> list[PrivateLearner]:
    """The oracles; the last ones are private, or not there."""
    others = len(batches) - about["private"]
    found = []
    for place, own in enumerate(batches[:others] if about["absent"] else batches):
        mechanism: Mechanism = Open()
        if place >= others:
            settings = PrivacySettings(noise=about["noise"], clip=about["clip"])
            mechanism = Private(settings, manifest, anchor.numel(), folder / str(place))
        found.append(PrivateLearner(manifest, anchor, own, mechanism))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
