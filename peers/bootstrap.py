"""``dupt-peer bootstrap``: the first peer of a swarm. It holds the state, and is not special."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.command_line.exit_codes import command_errors, message
from dupt_swarm.command_line.join_line import join_line
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.disk.folders import OFFER_FOLDER, REVOKED_FILE
from dupt_swarm.errors import CheckpointError, ManifestError, NodeError, UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.tables import TOKENIZER_BYTES_MAX
from dupt_swarm.node.addresses import own_address
from dupt_swarm.node.messages import CatchingUp
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
CHECKPOINT_SECONDS, ATTEST_SECONDS, LOG_SECONDS = 60, 15, 10
OWN_SECONDS = 10 * 365 * 86400.0  # of an organiser's own invitation; each start makes another


@click.command("bootstrap")
@click.argument("manifest", type=UserPath(path_type=Path))
@options.initial_peers_if_any
@options.invitation
@address_options(LISTEN)
@options.max_disk
@options.nice
@options.running
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
    _note_remainders(run)
    tokenizer = _read_tokenizer(manifest.with_name("tokenizer.json"))
    from peers.metrics.http import serve_metrics

    with Interruption() as interruption, serve_metrics(chosen["metrics_addr"]) as metrics:
        from dupt_swarm.swarm import INITIAL_FILE, Swarm

        key = _organisers_key(run, manifest.with_name(KEY_FILE), needed=not chosen["invitation"])
        chosen["invitation"] = chosen["invitation"] or _own_invitation(run, key)
        revoked = manifest.with_name(REVOKED_FILE)
        offer = _check_offer(run, manifest.with_name(OFFER_FOLDER))
        settings = options.pick(NodeSettings, chosen, role="bootstrap", revoked=revoked, offer=offer)
        os.nice(chosen["nice"])  # the node inherits it
        initial = _initial_parameters(run, manifest.with_name(INITIAL_FILE))
        with Swarm.create(run, tokenizer, initial, state_dir, settings) as swarm:
            metrics.joined(swarm, settings)
            swarm.folder.limit(chosen["max_disk"])
            control = PeerControl(swarm, "bootstrap", settings.name)
            with serve_control(swarm.folder.path, control.actions):
                _print_join_line(swarm, as_json)
                _Keeper(swarm, key, control).run(interruption)
    interruption.exit_if_received()


def _print_join_line(swarm: Swarm, as_json: bool) -> None:
    by_invitation, address = swarm.manifest.admission.kind == "invite", own_address(swarm.addresses)
    line = join_line([address], swarm.manifest)
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


def _note_remainders(run: Manifest) -> None:
    """Tell of steps and rounds that are not as large as an organiser wrote."""
    context, step, whole = run.model.context_length, run.rounds.tokens_per_step, run.rounds.tokens_per_round
    for key, tokens, what, part, so in (
        ("tokens_per_step", step, "model.context_length", context, "steps have fewer"),
        ("tokens_per_round", whole, "rounds.tokens_per_step", step, "the learning rate falls more slowly"),
    ):
        if rest := tokens % part:
            click.echo(
                f"note: rounds.{key} = {tokens} is no multiple of {what} = {part}, so {so}; write "
                f"{tokens - rest} or {tokens - rest + part}",
                err=True,
            )


def _check_offer(run: Manifest, folder: Path) -> Path:
    """Where the text is that the swarm offers; if it is not all there, that is said."""
    from dupt_swarm.offer.shard_list import missing_in

    if run.offer and (missing := missing_in(folder, run)):
        click.echo(
            f"note: this swarm offers text, and {folder} lacks {missing}; copy there what `dupt-peer new "
            "--offer` wrote, or others must have it",
            err=True,
        )
    return folder


def _organisers_key(run: Manifest, path: Path, *, needed: bool) -> Ed25519PrivateKey | None:
    """The organiser's key, if it is at ``path``; it is used in this process only, which hears no stranger.

    Raises:
        UsageError: it is another's, or cannot be read, and this peer is ``needed`` to invite itself.
    """
    if not run.admission.organiser or not path.exists():
        return None
    try:
        return load_key_of(run, path)
    except UsageError as error:
        if needed and run.admission.kind != "open":
            raise
        click.echo(f"note: nobody attests the swarm's state: {message(error)}", err=True)
        return None


def _own_invitation(run: Manifest, key: Ed25519PrivateKey | None) -> str:
    """Where the organiser's key is, a token for this peer; elsewhere it was given one, or needs none."""
    if key is None or run.admission.kind == "open":
        return ""
    return str(Token.new(key, run.swarm_id, uses=1, seconds=OWN_SECONDS))


