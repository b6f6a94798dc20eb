"""Whether the peer of this machine is well: ``dupt-peer status --health``."""

from __future__ import annotations

import json
from typing import Any

import click

from dupt_swarm.errors import DuptError
from peers.control.client import LocalPeer

# A step, an evaluation or a compilation may take minutes; a hung trainer never finishes.
SILENCE_SECONDS_MAX = 300.0


def show_health(peer: LocalPeer, as_json: bool) -> None:
    """Say how the peer is.

    Raises:
        DuptError: it is not well.
    """
    about = peer.about
    healthy = is_healthy(about)
    if as_json:
        click.echo(json.dumps({"healthy": healthy, **about}))
    if not healthy:
        raise DuptError(
            f"{about['swarm_id']}: no sign of life for {about['silence_seconds']:.0f} s; start the peer again"
        )
    if not as_json:
        click.echo(f"{about['swarm_id']}: {about['state']} at round {about['round']}")


def is_healthy(about: dict[str, Any]) -> bool:
    """Whether a peer's answer to ``status`` shows one that trains, follows, starts or is paused."""
    return bool(about["silence_seconds"] <= SILENCE_SECONDS_MAX)
