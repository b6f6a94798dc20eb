"""The node process: ``python -m dupt_swarm.network.process``, started by `client.Node`.

It is the leader of a process group of its own, to which the libp2p daemon belongs too. It ends when
told so, on SIGTERM, and when its parent is gone, however that died: the pipe between them then closes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import shutil
import signal
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from dupt_swarm.errors import DuptError, NodeError
from dupt_swarm.network.joining.preflight import preflight
from dupt_swarm.network.service import NodeService

CLOSE_SECONDS = 5.0
BEAT_SECONDS = 1.0

logger = logging.getLogger(__name__)


class CommandLoop:
    """Runs the parent's commands as they come, each a task of its own."""

    def __init__(self, pipe: Connection, run_dir: Path) -> None:
        self._pipe, self._run_dir = pipe, run_dir
        self._stopped = asyncio.Event()
        self._service = NodeService(run_dir, self._tell, _end_group)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until the parent says stop or is gone."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stopped.set)
        loop.add_reader(self._pipe.fileno(), self._receive)
        beating = asyncio.create_task(self._beat())
        await self._stopped.wait()
        beating.cancel()
        loop.remove_reader(self._pipe.fileno())
        await asyncio.wait_for(self._service.close(), CLOSE_SECONDS)

    def _receive(self) -> None:
        try:
            number, command, arguments = self._pipe.recv()
        except (EOFError, OSError):
            self._stopped.set()
            return
        if command == "close":
            self._stopped.set()
            return
        if command == "log_to":
            _append_output(**arguments)
            self._send((number, None, None))
            return
        task = asyncio.create_task(self._execute(number, command, arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _execute(self, number: int, command: str, arguments: dict[str, Any]) -> None:
        try:
            if command == "check":  # needs no service, and makes none
                value, error = await preflight(run_dir=self._run_dir, **arguments), None
            else:
                value, error = await getattr(self._service, command)(**arguments), None
        except DuptError as problem:
            value, error = None, problem
        except Exception as problem:
            logger.exception("command %s failed", command)
            value, error = None, NodeError(f"the node failed at `{command}`: {problem!r}")
        self._send((number, value, error))

    async def _beat(self) -> None:
        """Show the parent that the event loop goes round."""
        while True:
            self._tell(None)
            await asyncio.sleep(BEAT_SECONDS)

    def _tell(self, event: object) -> None:
        # A parent that was suspended does not read: then nothing may wait for it.
        if select.select([], [self._pipe.fileno()], [], 0)[1]:
            self._send((None, event, None))

    def _send(self, message: object) -> None:
        try:
            self._pipe.send(message)
        except OSError:
            self._stopped.set()


def main() -> None:
    """Arguments: the pipe's file descriptor, and the folder for sockets, which is ours to remove."""
    pipe, run_dir = Connection(int(sys.argv[1])), Path(sys.argv[2])
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then tells us
    tempfile.tempdir = str(run_dir)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
    try:
        asyncio.run(_serve(pipe, run_dir))
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)
        # Whatever of our group is left, above all a daemon that did not shut down.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)


def _append_output(log: Path) -> None:
    """Append all that this process and its daemon print from now on to ``log``."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _end_group() -> None:
    """End this process and its daemon at once; the parent removes the folder for sockets."""
    os.killpg(0, signal.SIGKILL)


async def _serve(pipe: Connection, run_dir: Path) -> None:
    await CommandLoop(pipe, run_dir).run()


if __name__ == "__main__":
    main()
