"""``dupt-peer bootstrap``: the first peer of a swarm. It holds the state, and is not special."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dupt_swarm.command_line.exit_codes import command_errors, message
from dupt_swarm.command_line.join_line import join_line
from dupt_swarm.disk.folders import REVOKED_FILE
from dupt_swarm.errors import CheckpointError, ManifestError
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.tables import TOKENIZER_BYTES_MAX
from dupt_swarm.node.join_addresses import own_address
from dupt_swarm.organiser import KEY_FILE
from dupt_swarm.organiser.invitation import Token
from dupt_swarm.organiser.key import load_key_of
from dupt_swarm.settings import NodeSettings
from peers import options
from peers.address_options import address_options, take_addresses
from peers.control.actions import PeerControl
from peers.control.socket import serve_control
from peers.interruption import Interruption

if TYPE_CHECKING:
    from torch import Tensor

    from dupt_swarm.replica.state import ReplicaState
    from dupt_swarm.swarm import Swarm

# A fixed port, so that the line to join with stays the same after a restart.
LISTEN = ("/ip4/0.0.0.0/tcp/31330", "/ip4/0.0.0.0/udp/31330/quic-v1")
CHECKPOINT_SECONDS = 60.0
LOG_SECONDS = 10.0
OWN_SECONDS = 10 * 365 * 86400.0  # of an organiser's own invitation; each start makes another


@click.command("bootstrap")
@click.argument("manifest", type=click.Path(path_type=Path))
@options.initial_peers_if_any
@options.invitation
@address_options(LISTEN)
@options.max_disk
@options.nice
@options.state_dir
@options.name
@options.max_upload
@options.max_download
@options.log_rounds
@options.log_size
@options.relay
@options.relay_size
@options.metrics_addr
@options.as_json
@command_errors
def command(manifest: Path, state_dir: Path | None, as_json: bool, **chosen: Any) -> None:
    """Start the first peer of the swarm of MANIFEST, and print the line to join it with.

    It keeps the state, so that the swarm outlives all volunteers; started again, it goes on from
    there. With --initial-peers it is another first peer of a running swarm. Where a swarm admits by
    invitation and organiser.key is beside MANIFEST, it invites itself.
    """
    chosen = take_addresses(LISTEN, chosen)
    run = Manifest.load(manifest)
    tokenizer = _read_tokenizer(manifest.with_name("tokenizer.json"))
    from peers.metrics.http import serve_metrics

    with Interruption() as interruption, serve_metrics(chosen["metrics_addr"]) as metrics:
        from dupt_swarm.swarm import INITIAL_FILE, Swarm

        chosen["invitation"] = _own_invitation(run, manifest, chosen["invitation"])
        revoked = manifest.with_name(REVOKED_FILE)
        kept = {"revoked": revoked, "organiser_key": manifest.with_name(KEY_FILE)}
        settings = options.pick(NodeSettings, chosen, role="bootstrap", **kept)
        os.nice(chosen["nice"])  # the node inherits it
        initial = _initial_parameters(run, manifest.with_name(INITIAL_FILE))
        with Swarm.create(run, tokenizer, initial, state_dir, settings) as swarm:
            metrics.joined(swarm, settings)
            swarm.folder.limit(chosen["max_disk"])
            control = PeerControl(swarm, "bootstrap", settings.name)
            with serve_control(swarm.folder.path, control.actions):
                _print_join_line(swarm, as_json)
                _keep(swarm, interruption, control)
    interruption.exit_if_received()


def _print_join_line(swarm: Swarm, as_json: bool) -> None:
    by_invitation, address = swarm.manifest.admission.kind == "invite", own_address(swarm.addresses)
    line = join_line([address], swarm.manifest.swarm_id, by_invitation=by_invitation)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "swarm_id": swarm.manifest.swarm_id,
                    "peer_id": swarm.peer_id,
                    "addresses": swarm.addresses,
                    "join": line,
                }
            )
        )
        return
    if swarm.manifest.rounds.exchange == "reduce" and not by_invitation:
        click.echo(
            'note: everybody may join, and with exchange = "reduce" members must trust one another; for '
            'strangers write "share", or let `dupt-peer new --admission invite` write the manifest',
            err=True,
        )
    click.echo(f"swarm {swarm.manifest.swarm_id} is up; others join it with:", err=True)
    if by_invitation:
        click.echo("with a token for each from `dupt-peer invite`, where organiser.key is", err=True)
    click.echo(line)


def _own_invitation(run: Manifest, path: Path, given: str) -> str:
    """What this peer comes by: ``given``, or an invitation of its own where the organiser's key is."""
    key = path.with_name(KEY_FILE)
    if given or run.admission.kind == "open" or not key.exists():
        return given

    return str(Token.new(load_key_of(run, key), run.swarm_id, uses=1, seconds=OWN_SECONDS))


