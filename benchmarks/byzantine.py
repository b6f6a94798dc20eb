"""What can members do who want the model to be worse? Attacks against rules of aggregation, and a vote.

Eight or sixteen members with disjoint corpora (those of `convergence`, in halves or quarters), of which
none, some or nearly half attack; contributions have two bits per value, as presets that share have them. All
arithmetic is the product's, without a network: see `_besieged`, and `_attacks` for what attackers send.
Only two rules of those compared are not (`_other_rules`). `plain` is the mean as 0.2 had it, screened part by
part.

Each run is a line of JSON. A run that FILE has already is not repeated, so that a series can be stopped:

    PYTHONPATH=. python benchmarks/byzantine.py run --file siege.jsonl
    PYTHONPATH=. python benchmarks/byzantine.py run --rules mean --members 16 --attackers 7 --vote
        --file siege.jsonl
    PYTHONPATH=. python benchmarks/byzantine.py table siege.jsonl
    PYTHONPATH=. python benchmarks/byzantine.py cost

How to read the table: the loss on held-out documents of all corpora ÷ that of the honest members alone with
the plain mean. 1.00 means that the attack did nothing; in brackets the rounds that the vote rejected. `cost`
has the time of each rule ÷ that of the plain mean.
"""

from __future__ import annotations

import tempfile
import time
from functools import cache, partial
from pathlib import Path
from typing import Any

import click
import torch
from _arms import ARMS
from _attacks import ATTACKS
from _besieged import PLAIN, Siege, Swarm
from _figures import head, row
from _manifest import changes_option, manifest_of, parsed
from _other_rules import ALL_RULES
from _rule_cost import print_costs
from _runs import read, run_once
from _swarm_arithmetic import drawn_state
from _texts import Texts, prepare_texts
from convergence import held_out, sources

from dupt_swarm.learning.batches import held_out_batches

RULES = (PLAIN, *ALL_RULES)
NONE = "none"
# 0.4 million weights, and steps of 512 tokens.
SHAPE: dict[str, Any] = {
    "model.vocabulary_size": 512,
    "model.context_length": 64,
    "model.layers": 3,
    "model.heads": 3,
    "model.width": 96,
    "model.hidden_width": 384,
    "rounds.tokens_per_step": 512,
    "rounds.tokens_per_round": 10_240,
    "rounds.exchange": "share",
}
VOTE_BLOCKS = 16
POINTS = 2
NAMED = (
    "attack",
    "rule",
    "members",
    "attackers",
    "vote",
    "steps",
    "changes",
    "seed",
)  # what makes a run another


@click.group()
def main() -> None:
    """Attacks against rules of aggregation."""


@main.command()
@click.option("--attacks", default=",".join(ATTACKS), show_default=True)
@click.option("--rules", default=",".join(RULES), show_default=True)
@click.option("--members", type=click.IntRange(8, 16), default=8, show_default=True)
@click.option("--attackers", type=click.IntRange(0, 7), default=3, show_default=True)
@click.option("--vote/--no-vote", default=False, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=64, show_default=True, help="Of each member.")
@changes_option
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--file", type=click.Path(path_type=Path), default=Path("byzantine.jsonl"), show_default=True)
def run(attacks: str, rules: str, changes: tuple[str, ...], file: Path, **chosen: Any) -> None:
    """Run each attack against each rule, and the honest members alone, with whom they are compared."""
    pairs = [(NONE, PLAIN), *((attack, rule) for attack in attacks.split(",") for rule in rules.split(","))]
    for attack, rule in pairs:
        about = {"attack": attack, "rule": rule, "changes": " ".join(changes), **chosen}
        if attack == NONE and rule == PLAIN:
            about |= {"changes": "", "vote": False}
        run_once(file, about, partial(besiege, about))


