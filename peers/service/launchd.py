"""An agent of the user's own for launchd on a Mac. Not tested on one yet."""

from __future__ import annotations

import os
import plistlib
import subprocess
from pathlib import Path

from dupt_swarm.disk.folders import default_state_dir
from dupt_swarm.errors import DuptError
from peers.service.last_join import LastJoin

LABEL = "dupt-peer"
RESTART_SECONDS = 60


class Launchd:
    """The user's own service manager."""

    @property
    def after(self) -> str:
        """What to know about it."""
        return f"it starts with your session, and writes to {self._log}; this was never tried on a Mac"

    @property
    def path(self) -> Path:
        """Of the agent."""
        return Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"

    @property
    def _log(self) -> Path:
        return default_state_dir() / "service.log"

    def text(self, last: LastJoin) -> str:
        """The agent that does as ``last`` did."""
        agent = plistlib.dumps(
            {
                "Label": LABEL,
                "Comment": f"Oracle of the DUPT swarm {last.swarm_id}",
                "ProgramArguments": [*last.command],
                "WorkingDirectory": str(last.directory),
                "EnvironmentVariables": last.variables,
                "RunAtLoad": True,
                # launchd knows no exit codes at which to give up, only success.
                "KeepAlive": {"SuccessfulExit": False},
                "ThrottleInterval": RESTART_SECONDS,
                "ExitTimeOut": 120,
                "ProcessType": "Background",
                "Nice": 10,
                "Umask": 0o77,
                "StandardOutPath": str(self._log),
                "StandardErrorPath": str(self._log),
            }
        )
        return agent.decode()

    def check(self) -> None:
        """Find out whether it can be reached.

        Raises:
            DuptError: it cannot.
        """
        if error := self._try("print", self._domain):
            raise DuptError(
                f"launchd of this user cannot be reached ({error}); log in on the Mac's own screen"
            )

    def runs(self) -> bool:
        """Whether the service runs."""
        return not self._try("print", f"{self._domain}/{LABEL}")

    def start(self) -> None:
        """Start the service that lies at `path`, now and with each session; a running one starts anew.

        Raises:
            DuptError: launchd refuses that.
        """
        self.stop()
        self._do("bootstrap", self._domain, str(self.path))

    def stop(self) -> None:
        """Stop it; it saves a checkpoint and leaves the swarm.

        Raises:
            DuptError: launchd refuses that.
        """
        if self.runs():
            self._do("bootout", f"{self._domain}/{LABEL}")

    def forget(self) -> None:
        """The file at `path` is gone; launchd has forgotten it when it stopped."""

    def status(self) -> int:
        """Print how it is, in launchd's words; its exit code, 0 while it is loaded."""
        return subprocess.run(["launchctl", "print", f"{self._domain}/{LABEL}"], check=False).returncode

    @property
    def _domain(self) -> str:
        return f"gui/{os.getuid()}"

    def _do(self, *command: str) -> None:
        if error := self._try(*command):
            raise DuptError(f"launchctl {' '.join(command)}: {error}; {self.path} is as it was written")

    def _try(self, *command: str) -> str:
        """What went wrong, or nothing."""
        try:
            done = subprocess.run(["launchctl", *command], capture_output=True, text=True, check=False)
        except OSError as error:
            return str(error)
        return done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else ""
