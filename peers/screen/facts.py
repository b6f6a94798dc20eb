"""What the panel shows; plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dupt_swarm.manifest import Manifest
from dupt_swarm.node.view import View
from peers.screen import words

if TYPE_CHECKING:
    from dupt_swarm.node.messages import Downloading
    from dupt_swarm.oracle.status import Status


@dataclass(frozen=True)
class About:
    """What stays the same while an oracle runs.

    Attributes:
        name: of this peer.
        peer_id: likewise.
        manifest: of the swarm.
        weights: how many the model has.
        device: what it trains on.
        corpus: what it trains on, in words.
        max_upload: bytes per second; None: no limit.
        max_download: likewise.
    """

    name: str
    peer_id: str
    manifest: Manifest
    weights: int
    device: str
    corpus: str
    max_upload: float | None = None
    max_download: float | None = None

    @property
    def model(self) -> str:
        """The model's size in words."""
        shape = self.manifest.model
        return f"GPT {shape.layers} × {shape.width}, {words.amount(self.weights)} weights"


@dataclass(frozen=True)
class Flow:
    """Bytes in one direction: since the start, per second of late, and the most allowed per second."""

    total: int
    per_second: float
    limit: float | None


@dataclass(frozen=True)
class Facts:
    """Everything on the panel at one moment.

    Attributes:
        about: what stays the same.
        status: of the oracle.
        view: the live peers.
        up: bytes sent.
        down: bytes received.
        round_seconds: how long the round has lasted.
        losses: training losses since the start, oldest first.
        held_out: held-out losses, likewise.
        events: what happened, oldest first, a line each.
        fetching: how far a newer state is, which then ends this round; None: none is under way.
    """

    about: About
    status: Status
    view: View
    up: Flow
    down: Flow
    round_seconds: float = 0.0
    losses: Sequence[float] = ()
    held_out: Sequence[float] = ()
    events: Sequence[str] = ()
    fetching: Downloading | None = None

    @property
    def swarm_tokens(self) -> int:
        """Tokens in the newest state of the swarm."""
        agreed = self.view.agreed
        return agreed.record.swarm_tokens if agreed else 0

    @property
    def round_ends_in(self) -> float | None:
        """Seconds until the round will be full at today's speed, or out of time; None: unknown."""
        status, rounds = self.status, self.about.manifest.rounds
        speed = words.total_speed(status, self.view, self.about.peer_id)
        if status.state != "training" or speed <= 0:
            return None
        left = max(0.0, status.progress.target - status.progress.tokens)
        return min(left / speed, max(0.0, rounds.max_round_seconds - self.round_seconds))
