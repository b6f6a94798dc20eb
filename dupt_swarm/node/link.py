"""The link to a node process: starts it, sends it commands, and receives its answers.

Its folder of sockets is removed with it, or else by the next one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from dupt_swarm.disk.locks import lock_file
from dupt_swarm.errors import NodeError
from dupt_swarm.node.commands import Close, Command

LEAVE_PATIENCE_SECONDS = 7.0
WORDS_MAX = 300
UNANSWERED_MAX = 100
SILENT_CHECKS_MAX = 8
STARTING_CHECKS = 100  # more, until it speaks: a busy machine takes a while to load what a node needs
FOLDER_PREFIX, LOCK = "dupt-", "lock"

Reply = TypeVar("Reply")

_ENVIRONMENT = {
    "HIVEMIND_LOGLEVEL": "ERROR",
    "GOLOG_LOG_LEVEL": "fatal",
    # Threads that wait for one another sleep: spinning, they would take the cores from the trainer.
    "OMP_WAIT_POLICY": "PASSIVE",
}
if sys.platform == "linux":
    # hivemind's default leaves named segments in /dev/shm; this strategy has no names.
    _ENVIRONMENT["HIVEMIND_MEMORY_SHARING_STRATEGY"] = "file_descriptor"


class Link:
    """One node process, from its start to its end, and the pipe to it."""

    def __init__(self, memory_fd: int, hear: Callable[[object], None]) -> None:
        """Start the process.

        Args:
            memory_fd: the file descriptor of the shared memory, handed down to it.
            hear: gets what the node tells unasked, in a thread of this link.

        Raises:
            OSError: it cannot be started; nothing is left of it.
        """
        self._hear = hear
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[Any]] = {}
        self._sending = threading.Lock()
        self._heard, self._silent_checks = False, -STARTING_CHECKS
        with contextlib.ExitStack() as failed:
            self._folder = RunFolder()
            failed.callback(self._folder.remove)
            self._pipe, theirs = Pipe()
            failed.enter_context(self._pipe)
            with theirs:
                self._process = self._spawn(theirs, memory_fd)
            failed.callback(self._end_process)
            self._reader = threading.Thread(target=self._read, name="node link", daemon=True)
            self._reader.start()
            failed.pop_all()

    def _spawn(self, theirs: Connection, memory_fd: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dupt_swarm.network.process"]
        with self._said.open("wb") as said:
            return subprocess.Popen(
                [*command, str(theirs.fileno()), str(self._folder.path)],
                pass_fds=(theirs.fileno(), memory_fd),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # until `LogTo` names a file
                stderr=said,  # likewise
                start_new_session=True,
                env=_ENVIRONMENT | os.environ,
            )

    @property
    def _said(self) -> Path:
        return self._folder.path / "stderr"

    def submit(self, command: Command[Reply]) -> Future[Reply]:
        """Send ``command``; the future gets its reply, or `NodeError` if the node ends before."""
        future: Future[Reply] = Future()
        if len(self._waiting) >= UNANSWERED_MAX:
            # It hangs: sending more would fill the pipe and block the trainer.
            future.set_exception(NodeError("the node does not answer"))
            return future
        number = next(self._numbers)
        self._waiting[number] = future
        try:
            with self._sending:
                self._pipe.send((number, command))
        except OSError:
            self._fail(number)
        return future

    def ailment(self) -> str:
        """``exited``, ``silent``, or nothing if the node is well; to be asked once a second.

        Silence is counted in checks, not in seconds: when the whole peer was suspended, the node gets
        as many chances to speak as it would have had without.
        """
        if self._process.poll() is not None or not self._reader.is_alive():
            return "exited"
        self._silent_checks = 0 if self._heard else self._silent_checks + 1
        self._heard = False
        return "silent" if self._silent_checks > SILENT_CHECKS_MAX else ""

    def kill(self) -> None:
        """End the node's whole process group at once; pending futures get `NodeError`."""
        self._end_process()
        self._reader.join()  # it sees the end of the pipe
        self._pipe.close()
        self._folder.remove()

    def close(self) -> None:
        """Have the node leave the swarm and end, by force if it does not answer."""
        with contextlib.suppress(OSError), self._sending:
            self._pipe.send((None, Close()))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_PATIENCE_SECONDS)
        self.kill()

    def _end_process(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _read(self) -> None:
        """Runs in a thread of its own until the node is gone."""
        try:
            while True:
                number, value, error = self._pipe.recv()
                self._heard = True
                if number is None:
                    self._hear(value)
                elif error is not None:
                    self._waiting.pop(number).set_exception(error)
                else:
                    self._waiting.pop(number).set_result(value)
        except (EOFError, OSError):
            pass  # the node is gone
        finally:
            for number in list(self._waiting):
                self._fail(number)

    def _fail(self, number: int) -> None:
        future = self._waiting.pop(number, None)
        if future is not None:
            why = self._last_words()
            future.set_exception(NodeError(f"the node process has ended{why and f': {why}'}"))

    def _last_words(self) -> str:
        """What it has said before it had a log: nothing, unless it could not even start."""
        with contextlib.suppress(OSError):
            lines = self._said.read_text("utf-8", "replace").split("\n")
            return next((line.strip()[:WORDS_MAX] for line in reversed(lines) if line.strip()), "")
        return ""


class RunFolder:
    """A new folder, locked by this process while it is in use; `path` is short, as sockets need it."""

    def __init__(self) -> None:
        """Create it, and remove leftovers of peers that could not clean up, as after a power cut."""
        _sweep(Path(tempfile.gettempdir()))
        # Removed too when a signal ends the program before anybody could call `remove`.
        self._folder = tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, ignore_cleanup_errors=True)
        self.path = Path(self._folder.name)
        unlocked = self.path / f".{LOCK}"
        self._lock = unlocked.open("w")
        lock_file(self._lock)
        unlocked.rename(self.path / LOCK)  # from now on others see it, and that it is locked

    def remove(self) -> None:
        """Remove it; a second call does nothing."""
        self._folder.cleanup()
        self._lock.close()


def _sweep(folder: Path) -> None:
    """Remove what nobody has locked; in this folder, anybody may put anything under any name."""
    for lock in folder.glob(f"{FOLDER_PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):  # gone by now
            if not _is_ours(lock.parent, stat.S_ISDIR) or not _is_ours(lock, stat.S_ISREG):
                continue
            with lock.open() as file:
                if lock_file(file):
                    shutil.rmtree(lock.parent, ignore_errors=True)


def _is_ours(path: Path, is_kind: Callable[[int], bool]) -> bool:
    found = path.lstat()
    return found.st_uid == os.geteuid() and is_kind(found.st_mode)
