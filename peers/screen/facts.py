"""What panel and log show; plain data, and the words for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.model import ModelKind
from dupt_swarm.node.messages import Downloading
from dupt_swarm.node.view import View
from dupt_swarm.oracle.status import Status
from peers.screen import words

CALLED: dict[ModelKind, str] = {"decoder": "GPT", "encoder": "BERT", "encoder-decoder": "Transformer"}


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
        return f"{CALLED[shape.kind]} {shape.blocks} × {shape.width}, {words.amount(self.weights)} weights"


@dataclass(frozen=True)
class Flow:
    """Bytes in one direction: since the start, per second of late, and the most allowed per second."""

    total: int
    per_second: float
    limit: float | None

    def __str__(self) -> str:
        """Such as ``12.3 MB, 400 kB/s of 1.00 MB/s``."""
        limit = ", no limit" if self.limit is None else f" of {words.amount(self.limit, 'B/s')}"
        return f"{words.amount(self.total, 'B')}, {words.amount(self.per_second, 'B/s')}{limit}"


@dataclass(frozen=True)
class Facts:
    """Everything that there is to show at one moment.

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

    def by_label(self) -> dict[str, str]:
        """What the oracle does and gives, what the network carries, and what rounds cost, in words."""
        status, view, record = self.status, self.view, self.view.record(self.about.peer_id)
        failed = f", {status.failed_rounds} failed in all" if status.failed_rounds else ""
        speed = status.tokens_per_second
        share = words.percent(speed, self._total_speed)
        oracles = words.plural(len(view.oracles), "oracle")
        reach = record.reach if record else "–"
        return {
            "rounds": f"{status.rounds_done} this session{failed}; last round {words.last_round(status)}",
            "speed": f"{speed:,.0f} tokens/s, {share} of {oracles}; reach {reach}",
            "given": f"{words.amount(self._given)} tokens, {self._part_given}{self._place}",
            "network": f"↑ {self.up}   ↓ {self.down}",
            "per round": words.costs(record),
        }

    @property
    def round_full(self) -> str:
        """How full the round is."""
        return words.percent(self.status.progress.ratio, 1.0)

    @property
    def round_end(self) -> str:
        """How the round will end, as far as that is known."""
        if self.status.state == "averaging":
            return "averaging"
        if self.status.state == "paused":
            return "`dupt-peer resume` continues"
        if self.fetching is not None:
            ratio = words.percent(self.fetching.bytes_done, self.fetching.bytes_total)
            return f"fetching a newer state: {ratio}"
        seconds = self.round_ends_in
        return "" if seconds is None else f"ends in about {words.duration(seconds)}"

    @property
    def _given(self) -> int:
        """Ever: the chain knows of a time of which this folder may know nothing, and is a moment late."""
        ledger_place = self.status.ledger_place
        return max(self.status.contributed_tokens, ledger_place.tokens if ledger_place else 0)

    @property
    def _place(self) -> str:
        ledger_place = self.status.ledger_place
        if ledger_place is None or ledger_place.place is None or not ledger_place.whole:
            return ""
        return f", place {ledger_place.place:,} of {ledger_place.contributors:,}"

    @property
    def _part_given(self) -> str:
        agreed, own = self.view.agreed, self._given
        whole = agreed.record.swarm_tokens if agreed else 0
        # Records lag behind: our last contribution may not be in what others tell.
        return f"{100 * own / max(own, whole):.1f} % of the swarm's" if whole else "none in the swarm yet"

    @property
    def _total_speed(self) -> float:
        """Tokens per second of all oracles together; others may claim what they like, see `View.speeds`."""
        speeds = self.view.speeds(self.about.manifest.limits)
        others = (speed for each, speed in speeds.items() if each != self.about.peer_id)
        return self.status.tokens_per_second + sum(others)

    @property
    def round_ends_in(self) -> float | None:
        """Seconds until the round will be full at today's speed, or out of time; None: unknown."""
        status, rounds, speed = self.status, self.about.manifest.rounds, self._total_speed
        if status.state != "training" or speed <= 0:
            return None
        left = max(0.0, status.progress.target - status.progress.tokens)
        return min(left / speed, max(0.0, rounds.max_round_seconds - self.round_seconds))
