"""Our programs as child processes, which all end when the block ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from dupt_swarm.errors import DuptError

END_SECONDS = 15.0
LOG_TAIL_LINES = 15
OPTIONS = ("DUPT_PEER_", "DUPT_MONITOR_")  # set for the user's own peers, of other swarms


class LocalProcesses:
    """Named processes, each the leader of a group of its own, with a log of its stderr in a folder.

    Attributes:
        started: the newest process of each name.
    """

    def __init__(self, logs: Path) -> None:
        """``logs`` is made if need be."""
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        ours = {name: value for name, value in os.environ.items() if not name.startswith(OPTIONS)}
        self._environment = ours | {"TORCHINDUCTOR_CACHE_DIR": str(logs / "compiled")}
        self.started: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> LocalProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self.started.values())

    def start(self, name: str, program: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start ``program``, which lies beside this Python; an earlier process of this name ends first."""
        if name in self.started:
            _end([self.started[name]])
        with self._log(name).open("w") as log:
            self.started[name] = subprocess.Popen(
                [str(Path(sys.executable).with_name(program)), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=self._environment | environment,
            )
        return self.started[name]

    def first_line(self, name: str) -> str:
        """The first line that this process prints.

        Raises:
            DuptError: it ended without printing one.
        """
        stdout = self.started[name].stdout
        assert stdout is not None
        line = stdout.readline().strip()
        if not line:
            raise DuptError(f"{name} did not start:\n{self.log_tail(name)}")
        return line

    def finish(self, name: str) -> tuple[str, int]:
        """Wait for its end; what it printed (after the first line, if that was read), and its exit code."""
        process = self.started[name]
        output, _ = process.communicate()
        return output, process.returncode

    def log_tail(self, name: str) -> str:
        """The last lines of its stderr."""
        lines = self._log(name).read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"


def _end(processes: Collection[subprocess.Popen[str]]) -> None:
    """Ask all that run to end, kill what does not in time, and close their pipes."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for process in processes:
        if process.stdout is not None:
            process.stdout.close()