def _keep(swarm: Swarm, interruption: Interruption, control: PeerControl) -> None:
    """Log what happens and save the state now and then, until stopped."""
    stop = threading.Event()
    interruption.on_stop(stop.set)
    swarm.announce_checkpoint()  # the one that it started from
    saved_at, saved, logged_at, logged = time.monotonic(), swarm.state, 0.0, ""
    while not stop.wait(1.0):
        now, view = time.monotonic(), swarm.view
        control.beat("serving", view.agreed.record.round if view.agreed else swarm.state.round)
        if now - logged_at > LOG_SECONDS:
            agreed, loss = view.agreed, view.loss(swarm.manifest.limits)
            line = (
                f"round {agreed.record.round if agreed else 0}  oracles {len(view.oracles)}  "
                f"loss {'–' if loss is None else f'{loss:.4f}'}"
            )
            if line != logged:
                click.echo(f"{time.strftime('%H:%M:%S')}  {line}", err=True)
            logged, logged_at = line, now
        if now - saved_at > CHECKPOINT_SECONDS:
            if view.agreed is not None and view.agreed.record.state_digest != saved.digest:
                try:
                    saved = _save(swarm)
                except CheckpointError as error:
                    click.echo(
                        f"{message(error)}; the swarm goes on, and the next minute tries again", err=True
                    )
            saved_at = now
    _save(swarm)


def _save(swarm: Swarm) -> Any:
    with swarm.folder.new_checkpoint() as path:
        saved = swarm.save_replica(path)
    swarm.announce_checkpoint()
    return saved


def _read_tokenizer(path: Path) -> bytes:
    try:
        if (size := path.stat().st_size) > TOKENIZER_BYTES_MAX:
            raise ManifestError(
                f"{path}: it has {size:,} bytes, and {TOKENIZER_BYTES_MAX:,} are the most that others fetch; "
                "use a model with a smaller tokenizer"
            )
        return path.read_bytes()
    except OSError as error:
        raise ManifestError(
            f"{path}: cannot be read ({error.strerror}); `dupt-peer new` writes it beside the manifest"
        ) from error


def _initial_parameters(manifest: Manifest, path: Path) -> Iterator[Tensor]:
    """Drawn from the seed, or those in ``path``; on demand only: a peer with a checkpoint needs none."""
    if manifest.initial_digest:
        yield from _read_initial(path).parameters
        return
    from dupt_swarm.learning.objectives import build_model

    model = build_model(manifest)
    model.init_weights(manifest.seed)  # type: ignore[operator]
    yield from model.parameters()


def _read_initial(path: Path) -> ReplicaState:
    from dupt_swarm.replica.storage import load_state

    try:
        return load_state(path)
    except CheckpointError as error:
        reason = "is damaged" if path.exists() else "is missing"
        raise ManifestError(
            f"{path}: the state that the swarm begins with {reason}; "
            "`dupt-peer new --from` writes it beside the manifest"
        ) from error
