"""``dupt-peer audit``: past rounds, computed again."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.printable import one_line
from dupt_swarm.settings import NodeSettings
from peers import options
from peers.interruption import Interruption
from peers.screen.progress import show_download


@click.command("audit")
@options.initial_peers
@click.option(
    "--rounds", type=click.IntRange(1), default=None, help="The last so many. [default: all that peers keep]"
)
@options.looking
@options.as_json
@command_errors
def command(initial_peers: tuple[str, ...], rounds: int | None, as_json: bool, **chosen: Any) -> None:
    """Compute past rounds of a swarm again, from the contributions that its peers keep.

    It says of each round whether it leads to the state that the swarm claims: `equal`, `differs`, or `no
    longer held` where peers do not keep what is needed. Exit code 1 if any differs.
    """
    with Interruption() as interruption:
        from dupt_swarm.models.auditing import audit

        settings = options.pick(NodeSettings, chosen, role="observer")
        with show_download("fetching an old state") as show:
            found = audit(initial_peers, rounds, settings, show)
    interruption.exit_if_received()
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
    else:
        for each in found:
            reason = f" ({one_line(each.reason)})" if each.reason else ""
            click.echo(f"round {each.round}: {each.verdict}{reason}, state {each.state_digest[:12]}")
    if any(each.verdict == "differs" for each in found):
        sys.exit(1)
