"""``dupt-peer join``: an oracle that trains on its own corpus."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dupt_swarm.command_line import command_errors
from dupt_swarm.settings import LISTEN_EVERYWHERE, NodeSettings, OracleSettings
from peers import options
from peers.addresses import address_options
from peers.interruption import Interruption

if TYPE_CHECKING:
    from dupt_swarm.oracle import Oracle, Status


@click.command("join")
@options.initial_peers
@click.option(
    "--corpus",
    required=True,
    metavar="PATH",
    help="File, folder or glob of .txt .md .rst .py .jsonl .parquet, also .gz. It never leaves this machine.",
)
@click.option(
    "--field", default="text", show_default=True, help="Key of .jsonl, column of .parquet with the text."
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, mps.")
@click.option(
    "--batch-size", type=click.IntRange(1), default=16, show_default=True, help="Sequences at once at most."
)
@click.option("--compile/--no-compile", default=None, help="Use torch.compile. [default: on CUDA]")
@click.option("--rounds", type=click.IntRange(1), default=None, help="Stop after so many rounds.")
@click.option(
    "--checkpoint-seconds",
    type=click.FloatRange(1),
    default=300.0,
    show_default=True,
    help="How often to save.",
)
@options.swarm_id
@address_options(LISTEN_EVERYWHERE)
@options.state_dir
@options.name
@options.as_json
@command_errors
def command(initial_peers: tuple[str, ...], state_dir: Path | None, as_json: bool, **chosen: Any) -> None:
    """Join a swarm as an oracle: train its model on your own corpus, and average with the others.

    Ctrl-C ends it with a checkpoint; the same command goes on from there.
    """
    from peers.screen import open_screen

    with Interruption() as interruption, open_screen() as screen:
        screen.say("joining the swarm …")
        from dupt_swarm.learning.device import choose_device
        from dupt_swarm.oracle import Oracle
        from dupt_swarm.swarm import Swarm

        chosen["name"] = chosen["name"] or socket.gethostname()
        device = str(choose_device(chosen["device"]))
        settings = options.pick(NodeSettings, chosen | {"device": device}, role="oracle")
        with Swarm.join(initial_peers, state_dir, settings) as swarm:
            screen.say(f"joined {swarm.manifest.swarm_id} at round {swarm.state.round}")
            oracle = Oracle(swarm, options.pick(OracleSettings, chosen), screen.tokenising)
            interruption.on_stop(oracle.stop)
            oracle.run(lambda status: screen.show(status, swarm.view, swarm.peer_id))
            summary = summarise(oracle)
        screen.say("left the swarm; the same command goes on from the checkpoint")
    if as_json:
        click.echo(json.dumps(summary))
    interruption.exit_if_received()


def summarise(oracle: Oracle) -> dict[str, Any]:
    """What this session did, for ``--json``."""
    status: Status = oracle.status()
    first, latest = status.first, status.latest
    assert first is not None and latest is not None
    return {
        "rounds": status.rounds_done,
        "failed_rounds": status.failed_rounds,
        "tokens_total": status.tokens_total,
        "heldout_loss_before": first.loss_nats,
        "heldout_loss_after": latest.loss_nats,
        "bits_per_byte_before": first.bits_per_byte,
        "bits_per_byte_after": latest.bits_per_byte,
    }
