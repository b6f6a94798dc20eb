"""Finding the peers that run on this machine, asking them, and saying whether one is well."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import psutil

from dupt_swarm.command_line.printable import one_line
from dupt_swarm.disk.folders import LOCK, default_state_dir
from dupt_swarm.errors import DuptError, UsageError
from peers.control.socket import SOCKET, short_address

ANSWER_SECONDS = 5.0
ANSWER_BYTES_MAX = 1 << 16
# A step, an evaluation or a compilation may take minutes; a hung trainer never finishes.
SILENCE_SECONDS_MAX = 300.0
STARTED_BY = {"bootstrap": "bootstrap", "evaluator": "evaluate"}  # other roles, and any, by `join`


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
        start = f"; `dupt-peer {STARTED_BY.get(kind, 'join')}` starts one"
        raise DuptError(f"no {kind}{chosen} runs on this machine{hung or start}")
    return found[0]


def show_health(peer: LocalPeer, as_json: bool) -> None:
    """Say how the peer is.

    Raises:
        DuptError: it is not well.
    """
    about = peer.about
    healthy = is_healthy(about)
    if as_json:
        click.echo(json.dumps({"healthy": healthy, **about}))
    if not healthy:
        raise DuptError(
            f"{about['swarm_id']}: no sign of life for {about['silence_seconds']:.0f} s; start the peer again"
        )
    if not as_json:
        click.echo(f"{about['swarm_id']}: {about['state']} at round {about['round']}")


def is_healthy(about: dict[str, Any]) -> bool:
    """Whether a peer's answer to ``status`` shows one that trains, follows, starts or is paused."""
    return bool(about["silence_seconds"] <= SILENCE_SECONDS_MAX)


def _folders(state_dir: Path | None) -> set[Path]:
    """Swarm folders in which a peer may be running."""
    found = {path.parent.resolve() for path in (state_dir or default_state_dir()).glob(f"*/{SOCKET}")}
    return found if state_dir else found | set(_folders_in_use())


def _folders_in_use() -> Iterator[Path]:
    """The swarm folders that programs have locked, wherever they are, as far as this user may look."""
    for process in psutil.process_iter():
        try:
            if any(Path(word).name == "dupt-peer" for word in process.cmdline()[:2]):
                files = [Path(file.path) for file in process.open_files()]
                yield from (file.parent.resolve() for file in files if file.name == LOCK)
        except psutil.Error:
            continue  # it has ended, or is another user's, which only root may look at
