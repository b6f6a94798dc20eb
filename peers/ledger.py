"""``dupt-peer ledger``: who has given what, by the chain of rounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.printable import one_line
from dupt_swarm.errors import UsageError
from dupt_swarm.replica.ledger import SOUGHT_MIN, Entry, Ledger
from dupt_swarm.settings import NodeSettings
from peers import options
from peers.screen.words import plural

if TYPE_CHECKING:
    from rich.table import Table


@click.command("ledger")
@options.initial_peers
@click.option("--peer", "sought", default="", metavar="ID", help="Only this peer: its id, or the end of it.")
@click.option(
    "--top", type=click.IntRange(1), default=20, show_default=True, help="How many to list; --json has all."
)
@options.swarm_id
@options.invitation
@options.as_json
@command_errors
def command(
    initial_peers: tuple[str, ...], sought: str, top: int, swarm_id: str, invitation: str, as_json: bool
) -> None:
    """Show who has given what to a swarm, ever: tokens and rounds, by the signed links of all rounds.

    Each link is verified. How many tokens a contribution stands for is as its maker has stated it, within the
    swarm's limits; names are those that peers give themselves now.
    """
    from dupt_swarm.discovery import observe

    if sought and len(sought) < SOUGHT_MIN:
        raise UsageError(f"give a peer's id, or at least the last {SOUGHT_MIN} characters", setting="sought")
    settings = NodeSettings("observer", swarm_id=swarm_id, invitation=invitation)
    node, manifest = observe(initial_peers, settings)
    with node:
        ledger = node.ledger()
        names = {peer.peer_id: one_line(peer.record.name) for peer in node.refresh().peers}
    peer_id = _peer(ledger, sought)
    if as_json:
        click.echo(json.dumps(to_json(manifest.swarm_id, ledger, names, peer_id), indent=2))
        return
    from peers.screen.table import stdout_console

    console = stdout_console()
    since = f", since round {ledger.begins:,}: nobody asked tells what was before" if ledger.begins else ""
    weak = f", {ledger.weak:,} of the rounds weak" if ledger.weak else ""
    console.print(
        f"swarm [bold]{manifest.swarm_id}[/]   round {ledger.round:,}   {ledger.tokens:,} tokens of "
        f"{plural(ledger.contributors, 'peer')}{weak}{since}"
    )
    console.print(table(ledger, names, peer_id, top))
    if not peer_id and len(ledger.entries) > top:
        console.print(f"and {len(ledger.entries) - top:,} more; --top {len(ledger.entries)} lists all")


def _peer(ledger: Ledger, sought: str) -> str:
    """The id that is meant, if any.

    Raises:
        UsageError: no contribution of such a peer was ever brought.
    """
    if not sought:
        return ""
    found = ledger.find(sought)
    if found is None:
        raise UsageError(
            f"nothing of a peer {sought} is in the rounds; look at its id again", setting="sought"
        )
    return found.peer_id


def to_json(swarm_id: str, ledger: Ledger, names: Mapping[str, str], peer_id: str = "") -> dict[str, object]:
    """The whole ledger, or the part of one peer."""
    return {
        "swarm_id": swarm_id,
        "begins": ledger.begins,
        "round": ledger.round,
        "weak": ledger.weak,
        "tokens": ledger.tokens,
        "peers": [
            {"place": place if entry.rounds else None, "name": names.get(entry.peer_id, ""), **asdict(entry)}
            for place, entry in enumerate(ledger.entries, 1)
            if peer_id in ("", entry.peer_id)
        ],
    }


def table(ledger: Ledger, names: Mapping[str, str], peer_id: str, top: int) -> Table:
    """A row for each peer."""
    from peers.screen.table import build_table

    rows = enumerate(ledger.entries, 1)
    listed = [(place, each) for place, each in rows if peer_id in ("", each.peer_id)]
    numbers = ("tokens", "of all", "rounds", "dropped", "first", "last")
    return build_table(
        ("place", "name", "peer", *numbers),
        [_cells(place, each, ledger.tokens, names) for place, each in listed[:top]],
        right=("place", *numbers),
        wrapped=("name",),
    )


def _cells(place: int, entry: Entry, tokens: int, names: Mapping[str, str]) -> tuple[str, ...]:
    return (
        f"{place:,}" if entry.rounds else "–",
        names.get(entry.peer_id, "") or "–",
        entry.peer_id[-8:],
        f"{entry.tokens:,}",
        f"{entry.tokens / tokens:.1%}" if tokens else "–",
        f"{entry.rounds:,}",
        f"{entry.dropped:,}",
        f"{entry.first_round:,}" if entry.rounds else "–",
        f"{entry.last_round:,}" if entry.rounds else "–",
    )
