"""``dupt-model verify``: whether the rounds of its swarm lead to a model."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.fields import DIGEST
from peers import options
from peers.screen.words import plural

if TYPE_CHECKING:
    from dupt_swarm.models.verifying import Verified

SHOWN_MAX = 10


def _digest(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if value and not DIGEST.fullmatch(value):
        raise click.BadParameter("not a digest: 64 hexadecimal digits, in lower case")
    return value


@click.command("verify")
@click.argument("model", type=UserPath(path_type=Path))
@click.option(
    "--initial-digest",
    default="",
    metavar="DIGEST",
    callback=_digest,
    help="Of the state of round 0, if the manifest names none. [default: the one that its seed draws here]",
)
@options.as_json
@command_errors
def command(model: Path, initial_digest: str, as_json: bool) -> None:
    """Check MODEL by the chain of its swarm's rounds: needs no network.

    Each signature is checked, and each round by those who decided it, from the first state to MODEL's own. It
    does not compute the rounds again; `dupt-peer audit` does.
    """
    from dupt_swarm.models.verifying import verify

    found = verify(model, initial_digest)
    for each in found.unchecked:
        click.echo(f"warning: not checked: {each}", err=True)
    if as_json:
        click.echo(json.dumps({"model": str(model), **asdict(found)}, indent=2))
        return
    for line in _lines(model, found):
        click.echo(line)


def _lines(model: Path, found: Verified) -> list[str]:
    weak, peers = found.weak_rounds, found.contributors
    facts = {
        "rounds": f"{found.begins:,} to {found.round:,}",
        "links": f"{found.links - len(weak):,} strong, {len(weak):,} weak{_rounds(weak)}",
        "tokens": f"{found.tokens:,}",
        "state": found.state_digest,
        "peers": f"{plural(len(peers), 'peer')} contributed",
    }
    lines = [f"{model}: verified, of swarm {found.swarm_id}"]
    lines += [f"  {name:<8} {fact}" for name, fact in facts.items()]
    lines += [
        f"    {each.peer_id}: {plural(each.rounds, 'round')}, {each.tokens:,} tokens"
        for each in peers[:SHOWN_MAX]
    ]
    return lines + ([f"    and {len(peers) - SHOWN_MAX:,} more"] if len(peers) > SHOWN_MAX else [])


def _rounds(weak: tuple[int, ...]) -> str:
    if not weak:
        return ""
    shown = ", ".join(f"{each:,}" for each in weak[:SHOWN_MAX])
    return f" (to round {shown}{', …' if len(weak) > SHOWN_MAX else ''})"
