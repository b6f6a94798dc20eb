"""What starts programs with a user's session: `Systemd`, or `Launchd` on a Mac."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from pathlib import Path

from dupt_swarm.errors import DuptError
from peers.service.last_join import LastJoin


class Manager(ABC):
    """The user's own service manager, which is asked by a program of the system's.

    Attributes:
        tool: that program, with what it always gets.
    """

    tool: tuple[str, ...]

    @property
    @abstractmethod
    def path(self) -> Path:
        """Of the file that describes the service."""

    @property
    @abstractmethod
    def after(self) -> str:
        """What to know about a service that was installed."""

    @abstractmethod
    def text(self, last: LastJoin) -> str:
        """The file for a service that does as ``last`` did."""

    @abstractmethod
    def check(self) -> None:
        """Find out whether the manager can be reached.

        Raises:
            DuptError: it cannot.
        """

    @abstractmethod
    def runs(self) -> bool:
        """Whether the service runs."""

    @abstractmethod
    def start(self) -> None:
        """Start the service that lies at `path`, now and with each session; a running one starts anew.

        Raises:
            DuptError: the manager refuses that.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop it now and for good; it saves a checkpoint and leaves the swarm.

        Raises:
            DuptError: the manager refuses that.
        """

    @abstractmethod
    def forget(self) -> None:
        """The file at `path` is gone."""

    @abstractmethod
    def status(self) -> int:
        """Print how it is, in the manager's words; its exit code, 0 while it runs."""

    def tell(self, *command: str) -> None:
        """Have the manager do this.

        Raises:
            DuptError: it refuses.
        """
        if error := self.ask(*command):
            words = " ".join((*self.tool, *command))
            raise DuptError(f"{words}: {error}; {self.path} is as it was written")

    def ask(self, *command: str) -> str:
        """What went wrong with this, or nothing."""
        try:
            done = subprocess.run([*self.tool, *command], capture_output=True, text=True, check=False)
        except OSError as error:
            return str(error)
        return done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else ""

    def show(self, *command: str) -> int:
        """Let the user see what the manager says; its exit code."""
        return subprocess.run([*self.tool, *command], check=False).returncode
