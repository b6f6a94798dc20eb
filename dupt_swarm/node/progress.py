"""How full the current round is, as far as the records tell."""

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
        return min(1.0, self.tokens / self.target)

    @property
    def complete(self) -> bool:
        """Whether the round should end."""
        # Who averages believes that the round is full. Half-believe it: records lag, but one peer
        # must not be able to end every round at once.
        return self.tokens >= self.target or (self.others_averaging and self.tokens >= self.target / 2)


def round_progress(
    manifest: Manifest, companions: tuple[Peer, ...], own_tokens: int, now: float
) -> RoundProgress:
    """Add up what the oracles of a round have done, each bounded and extrapolated to ``now``.

    A record is some seconds old, so its tokens are carried on at the peer's speed, for at most the
    record's lifetime; and no peer counts for more than its contribution can weigh.
    """
    per_round = manifest.rounds.tokens_per_round
    most = manifest.limits.max_weight_ratio * per_round
    tokens = min(float(own_tokens), most)
    for peer in companions:
        record = peer.record
        age = min(max(now - record.time, 0.0), manifest.limits.record_seconds)
        tokens += min(record.round_tokens + record.tokens_per_second * age, most)
    live = len(companions) + 1
    averaging = any(peer.record.state == "averaging" for peer in companions)
    return RoundProgress(tokens, float(per_round * live), live, averaging)
