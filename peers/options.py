"""Options that several commands have, and how options become settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

Settings = TypeVar("Settings")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

# Slower than this not even one chunk at a time arrives within the time limits.
RATE_MIN = 100e3
_UNITS = {"": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}


class Rate(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """Bytes per second, written like 10MB or 500kB."""

    name = "RATE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The bytes per second that ``value`` says."""
        if not isinstance(value, str):
            return float(value)
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(B|kB|MB|GB)?(?:/s)?", value.strip())
        if match is None:
            self.fail(
                f"{value!r} is no rate in bytes per second; write it like 10MB or 500kB "
                "(a link of 100 Mbit/s moves 12.5MB)",
                param,
                ctx,
            )
        rate = float(match[1]) * _UNITS[match[2] or ""]
        if rate < RATE_MIN:
            self.fail(f"{value!r} is less than 100kB per second, too little to take part", param, ctx)
        return rate


initial_peers = click.option(
    "--initial-peers",
    multiple=True,
    required=True,
    metavar="ADDRESS",
    help="Multiaddr of a peer of the swarm, ending in /p2p/<peer id>. Repeatable.",
)
swarm_id = click.option(
    "--swarm", "swarm_id", default="", metavar="ID", help="Refuse any other swarm than this one."
)
state_dir = click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Where to keep state, a sub-folder per swarm. [default: the platform's state folder]",
)
name = click.option("--name", default="", help="Shown to the other peers.")
max_upload = click.option(
    "--max-upload",
    type=Rate(),
    default=None,
    help="Send at most so many bytes (not bits) per second, such as 10MB or 500kB. [default: no limit]",
)
max_download = click.option(
    "--max-download",
    type=Rate(),
    default=None,
    help="Receive at most so many bytes (not bits) per second, such as 10MB or 500kB. [default: no limit]",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")


def host_maddrs(default: tuple[str, ...]) -> Decorator:
    """``--host-maddrs``, repeatable."""
    return click.option(
        "--host-maddrs",
        multiple=True,
        default=default,
        show_default=True,
        metavar="ADDRESS",
        help="Multiaddr to listen on. Repeatable.",
    )


def pick(settings: type[Settings], options: dict[str, Any], **more: Any) -> Settings:
    """The settings whose fields have the names of these options."""
    names = {field.name for field in fields(settings)}  # type: ignore[arg-type]
    return settings(**{key: value for key, value in options.items() if key in names}, **more)