@main.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True))
def table(file: Path) -> None:
    """Final losses ÷ those of the honest alone, as a Markdown table."""
    runs = {tuple(line[key] for key in NAMED): line for line in read(file)}
    chosen = ("members", "attackers", "vote", "steps", "seed")
    rules = list(dict.fromkeys((line["rule"], line["changes"]) for line in runs.values()))
    click.echo(head([*chosen, "attack", *(" ".join(rule).strip() for rule in rules)]))
    for *about, attack in sorted({tuple(line[key] for key in (*chosen, "attack")) for line in runs.values()}):
        cells = [_cell(runs, dict(zip(chosen, about, strict=True)), attack, *rule) for rule in rules]
        click.echo(row([*map(str, about), attack, *cells]))


@main.command()
@click.option("--values", type=click.IntRange(1), default=124_000_000, show_default=True)
@click.option("--members", type=click.IntRange(1), default=8, show_default=True)
@click.option("--turns", type=click.IntRange(1), default=3, show_default=True)
@click.option("--codec", default="two_bit", show_default=True)
def cost(values: int, members: int, turns: int, codec: str) -> None:
    """The processor time of each rule ÷ that of the plain mean, measured in turns."""
    print_costs(values, members, turns, codec)


def _cell(
    runs: dict[Any, dict[str, Any]], about: dict[str, Any], attack: str, rule: str, changes: str
) -> str:
    def find(**named: Any) -> dict[str, Any] | None:
        return runs.get(tuple((about | named)[key] for key in NAMED))

    found = find(attack=attack, rule=rule, changes=changes)
    reference = find(attack=NONE, rule=PLAIN, changes="", vote=False)
    if found is None or reference is None:
        return "–"
    rejected = f" ({found['rejected']} of {found['rounds']})" if about["vote"] else ""
    return f"{found['curve'][-1] / reference['curve'][-1]:.3f}{rejected}"


def besiege(about: dict[str, Any]) -> dict[str, Any]:
    """One run: the losses at half of the steps and at the end, and what became of the rounds."""
    rule, members, attackers = about["rule"], about["members"], about["attackers"]
    changes = SHAPE | parsed(about["changes"].split())
    tables = ARMS["tiny-2bit"].tables(changes)
    texts = texts_of(members, about["seed"])
    manifest = manifest_of(tables, texts.tokenizer, seed=about["seed"])
    # Every second member attacks, so that each kind of text is left to somebody honest.
    honest = [place for place in range(members) if place % 2 == 0 or place >= 2 * attackers]
    blocks = [list(held_out_batches(c.held_out, 64, 1, VOTE_BLOCKS)) for c in texts.corpora.values()]
    batches = sources(manifest, texts, 1)
    siege = Siege(about["attack"], 0 if about["attack"] == NONE else attackers, rule, about["vote"])
    swarm = Swarm.begin(
        manifest,
        siege,
        drawn_state(manifest).anchor,
        [batches[place] for place in honest],
        [blocks[place] for place in honest],
    )
    began, steps, rounds, curve = time.process_time(), 0, 0, list[float]()
    while steps < about["steps"]:
        steps += swarm.end_round(rounds)
        rounds += 1
        while len(curve) < POINTS and POINTS * steps >= about["steps"] * (len(curve) + 1):
            curve.append(held_out(manifest, texts, swarm.state.anchor)[0])
    seconds = round(time.process_time() - began)
    click.echo(f"{about}: {curve[-1]:.4f}, {seconds} s", err=True)
    about = {"curve": curve, "rounds": rounds, "rejected": swarm.rejected, "cpu_seconds": seconds}
    return about | {"seconds": dict(swarm.seconds)}


@cache
def texts_of(members: int, seed: int) -> Texts:
    """The corpora of so many members."""
    folder = tempfile.TemporaryDirectory(prefix="dupt-bench-")
    _kept.append(folder)  # the tokens are read from there; it goes when the program ends
    return prepare_texts(
        Path(folder.name), SHAPE["model.vocabulary_size"], SHAPE["model.context_length"], seed, members // 8
    )


_kept: list[tempfile.TemporaryDirectory[str]] = []


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
