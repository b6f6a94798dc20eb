"""A unit of the user's own for systemd; `peers/systemd/` has one for the whole machine."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from dupt_swarm.errors import DuptError
from peers.service.last_join import LastJoin
from peers.service.manager import Manager

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


class Systemd(Manager):
    """`Manager` documents its methods."""

    tool = ("systemctl", "--user")

    @property
    def after(self) -> str:
        return (
            f"it starts with your session; `journalctl --user --unit {UNIT} --follow` shows what it says\n"
            "to have it run while you are logged out, too: loginctl enable-linger"
        )

    @property
    def path(self) -> Path:
        return Path(platformdirs.user_config_dir()) / "systemd" / "user" / UNIT

    def text(self, last: LastJoin) -> str:
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
        if error := self.ask("show", "--property=Version"):
            raise DuptError(
                f"systemd of this user cannot be reached ({error}); log in as that user, not by su or sudo, "
                "or set up peers/systemd/dupt-peer.service of the sources for the whole machine"
            )

    def runs(self) -> bool:
        return not self.ask("is-active", "--quiet", UNIT)

    def start(self) -> None:
        self.tell("daemon-reload")
        self.tell("enable", "--quiet", UNIT)
        self.tell("restart", UNIT)

    def stop(self) -> None:
        self.tell("disable", "--quiet", "--now", UNIT)

    def forget(self) -> None:
        self.tell("daemon-reload")

    def status(self) -> int:
        return self.show("--no-pager", "status", UNIT)


def _quoted(word: str) -> str:
    return f'"{word.translate(_ESCAPES)}"'
