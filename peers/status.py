"""``dupt-peer status``: the swarm as its records show it now."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.printable import one_line
from dupt_swarm.errors import UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.view import Peer, View
from dupt_swarm.settings import NodeSettings
from peers import options
from peers.control.client import find_peer, show_health
from peers.screen import words

if TYPE_CHECKING:
    from rich.table import Table

    from dupt_swarm.node.node import Node

# Records of peers that have just joined may take a moment to appear.
PATIENCE_SECONDS = 3.0


@click.command("status")
@options.initial_peers_if_any
@options.swarm_id
@options.invitation
@click.option("--health", is_flag=True, help="Only: is the peer of this machine well? Exit code 0 if so.")
@options.state_dir
@options.local_name
@options.local_role
@options.as_json
@command_errors
def command(
    initial_peers: tuple[str, ...],
    swarm_id: str,
    invitation: str,
    health: bool,
    state_dir: Path | None,
    name: str,
    role: str | None,
    as_json: bool,
) -> None:
    """Show a swarm: its round, peers, loss and state digests.

    With --health it asks the peer that runs on this machine, and needs no address.
    """
    if health:
        show_health(find_peer(state_dir, swarm_id, name, role), as_json)
        return
    if not initial_peers:
        raise UsageError("say which swarm: --initial-peers ADDRESS; or --health for the peer of this machine")
    from dupt_swarm.discovery import observe

    node, manifest = observe(
        initial_peers, NodeSettings("observer", swarm_id=swarm_id, invitation=invitation)
    )
    with node:
        view = _look(node)
    summary = view.to_json(manifest)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
        return
    from peers.screen.table import stdout_console

    console = stdout_console()
    loss = "–" if summary["loss"] is None else f"{summary['loss']:.4f} nats"
    console.print(
        f"swarm [bold]{manifest.swarm_id}[/]   round {summary['round']}   loss {loss}   "
        f"{summary['tokens_total']:,} tokens"
    )
    if manifest.offer:
        console.print(offer_line(manifest), markup=False, highlight=False, soft_wrap=True)
    console.print(peer_table(view, console.width if sys.stdout.isatty() else None))
    if any(map(_knows_costs, view.oracles)):
        console.print()
        console.print(cost_table(view))
    for line in (*refusal_lines(view), *sample_lines(view)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def offer_line(manifest: Manifest) -> str:
    """What text the swarm offers."""
    offer = manifest.offer
    source = f", from {offer.source}" if offer.source else ""
    return one_line(f"text for all: {offer.described}, {offer.tokens:,} tokens{source}")


def peer_table(view: View, width: int | None = None) -> Table:
    """The peers, a row each, on a terminal of this width; None: it has room for all columns."""
    from peers.screen.table import build_table

    return build_table(
        ("peer", "role", "reach", "state", "round", "tokens", "tokens/s", "loss", "held-out", "digest"),
        map(_cells, view.peers),
        right=("round", "tokens", "tokens/s"),
        wrapped=("peer",),
        spare=("digest", "reach", "tokens/s", "role"),
        width=width,
    )


def cost_table(view: View) -> Table:
    """What rounds cost the oracles that have ended one, a row each."""
    from peers.screen.table import build_table

    costs = ("sent in last round", "received", "waited", "waited in all", "utilization")
    rows = map(_costs, filter(_knows_costs, view.oracles))
    return build_table(("oracle", *costs), rows, right=costs, wrapped=("oracle", *costs))


def refusal_lines(view: View) -> list[str]:
    """What the peers have refused of others, and which they leave out, if anything, after an empty line."""
    lines = [
        f"{kind} refused since each peer started: {words.reasons(counts)}"
        for kind, counts in view.refusals.items()
    ]
    peers = words.plural(len(view.peers), "peer")
    lines += [
        f"left out for good, as it has contradicted itself: {peer_id} (by {count} of {peers})"
        for peer_id, count in view.exposed.items()
    ]
    return ["", *lines] if lines else []


def sample_lines(view: View) -> list[str]:
    """What the model says, if an evaluator has asked it, after an empty line."""
    if view.latest_sample is None:
        return []
    peer, found, sample = view.latest_sample
    asked = peer.record.name or peer.peer_id[-8:]
    return [
        "",
        f"the model at round {found.round}, asked by {asked}:",
        f"  {words.sample(sample.prompt, sample.text)}",
    ]


def _cells(peer: Peer) -> tuple[str, ...]:
    record = peer.record
    trains = record.role == "oracle"
    judged = record.evaluation
    held_out = judged.loss_nats if judged else record.heldout_loss
    accuracy = judged.accuracy if judged else record.heldout_accuracy
    figures = ((held_out, ".4f"), (accuracy, ".1%"))
    return (
        record.name or peer.peer_id[-8:],
        record.role,
        record.reach,
        record.state,
        str(record.round),
        f"{record.tokens_total:,}" if trains else "",
        f"{record.tokens_per_second:,.0f}" if trains else "",
        "" if record.loss is None else f"{record.loss:.4f}",
        " ".join(format(value, form) for value, form in figures if value is not None),
        record.state_digest[:12],
    )


def _knows_costs(peer: Peer) -> bool:
    return peer.record.round_sent_bytes is not None or peer.record.utilization is not None


def _costs(peer: Peer) -> tuple[str, ...]:
    record = peer.record
    return (
        record.name or peer.peer_id[-8:],
        words.size(record.round_sent_bytes),
        words.size(record.round_received_bytes),
        words.wait(record.round_waiting_seconds),
        words.wait(record.waiting_seconds),
        words.utilization(record),
    )


def _look(node: Node) -> View:
    deadline = time.monotonic() + PATIENCE_SECONDS
    view = node.refresh()
    while not view.peers and time.monotonic() < deadline:
        time.sleep(0.2)
        view = node.refresh()
    return view
