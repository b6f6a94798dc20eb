"""``dupt-peer invite``: a token with which to join a swarm that admits by invitation."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.errors import UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.organiser import KEY_FILE
from dupt_swarm.organiser.invitation import USES_MAX, Token
from dupt_swarm.organiser.key import load_key_of
from peers import options
from peers.screen.words import plural

DAY_SECONDS = 86400


@click.command("invite")
@click.argument("manifest", type=UserPath(path_type=Path))
@click.option(
    "--uses",
    type=click.IntRange(1, USES_MAX),
    default=5,
    show_default=True,
    help="How many peers it admits. A `join` is one, however often it comes back; whatever only looks "
    "(`status`, the monitor, `check`) is one more of each machine, and another for each at the same time.",
)
@click.option(
    "--days",
    type=options.Numbers(0, 3650, min_open=True),
    default=90,
    show_default=True,
    help="For how long; who came by it needs another one then.",
)
@options.as_json
@command_errors
def command(manifest: Path, uses: int, days: float, as_json: bool) -> None:
    """Print a token to join the swarm of MANIFEST with, which takes organiser.key beside it.

    Whoever has the token can use it: hand it over as you would a password.
    """
    run, key = open_organisers(manifest)
    token = Token.new(key, run.swarm_id, uses, days * DAY_SECONDS)
    invitation = token.invitation
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(invitation.expires))
    if as_json:
        facts = {"token": str(token), "id": invitation.id.hex(), "uses": uses, "expires": until}
        click.echo(json.dumps({**facts, "swarm_id": run.swarm_id}))
        return
    click.echo(
        f"invitation {invitation.id.hex()} to {run.swarm_id} for {plural(uses, 'peer')} until {until}; "
        "its token is for `dupt-peer join --invitation`, or DUPT_PEER_JOIN_INVITATION:",
        err=True,
    )
    click.echo(str(token))


def open_organisers(path: Path) -> tuple[Manifest, Ed25519PrivateKey]:
    """The manifest at ``path``, and the key beside it.

    Raises:
        DuptError: the swarm admits everybody, or the key is not there, or another organiser's.
    """
    manifest = Manifest.load(path)
    if manifest.admission.kind == "open":
        raise UsageError(
            f"{path}: the swarm admits everybody; `dupt-peer new --admission invite` writes a manifest of "
            "one that does not"
        )
    return manifest, load_key_of(manifest, path.with_name(KEY_FILE))
