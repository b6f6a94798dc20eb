"""The node process: ``python -m dupt_swarm.network.process``, started by `node.link.Link`.

It is the leader of a process group of its own, to which the libp2p daemon belongs too. It ends when
told so, on SIGTERM, and when its parent is gone, however that died: the pipe between them then closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch
import uvloop

from dupt_swarm.errors import DuptError, NodeError
from dupt_swarm.network.host import Host
from dupt_swarm.network.log_file import LogFile, tell_story
from dupt_swarm.network.service import NodeService
from dupt_swarm.node.commands import Close, Command, LogTo

LEAVE_SECONDS, LAST_WORDS_SECONDS = 5.0, 1.0
HEARTBEAT_SECONDS = 1.0
UNSENT_MAX = 64  # events

logger = logging.getLogger("dupt_swarm.network.process")  # __name__ is __main__ here


class CommandLoop:
    """Runs the parent's commands as they come, each a task of its own."""

    def __init__(self, pipe: Connection, run_dir: Path) -> None:
        self._pipe = pipe
        self._stopped = asyncio.Event()
        self._service = NodeService(Host(run_dir, self._tell, _end_group))
        self._log: LogFile | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsent: SimpleQueue[bytes | None] = SimpleQueue()
        self._late: dict[type, object] = {}  # events for which there is no room, the last one of each kind
        self._telling = threading.Lock()
        self._sender = threading.Thread(target=self._send_forever, name="sender", daemon=True)

    async def run(self) -> None:
        """Serve until the parent says stop or is gone."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stopped.set)
        loop.add_reader(self._pipe.fileno(), self._receive)
        os.set_blocking(self._pipe.fileno(), True)  # uvloop has changed that; we read whole messages
        self._sender.start()
        tell_story(self._tell)
        heartbeat = asyncio.create_task(self._heartbeat())
        await self._stopped.wait()
        heartbeat.cancel()
        loop.remove_reader(self._pipe.fileno())
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._service.close()
        except TimeoutError:
            logger.warning("the node could not leave the swarm within %.0f s", LEAVE_SECONDS)
        self._unsent.put(None)
        self._sender.join(LAST_WORDS_SECONDS)

    def _receive(self) -> None:
        try:
            number, command = self._pipe.recv()
        except (EOFError, OSError):
            self._stopped.set()
            return
        match command:
            case Close():
                self._stopped.set()
            case LogTo(path):
                self._log = LogFile(path)
                self._send((number, command.reply(None), None))
            case _:
                task = asyncio.create_task(self._execute(number, command))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _execute(self, number: int, command: Command[Any]) -> None:
        value: object = None
        error: DuptError | None = None
        try:
            value = await self._service.execute(command)
        except DuptError as problem:
            error = problem
        except Exception as problem:
            logger.exception("%s failed", type(command).__name__)
            error = NodeError(f"the node failed at {type(command).__name__}: {problem!r}")
        self._send((number, value, error))

    async def _heartbeat(self) -> None:
        """Send heartbeats that show the parent that the event loop is running."""
        while True:
            self._tell(None)
            if self._log is not None:
                self._log.rotate()
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def _tell(self, event: object) -> None:
        # A suspended parent does not read the pipe, so nothing may pile up; later it needs to know how things
        # stand, such as that a download has ended.
        with self._telling:
            self._late.pop(type(event), None)
            self._late[type(event)] = event
            while self._late and self._unsent.qsize() < UNSENT_MAX:
                self._send((None, self._late.pop(next(iter(self._late))), None))

    def _send(self, message: object) -> None:
        self._unsent.put(pickle.dumps(message))  # here, as what it is about may change

    def _send_forever(self) -> None:
        """Runs in a thread of its own: the pipe has no room for a large view until the parent reads it."""
        with contextlib.suppress(OSError):  # the parent is gone, as `_receive` sees
            while (message := self._unsent.get()) is not None:
                self._pipe.send_bytes(message)


def main() -> None:
    """Arguments: the pipe's file descriptor, and the folder for sockets, which is ours to remove."""
    pipe, run_dir = Connection(int(sys.argv[1])), Path(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it then tells us
    tempfile.tempdir = str(run_dir)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
    # What is imported stays: walking it, whenever a message held many values, kept the event loop for 0.1 s.
    gc.freeze()
    try:
        uvloop.run(CommandLoop(pipe, run_dir).run())
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)
        # Whatever is left of our group, such as a daemon that did not shut down.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)


def _end_group() -> None:
    """End this process and its daemon at once; the parent removes the folder for sockets."""
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
