"""The end of the control socket that a running peer serves.

It is a Unix socket in the peer's swarm folder, for the user who runs the peer alone. A request is a
line of JSON such as ``{"command": "pause"}``; so is the answer, ``{"ok": true, "message": …}`` or
``{"ok": false, "error": …}``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

SOCKET = "control"
PATH_BYTES_MAX = 100  # a socket's address holds 108 bytes on Linux and 104 on macOS
REQUEST_BYTES_MAX = 1024
SILENCE_SECONDS = 5.0
CLOSE_SECONDS = 0.1

logger = logging.getLogger(__name__)


# What a command does, called in a thread of its own; the answer's fields. It raises ValueError if this peer
# cannot do it now: the message is the answer.
Action = Callable[[], Mapping[str, Any]]


@contextlib.contextmanager
def serve_control(folder: Path, actions: Mapping[str, Action]) -> Iterator[None]:
    """Answer commands in the background while the block runs; a peer without a socket trains all the same.

    Args:
        folder: the swarm folder, which this peer has locked: a socket that lies there is a dead peer's.
        actions: by the name of the command.
    """
    path = folder / SOCKET
    try:
        path.unlink(missing_ok=True)
        with short_address(folder) as address:
            server = _Server(address, path, actions)
    except OSError as error:
        reason = error.strerror or error
        click.echo(f"note: {path}: no control socket ({reason}); dupt-peer pause, stop … need one", err=True)
        yield
        return
    thread = threading.Thread(target=server.serve_forever, args=(CLOSE_SECONDS,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def short_address(folder: Path) -> Iterator[str]:
    """A path of the socket in ``folder`` that fits into a socket's address, however long that of the folder.

    Raises:
        OSError: the folder is not there, or this system has no short path for it.
    """
    path = str(folder / SOCKET)
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Linux: nothing but the descriptor's number stands in the address. Elsewhere binding it fails.
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: str, path: Path, actions: Mapping[str, Action]) -> None:
        self._path, self.actions = path, actions
        super().__init__(address, _Conversation)

    def server_bind(self) -> None:
        super().server_bind()
        self._path.chmod(0o600)  # nobody can connect before it listens


class _Conversation(socketserver.StreamRequestHandler):
    server: _Server
    timeout = SILENCE_SECONDS

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the other end is silent or gone
            while line := self.rfile.readline(REQUEST_BYTES_MAX):
                self.wfile.write(json.dumps(self._answer(line)).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            command = request["command"]
        except (ValueError, KeyError, TypeError):
            return {"ok": False, "error": 'not a request; write {"command": "status"}'}
        action = self.server.actions.get(str(command))
        if action is None:
            known = ", ".join(self.server.actions)
            return {"ok": False, "error": f"unknown command `{command}`; there are {known}"}
        try:
            return {"ok": True, **action()}
        except ValueError as error:
            return {"ok": False, "error": str(error)}
        except Exception as error:
            # Whatever happens here, the peer goes on and the client gets an answer.
            logger.exception("control: %s failed", command)
            return {"ok": False, "error": f"it failed ({error!r}); see the messages of the peer"}
