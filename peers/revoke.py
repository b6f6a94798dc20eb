"""``dupt-peer revoke``: invitations count no longer, and who came by them is cut off."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.disk.folders import REVOKED_FILE
from dupt_swarm.errors import UsageError
from dupt_swarm.organiser import revocations
from dupt_swarm.organiser.invitation import id_in
from peers import options
from peers.invite import open_organisers
from peers.screen.words import plural

SHOWN_MAX = 20


class _Revoke(click.Command):
    """Takes a credential for one, also if it begins with a hyphen, as one in 64 does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse ``args``, those credentials last, where click takes nothing for an option."""
        if "--" not in args:
            credentials = [word for word in args if word.startswith("-") and _names_one(word)]
            args = [*(word for word in args if word not in credentials), "--", *credentials]
        return super().parse_args(ctx, args)


@click.command("revoke", cls=_Revoke)
@click.argument("manifest", type=UserPath(path_type=Path))
@click.argument("invitations", metavar="TOKEN|ID…", nargs=-1, required=True)
@options.as_json
@command_errors
def command(manifest: Path, invitations: tuple[str, ...], as_json: bool) -> None:
    """Revoke invitations to the swarm of MANIFEST, which takes organiser.key beside it.

    Names each by its token, its id, or the credential of a peer that came by it, as `dupt-peer status --json`
    shows it. The file `revoked` beside MANIFEST has all of them: a bootstrap that runs from there tells the
    swarm within seconds. Nothing is taken back by another such file, or by none: what is revoked stays so.
    """
    (run, key), path = open_organisers(manifest), manifest.with_name(REVOKED_FILE)
    ids = {_id_in(text) for text in invitations}
    try:
        new = revocations.revoke(ids, key, run.swarm_id)
        revoked = revocations.add(path, new, bytes.fromhex(run.admission.organiser), run.swarm_id)
    except ValueError as error:
        raise UsageError(f"nothing was revoked: {error}") from error
    if as_json:
        click.echo(json.dumps({"revoked": sorted(map(bytes.hex, revoked))}))
        return
    click.echo(
        f"{path} now revokes {plural(len(revoked), 'invitation')} to {run.swarm_id}; a bootstrap that "
        "runs from there tells the others",
        err=True,
    )


def _names_one(text: str) -> bool:
    try:
        return bool(id_in(text))
    except ValueError:
        return False


def _id_in(text: str) -> bytes:
    """The id of the invitation that ``text`` names.

    Raises:
        UsageError: it names none.
    """
    try:
        return id_in(text)
    except ValueError as error:
        named = text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"  # it may be most of a token
        raise UsageError(
            f"nothing was revoked: {named}: {error}; "
            "give a token, an id (16 hexadecimal digits) or a credential"
        ) from error
