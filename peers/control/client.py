"""Finding the peers that run on this machine, and telling them what to do."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import psutil

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.printable import one_line
from dupt_swarm.disk.folders import LOCK, default_state_dir
from dupt_swarm.errors import DuptError, UsageError
from peers import options
from peers.control.socket import SOCKET, short_address

ANSWER_SECONDS = 5.0
ANSWER_BYTES_MAX = 1 << 16


@dataclass(frozen=True)
class LocalPeer:
    """A peer that answers on this machine: its swarm folder, and its answer to ``status``."""

    folder: Path
    about: dict[str, Any]

    def __str__(self) -> str:
        """A line that identifies it."""
        name = one_line(self.about["name"]) or "(no name)"
        return (
            f"{name}: {self.about['role']} of {self.about['swarm_id']}, {self.about['state']}, "
            f"in {self.folder}"
        )


def ask(folder: Path, command: str) -> dict[str, Any]:
    """The answer of the peer of this swarm folder.

    Raises:
        OSError: nobody answers there in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, short_address(folder) as address:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(address)
        connection.sendall(json.dumps({"command": command}).encode() + b"\n")
        with connection.makefile("rb") as replies:
            line = replies.readline(ANSWER_BYTES_MAX)
    try:
        answer = json.loads(line)
    except ValueError as error:
        raise ConnectionError("the peer closed the control socket without an answer") from error
    return dict(answer)


def find_peer(state_dir: Path | None, swarm_id: str, name: str, role: str | None = None) -> LocalPeer:
    """The one running peer that matches; empty values and None match any.

    Raises:
        UsageError: several would do.
        DuptError: none runs, or none of these answers.
    """
    found, silent = [], []
    for folder in sorted(_folders(state_dir)):
        try:
            about = ask(folder, "status")
        except TimeoutError:
            silent.append(folder)
            continue
        except OSError:
            continue  # what a peer left that was killed
        wanted = {"swarm_id": swarm_id, "name": name, "role": role or ""}
        if all(value in ("", about[key]) for key, value in wanted.items()):
            found.append(LocalPeer(folder, about))
    kind = role or "peer"
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} {kind}s run on this machine; choose one:\n"
            + "\n".join(f"  {peer}" for peer in found),
            setting=("name", "swarm_id", "role", "state_dir"),
        )
    if not found:
        hung = f"; the peer in {silent[0]} does not answer; kill its process" if silent else ""
        chosen = " of those chosen" if swarm_id or name or state_dir else ""
        raise DuptError(f"no {kind}{chosen} runs on this machine{hung or '; `dupt-peer join` starts one'}")
    return found[0]


def control_command(command: str, help: str) -> click.Command:
    """The click command that tells an oracle of this machine to do ``command``."""

    @click.command(command, help=help)
    @options.state_dir
    @options.local_swarm
    @options.local_name
    @command_errors
    def send_oracle(state_dir: Path | None, swarm_id: str, name: str) -> None:
        send(command, find_peer(state_dir, swarm_id, name, "oracle"))

    return send_oracle


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
    click.echo(f"{called} {answer['message']}", err=True)


def _folders(state_dir: Path | None) -> set[Path]:
    """Swarm folders in which a peer may be running."""
    places = [state_dir or default_state_dir()]
    found = {path.parent.resolve() for place in places for path in place.glob(f"*/{SOCKET}")}
    return found if state_dir else found | set(_folders_in_use())


def _folders_in_use() -> Iterator[Path]:
    """The swarm folders that this user's programs have locked, wherever they are."""
    for process in psutil.process_iter():
        try:
            if any(Path(word).name == "dupt-peer" for word in process.cmdline()[:2]):
                files = [Path(file.path) for file in process.open_files()]
                yield from (file.parent.resolve() for file in files if file.name == LOCK)
        except psutil.Error:
            continue  # it has ended, or is another user's
