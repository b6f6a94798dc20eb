"""The progress of the current round, as far as the records tell."""

from __future__ import annotations

from dataclasses import dataclass

from dupt_swarm.manifest import Manifest
from dupt_swarm.node.view import Peer


@dataclass(frozen=True)
class RoundProgress:
    """How full the current round is, in tokens of all its oracles together."""

    tokens: float
    target: float
    live: int
    others_averaging: bool

    @property
    def ratio(self) -> float:
        """From 0 to 1."""
        return min(1.0, self.tokens / self.target) if self.target else 0.0

    @property
    def complete(self) -> bool:
        """Whether the round should end."""
        # A peer that averages says that the round is full. Trust it only once half the tokens are in:
        # records lag, but one peer must not be able to end every round at once.
        enough = self.target / 2 if self.others_averaging else self.target
        return self.live > 0 and self.tokens >= enough


def round_progress(
    manifest: Manifest, round: int, oracles: tuple[Peer, ...], now: float, own_tokens: int | None = None
) -> RoundProgress:
    """Add up what the oracles of a round have done, each bounded and extrapolated to ``now``.

    A record is some seconds old, so its tokens are carried on at the peer's speed, for at most the
    record's lifetime; and no peer counts for more than its contribution can weigh.

    Args:
        manifest: of the swarm.
        round: rounds completed.
        oracles: of this round, as their records show them; without the one that asks.
        now: seconds since the epoch.
        own_tokens: of the oracle that asks; None: who asks only looks on.
    """
    tokens, most = 0.0, manifest.weight_limit(round)
    for peer in oracles:
        record = peer.record
        age = min(max(now - record.time, 0.0), manifest.limits.record_seconds)
        tokens += min(record.round_tokens + record.tokens_per_second * age, most)
    live = len(oracles)
    if own_tokens is not None:
        tokens += min(own_tokens, most)
        live += 1
    averaging = any(peer.record.state == "averaging" for peer in oracles)
    return RoundProgress(tokens, float(manifest.tokens_per_round(round) * live), live, averaging)
