"""``dupt-peer pause``, ``resume``, ``finish`` and ``stop``: the owner tells a peer what to do."""

from __future__ import annotations

from pathlib import Path

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.printable import one_line
from dupt_swarm.errors import DuptError
from peers import options
from peers.control.client import LocalPeer, ask, find_peer


def send(command: str, peer: LocalPeer) -> None:
    """Tell ``peer`` to do ``command``, and say what it answers.

    Raises:
        DuptError: it does not answer, or cannot do that.
    """
    called = one_line(peer.about["name"] or peer.about["swarm_id"])
    try:
        answer = ask(peer.folder, command)
    except OSError as error:
        raise DuptError(f"{peer} does not answer ({error}); it may just have ended") from error
    if not answer["ok"]:
        raise DuptError(f"{called}: {answer['error']}")
    click.echo(f"{peer}: {answer['message']}", err=True)


def _for_oracles(command: str, help: str) -> click.Command:
    """The click command that tells an oracle of this machine to do ``command``."""

    @click.command(command, help=help)
    @options.state_dir
    @options.local_swarm
    @options.local_name
    @command_errors
    def send_oracle(state_dir: Path | None, swarm_id: str, name: str) -> None:
        send(command, find_peer(state_dir, swarm_id, name, "oracle"))

    return send_oracle


pause = _for_oracles(
    "pause", "Have a running peer of this machine stop training for a while. It stays in the swarm."
)
resume = _for_oracles("resume", "Have a paused peer of this machine go on training.")
finish = _for_oracles(
    "finish", "Have a running peer of this machine contribute at the end of this round, then leave."
)


@click.command("stop")
@options.state_dir
@options.local_swarm
@options.local_name
@options.local_role
@command_errors
def stop(state_dir: Path | None, swarm_id: str, name: str, role: str | None) -> None:
    """Have a running peer of this machine save a checkpoint and leave now."""
    send("stop", find_peer(state_dir, swarm_id, name, role))