class _Keeper:
    """Follows the swarm, tells how it is, attests its state, and saves that whenever it has changed."""

    def __init__(self, swarm: Swarm, key: Ed25519PrivateKey | None, control: PeerControl) -> None:
        from dupt_swarm.checkpoint import REPLICA_FILE
        from dupt_swarm.replica.storage import saved_digest

        self._swarm, self._key, self._control = swarm, key, control
        checkpoint = swarm.folder.checkpoint  # the one that it started from, or an earlier one
        self._saved = saved_digest(checkpoint / REPLICA_FILE) if checkpoint else ""
        self._logged = self._attested = ""
        self._stopped, self._woken = False, threading.Event()

    def run(self, interruption: Interruption) -> None:
        """Go on until stopped.

        Raises:
            CheckpointError: the last state cannot be saved.
        """
        interruption.on_stop(self._stop)
        self._swarm.listen(self._hear)
        self._swarm.announce_checkpoint()
        began = time.monotonic()
        for second in itertools.count():
            self._follow_until(began + second + 1)
            if self._stopped:
                break
            self._control.beat("serving", self._swarm.state.round)
            if second % LOG_SECONDS == 0:
                self._log()
            if second % ATTEST_SECONDS == 0:  # a node that was started again has forgotten it
                self._attested = ""
            if second % CHECKPOINT_SECONDS == CHECKPOINT_SECONDS - 1:
                self._save_or_warn()
        self._swarm.adopt()
        self._save()

    def _stop(self) -> None:
        self._stopped = True
        self._woken.set()

    def _hear(self, event: object) -> None:
        """In a thread of the node's."""
        if isinstance(event, CatchingUp) and not event.fetching:
            self._woken.set()

    def _follow_until(self, end: float) -> None:
        """Until then, or until stopped, attest each state to which the node moves on by itself.

        At once: who comes when all others have just left has nobody else's word.
        """
        while not self._stopped and (left := end - time.monotonic()) > 0:
            self._woken.wait(left)
            self._woken.clear()
            state = self._swarm.adopt().state
            if self._key is not None and state.digest != self._attested:
                self._swarm.attest(self._key)
                self._attested = state.digest

    def _log(self) -> None:
        view = self._swarm.view
        agreed, loss = view.agreed, view.loss(self._swarm.manifest.limits)
        line = (
            f"round {agreed.record.round if agreed else 0}  oracles {len(view.oracles)}  "
            f"loss {'–' if loss is None else f'{loss:.4f}'}"
        )
        if line != self._logged:
            click.echo(f"{time.strftime('%H:%M:%S')}  {line}", err=True)
        self._logged = line

    def _save_or_warn(self) -> None:
        try:
            self._save()
        except (CheckpointError, NodeError) as error:
            click.echo(f"{message(error)}; the swarm goes on, and the next minute tries again", err=True)

    def _save(self) -> None:
        if self._swarm.state.digest == self._saved:
            return
        with self._swarm.folder.new_checkpoint() as path:
            saved = self._swarm.save_replica(path).digest
        self._saved = saved  # not before: the disk may be full even now
        self._swarm.announce_checkpoint()


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
    from dupt_swarm.learning.objectives import first_model

    yield from first_model(manifest).parameters()


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
