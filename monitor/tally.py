"""The monitor's counters, which must not fall when peers leave or the monitor restarts."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.fields import Count
from dupt_swarm.node.reasons import FAILURES, REFUSALS, REFUSED_MESSAGES, REJECTIONS, by_reason
from dupt_swarm.node.record import PeerRecord
from dupt_swarm.node.view import View

PEERS_REMEMBERED = 4096
# A record says how often something happened since its peer started. Nobody does more between two readings.
INCREASE_MAX = 1000

ByReason = dict[str, Count]

logger = logging.getLogger(__name__)


class Totals(BaseModel):
    """All counters at one moment; also the form in which they are kept on disk.

    Attributes:
        tokens: most that the swarm's settled state was seen to hold; None: none seen yet.
        round: of that state when it was last seen.
        round_time: when the monitor saw the round rise, seconds since the epoch.
        averaged: rounds that ended well, summed over oracles, since the monitor watches.
        failed: rounds that did not, by reason.
        rejected: contributions that peers left out of an average, by reason.
        refused: records that the monitor's node did not believe, by reason.
        refused_messages: messages of others, and what was in them, that peers refused, by reason.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    tokens: Count | None = None
    round: Count | None = None
    round_time: float | None = None
    averaged: Count = 0
    failed: ByReason = Field(default_factory=lambda: dict.fromkeys(map(str, FAILURES), 0))
    rejected: ByReason = Field(default_factory=lambda: dict.fromkeys(REJECTIONS, 0))
    refused: ByReason = Field(default_factory=lambda: dict.fromkeys(REFUSALS, 0))
    refused_messages: ByReason = Field(default_factory=lambda: dict.fromkeys(REFUSED_MESSAGES, 0))


@dataclass(frozen=True)
class Floor:
    """What the series of one peer do not fall below: tokens contributed, rounds failed."""

    tokens: int = 0
    failed: int = 0


# How often each has happened: kind and reason, which is empty for rounds that ended well. See `Totals`.
Counts = Counter[tuple[str, str]]
REASONS = {
    "failed": FAILURES,
    "rejected": REJECTIONS,
    "refused": REFUSALS,
    "refused_messages": REFUSED_MESSAGES,
}


class Tally:
    """Adds what happened between one view and the next to `totals`. For one thread.

    Attributes:
        totals: replaced as a whole.
    """

    def __init__(self, totals: Totals | None = None) -> None:
        """Start from ``totals``, if given."""
        self.totals = totals or Totals()
        self._known: OrderedDict[str, tuple[Counts, Floor]] = OrderedDict()

    def add(self, view: View) -> dict[str, Floor]:
        """Take the next view into account; the floors of its peers."""
        # Refused records are the node's own count; no peer id is empty.
        increases = self._remember("", _by_kind({"refused": view.refused}), Floor())
        for peer in view.peers:
            record = peer.record
            _, before = self._known.get(peer.peer_id, (None, Floor()))
            floor = Floor(max(before.tokens, record.tokens_total), max(before.failed, record.failed_rounds))
            increases += self._remember(peer.peer_id, _counted_by(record), floor)
        self.totals = self.totals.model_copy(update=self._sums(increases) | self._position(view))
        return {peer.peer_id: self._known[peer.peer_id][1] for peer in view.peers}

    def _remember(self, peer_id: str, counts: Counts, floor: Floor) -> Counts:
        """How much each count has risen since this peer was last seen; nothing at first sight."""
        before = self._known.get(peer_id)
        self._known[peer_id] = counts, floor
        self._known.move_to_end(peer_id)
        if len(self._known) > PEERS_REMEMBERED:
            self._known.popitem(last=False)
        if before is None:
            return Counter()
        return Counter({what: _increase(before[0][what], count) for what, count in counts.items()})

    def _sums(self, increases: Counts) -> dict[str, object]:
        sums: dict[str, Any] = {"averaged": self.totals.averaged + increases["averaged", ""]}
        for kind, reasons in REASONS.items():
            before = getattr(self.totals, kind)
            sums[kind] = {reason: before.get(reason, 0) + increases[kind, reason] for reason in reasons}
        return sums

    def _position(self, view: View) -> dict[str, object]:
        settled, before = view.settled, self.totals
        if settled is None:
            return {}
        rose = before.round is None or settled.record.round > before.round
        return {
            "tokens": max(settled.record.swarm_tokens, before.tokens or 0),
            "round": settled.record.round,
            "round_time": view.time if rose else before.round_time,
        }


def load_totals(path: Path) -> Totals | None:
    """What `save_totals` wrote to ``path``; None if there is no such file, or it is damaged."""
    try:
        return Totals.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        logger.warning("%s: not readable, counters start from zero (%s)", path, error)
        return None


def save_totals(path: Path, totals: Totals) -> None:
    """Write ``totals`` to ``path``, atomically.

    Raises:
        FileError: it cannot be written.
    """
    write_atomically(path, lambda file: file.write_text(totals.model_dump_json()))


def _increase(before: int, now: int) -> int:
    # A count that fell belongs to a peer that started again: all of it is new.
    return min(now - before if now >= before else now, INCREASE_MAX)


def _counted_by(record: PeerRecord) -> Counts:
    """What has happened since that peer started."""
    averaged: Counts = Counter({("averaged", ""): record.averaged_rounds})
    return averaged + _by_kind(
        {
            "failed": by_reason(record.failures, FAILURES),
            "rejected": by_reason(record.rejections, REJECTIONS),
            "refused_messages": by_reason(record.refused, REFUSED_MESSAGES),
        }
    )


def _by_kind(found: Mapping[str, Mapping[str, int]]) -> Counts:
    return Counter(
        {(kind, reason): count for kind, counts in found.items() for reason, count in counts.items()}
    )
