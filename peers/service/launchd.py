"""An agent of the user's own for launchd on a Mac. Not tested on one yet."""

from __future__ import annotations

import os
import plistlib
from pathlib import Path

from dupt_swarm.disk.folders import default_state_dir
from dupt_swarm.errors import DuptError
from peers.service.last_join import LastJoin
from peers.service.manager import Manager

LABEL = "dupt-peer"
RESTART_SECONDS = 60


class Launchd(Manager):
    """`Manager` documents its methods."""

    tool = ("launchctl",)

    @property
    def after(self) -> str:
        return f"it starts with your session, and writes to {self._log}; this was never tried on a Mac"

    @property
    def path(self) -> Path:
        return Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"

    @property
    def _log(self) -> Path:
        return default_state_dir() / "service.log"

    def text(self, last: LastJoin) -> str:
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
        if error := self.ask("print", self._domain):
            raise DuptError(
                f"launchd of this user cannot be reached ({error}); log in on the Mac's own screen"
            )

    def runs(self) -> bool:
        return not self.ask("print", f"{self._domain}/{LABEL}")

    def start(self) -> None:
        self.stop()
        self.tell("bootstrap", self._domain, str(self.path))

    def stop(self) -> None:
        if self.runs():
            self.tell("bootout", f"{self._domain}/{LABEL}")

    def forget(self) -> None:
        """See `Manager`: launchd has forgotten it when it stopped."""

    def status(self) -> int:
        return self.show("print", f"{self._domain}/{LABEL}")

    @property
    def _domain(self) -> str:
        return f"gui/{os.getuid()}"
