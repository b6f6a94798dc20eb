"""The trainer's end of its node: starts the process, sends commands with time limits, hears events."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dupt_swarm.errors import NodeError
from dupt_swarm.network.memory import SharedVectors, anonymous_file
from dupt_swarm.network.messages import CatchingUp, Checkup, Joined, RoundResult, StateName
from dupt_swarm.network.view import View
from dupt_swarm.settings import NodeSettings

DISCOVER_SECONDS = 120.0
OBSERVE_SECONDS = 60.0
CHECKUP_SECONDS = 120.0
JOIN_SECONDS = 900.0  # the state's download is bounded by the node itself
COMMAND_SECONDS = 30.0
SAVE_SECONDS = 300.0
CLOSE_SECONDS = 7.0
UNANSWERED_MAX = 100

_ENVIRONMENT = {"HIVEMIND_LOGLEVEL": "ERROR", "GOLOG_LOG_LEVEL": "fatal"}
if sys.platform == "linux":
    # hivemind's choice leaves named segments in /dev/shm; this one has no names.
    _ENVIRONMENT["HIVEMIND_MEMORY_SHARING_STRATEGY"] = "file_descriptor"


class Node:
    """A node process and the memory shared with it. Close it, or use it in a ``with`` statement."""

    def __init__(self) -> None:
        """Start the process; `join` then makes it a member of a swarm."""
        self.view = View(0.0, ())
        self.catching_up = CatchingUp(fetching=False, newer=None)
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._memory_fd = anonymous_file()
        self._run_dir = Path(tempfile.mkdtemp(prefix="dupt-"))
        self._pipe, theirs = Pipe()
        self._process = self._spawn(theirs)
        theirs.close()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _spawn(self, theirs: Connection) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dupt_swarm.network.process"]
        return subprocess.Popen(
            [*command, str(theirs.fileno()), str(self._run_dir)],
            pass_fds=(theirs.fileno(), self._memory_fd),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # until `log_to` names a file
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=_ENVIRONMENT | os.environ,
        )

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def discover(self, initial_peers: tuple[str, ...], swarm_id: str) -> bytes:
        """The canonical manifest of the swarm that these peers are in.

        Raises:
            DuptError: unreachable, or another swarm than expected.
        """
        manifest: bytes = self._call(
            "discover", DISCOVER_SECONDS, initial_peers=initial_peers, swarm_id=swarm_id
        )
        return manifest

    def check(self, settings: NodeSettings) -> Checkup:
        """Look around with these settings, without joining; see `Checkup`."""
        checkup: Checkup = self._call("check", CHECKUP_SECONDS, settings=settings)
        return checkup

    def log_to(self, log: Path) -> None:
        """Append the messages of the node and its daemon to ``log``; before that they are dropped."""
        self._submit("log_to", log=log)

    def join(self, settings: NodeSettings) -> Joined:
        """Become a member of the swarm; may take as long as the download of the state.

        Raises:
            DuptError: why it cannot.
        """
        seconds = OBSERVE_SECONDS if settings.role == "observer" else JOIN_SECONDS
        joined: Joined = self._call("join", seconds, settings=settings)
        return joined

    def attach(self, numel: int) -> SharedVectors:
        """Share two vectors of ``numel`` fp32 values with the node; the anchor is in its place."""
        vectors = SharedVectors(self._memory_fd, numel)
        self._call("attach", COMMAND_SECONDS, fd=self._memory_fd, numel=numel)
        return vectors

    def publish(self, *, now: bool = False, **fields: Any) -> None:
        """Change fields of our record; does not wait. See `view.PeerRecord` for the fields."""
        self._submit("publish", now=now, fields=fields)

    def average(self, tokens: int, group_size: int) -> Future[RoundResult]:
        """End the round with the contribution in the shared memory; see `NodeService.average`."""
        return self._submit("average", tokens=tokens, group_size=group_size)

    def cancel_average(self) -> None:
        """Give up the all-reduce under way, if there is one; does not wait."""
        self._submit("cancel_average")

    def adopt(self) -> StateName:
        """Take over the newer state that the node has fetched."""
        self.catching_up = CatchingUp(fetching=False, newer=None)
        name: StateName = self._call("adopt", COMMAND_SECONDS)
        return name

    def save(self, path: Path) -> StateName:
        """Have the node write its replica state to ``path``."""
        name: StateName = self._call("save", SAVE_SECONDS, path=path)
        return name

    def refresh(self) -> View:
        """Read the records of all peers now."""
        self.view = self._call("view", COMMAND_SECONDS)
        return self.view

    def close(self) -> None:
        """Leave the swarm and end the node, by force if it does not answer; a second call does nothing."""
        if self._pipe.closed:
            return
        with contextlib.suppress(OSError):
            self._pipe.send((None, "close", {}))
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
        self._pipe.close()
        os.close(self._memory_fd)
        shutil.rmtree(self._run_dir, ignore_errors=True)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _call(self, command: str, seconds: float, **arguments: Any) -> Any:
        try:
            return self._submit(command, **arguments).result(seconds)
        except TimeoutError as error:
            raise NodeError(
                f"the node did not answer `{command}` within {seconds:.0f} s; start the peer again"
            ) from error

    def _submit(self, command: str, **arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if len(self._waiting) >= UNANSWERED_MAX:
            # It hangs. Sending more would fill the pipe, and then hold up the trainer.
            future.set_exception(NodeError("the node does not answer; start the peer again"))
            return future
        number = next(self._numbers)
        self._waiting[number] = future
        try:
            with self._lock:
                self._pipe.send((number, command, arguments))
        except OSError:
            self._fail(number)
        return future

    def _read(self) -> None:
        """Runs in a thread of its own until the node is gone."""
        try:
            while True:
                number, value, error = self._pipe.recv()
                if number is None:
                    self._hear(value)
                elif error is not None:
                    self._waiting.pop(number).set_exception(error)
                else:
                    self._waiting.pop(number).set_result(value)
        except (EOFError, OSError):
            pass  # the node is gone, or we closed the pipe
        finally:
            for number in list(self._waiting):
                self._fail(number)

    def _hear(self, event: object) -> None:
        if isinstance(event, View):
            self.view = event
        elif isinstance(event, CatchingUp):
            self.catching_up = event

    def _fail(self, number: int) -> None:
        future = self._waiting.pop(number, None)
        if future is not None:
            future.set_exception(NodeError("the node process has ended; start the peer again"))
