"""``dupt-model pull``: the newest model of a swarm, without training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.command_line.printable import one_line
from dupt_swarm.replica.chain_file import beginning_in
from dupt_swarm.settings import NodeSettings
from peers import options
from peers.interruption import Interruption
from peers.screen.progress import show_download

if TYPE_CHECKING:
    from dupt_swarm.models.saved_model import SavedModel


@click.command("pull")
@click.argument("folder", metavar="DIR", type=UserPath(path_type=Path))
@options.initial_peers
@click.option(
    "--round",
    type=click.IntRange(0),
    default=None,
    help="The state after so many rounds, while a peer still gives it. [default: the newest]",
)
@options.looking
@options.as_json
@command_errors
def command(
    folder: Path, initial_peers: tuple[str, ...], round: int | None, as_json: bool, **chosen: Any
) -> None:
    """Fetch the newest model that a swarm agrees on into DIR, checked by its digest.

    It comes from all peers that hold it at once, and with it the chain of rounds for `dupt-model verify`.
    Nothing is published and no port is needed; DIR must be empty or not there yet.
    """
    with Interruption() as interruption:
        from dupt_swarm.models.pulling import pull

        settings = options.pick(NodeSettings, chosen, role="observer")
        with show_download("fetching the model") as show:
            model = pull(initial_peers, folder, round, settings, show)
    interruption.exit_if_received()
    assert model.origin is not None
    _tell_what_is_missing(model)
    if as_json:
        click.echo(json.dumps({"folder": str(folder), **model.origin.to_json()}))
        return
    origin = model.origin
    click.echo(
        f"{folder}: swarm {origin.swarm_id} at round {origin.round}, {origin.swarm_tokens:,} tokens, "
        f"state {origin.state_digest[:12]}"
    )
    for found in (*origin.evaluations, *origin.tasks):
        click.echo(one_line(f"  {found}"))


def _tell_what_is_missing(model: SavedModel) -> None:
    if model.chain is None:
        click.echo(
            "note: no peer told the chain of rounds; `dupt-model verify` has nothing to check", err=True
        )
    elif begins := beginning_in(model.chain).round:
        click.echo(f"note: no peer told the chain of rounds before round {begins}; it begins there", err=True)
