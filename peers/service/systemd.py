"""A unit of the user's own for systemd; `peers/systemd/` has one for the whole machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import platformdirs

from dupt_swarm.errors import DuptError
from peers.service.last_join import LastJoin

UNIT = "dupt-peer.service"
TEXT = """\
# Written by `dupt-peer service install`, which writes it anew; `dupt-peer service uninstall` removes it.

[Unit]
Description=Oracle of the DUPT swarm {swarm_id}
# A machine that was offline for a day comes back by itself.
StartLimitIntervalSec=0

[Service]
WorkingDirectory={directory}
{variables}ExecStart={command}
Restart=on-failure
RestartSec=1min
# Wrong usage, another manifest, not admitted, unsuitable device: trying again does not help.
RestartPreventExitStatus=2 10 12 13
# The peer ends its own child processes; whatever is left after that is killed.
KillMode=mixed
TimeoutStopSec=2min
UMask=0077
NoNewPrivileges=yes

# The owner's own work goes first.
Nice=10
CPUWeight=20
IOWeight=20

[Install]
WantedBy=default.target
"""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "%": "%%"})


class Systemd:
    """The user's own service manager."""

    after = (
        f"it starts with your session; `journalctl --user --unit {UNIT} --follow` shows what it says\n"
        "to have it run while you are logged out, too: loginctl enable-linger"
    )

    @property
    def path(self) -> Path:
        """Of the unit."""
        return Path(platformdirs.user_config_dir()) / "systemd" / "user" / UNIT

    def text(self, last: LastJoin) -> str:
        """The unit that does as ``last`` did."""
        variables = (f"Environment={_quoted(f'{name}={value}')}\n" for name, value in last.variables.items())
        # Of a command, unlike elsewhere, `$` would begin a variable.
        command = " ".join(_quoted(word).replace("$", "$$") for word in last.command)
        return TEXT.format(
            swarm_id=last.swarm_id,
            directory=str(last.directory).replace("%", "%%"),
            variables="".join(variables),
            command=command,
        )

    def check(self) -> None:
        """Find out whether it can be reached.

        Raises:
            DuptError: it cannot.
        """
        if error := self._try("show", "--property=Version"):
            raise DuptError(
                f"systemd of this user cannot be reached ({error}); log in as that user, not by su or sudo, "
                "or set up peers/systemd/dupt-peer.service of the sources for the whole machine"
            )

    def runs(self) -> bool:
        """Whether the service runs."""
        return not self._try("is-active", "--quiet", UNIT)

    def start(self) -> None:
        """Start the service that lies at `path`, now and with each session; a running one starts anew.

        Raises:
            DuptError: systemd refuses that.
        """
        self._do("daemon-reload")
        self._do("enable", "--quiet", UNIT)
        self._do("restart", UNIT)

    def stop(self) -> None:
        """Stop it now and for good; it saves a checkpoint and leaves the swarm.

        Raises:
            DuptError: systemd refuses that.
        """
        self._do("disable", "--quiet", "--now", UNIT)

    def forget(self) -> None:
        """The file at `path` is gone."""
        self._do("daemon-reload")

    def status(self) -> int:
        """Print how it is, in systemd's words; its exit code, 0 while it runs."""
        command = ["systemctl", "--user", "--no-pager", "status", UNIT]
        return subprocess.run(command, check=False).returncode

    def _do(self, *command: str) -> None:
        if error := self._try(*command):
            raise DuptError(
                f"systemctl --user {' '.join(command)}: {error}; {self.path} is as it was written"
            )

    def _try(self, *command: str) -> str:
        """What went wrong, or nothing."""
        try:
            done = subprocess.run(
                ["systemctl", "--user", *command], capture_output=True, text=True, check=False
            )
        except OSError as error:
            return str(error)
        return done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else ""


def _quoted(word: str) -> str:
    return f'"{word.translate(_ESCAPES)}"'
