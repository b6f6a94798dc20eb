"""What a peer says of itself in the DHT, and what follows from all records together."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.manifest import Manifest

PeerState = Literal["starting", "syncing", "training", "averaging", "paused", "stopping"]
Count = Annotated[int, Field(ge=0, lt=1 << 62)]
Loss = Annotated[float, Field(ge=0, le=1e6)]
Reach = Literal["direct", "relayed", "client"]
Address = Annotated[str, Field(max_length=160, pattern=r"^(/[A-Za-z0-9.:_-]+)+$")]


class PeerRecord(BaseModel):
    """A small signed statement of one peer in the DHT; times in seconds since the epoch."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)

    role: Literal["oracle", "bootstrap"]
    state: PeerState
    time: float = Field(ge=0, le=1e11)
    round: Count
    state_digest: str = Field(pattern="^[0-9a-f]{64}$")
    swarm_tokens: Count = Field(description="tokens in the replica state")
    round_tokens: Count = Field(default=0, description="own tokens since the last contribution")
    tokens_total: Count = Field(default=0, description="own tokens contributed, all sessions")
    tokens_per_second: float = Field(default=0.0, ge=0, le=1e12)
    loss: Loss | None = None
    heldout_loss: Loss | None = None
    group_size: int = Field(default=0, ge=0, le=1 << 20, description="peers in the last all-reduce")
    round_seconds: float = Field(default=0.0, ge=0, le=1e9, description="length of the last round")
    failed_rounds: Count = 0
    name: str = Field(default="", max_length=40)
    version: str = Field(default="", max_length=20)
    device: str = Field(default="", max_length=60)
    reach: Reach = Field(default="direct", description="how others can call this peer")
    addresses: tuple[Address, ...] = Field(
        default=(), max_length=3, description="multiaddrs without the peer id, the best first"
    )


@dataclass(frozen=True)
class Peer:
    """A record with the peer id that its signature proves."""

    peer_id: str
    record: PeerRecord

    def at_state(self, round: int, digest: str, time: float) -> Peer:
        """This peer as its next record will show it, if it reached that state at ``time``."""
        update = {
            "round": round,
            "state_digest": digest,
            "time": time,
            "round_tokens": 0,
            "state": "training",
        }
        return Peer(self.peer_id, self.record.model_copy(update=update))

    def to_json(self) -> dict[str, Any]:
        """Every field of the record beside the peer id."""
        return {"peer_id": self.peer_id, **self.record.model_dump()}


@dataclass(frozen=True)
class View:
    """The live peers as the DHT shows them at ``time``, sorted by peer id."""

    time: float
    peers: tuple[Peer, ...]

    @property
    def oracles(self) -> tuple[Peer, ...]:
        """Those who train."""
        return tuple(peer for peer in self.peers if peer.record.role == "oracle")

    @property
    def best(self) -> Peer | None:
        """A peer with the state that all should have: most tokens, then the greater digest."""
        return max(
            self.peers,
            key=lambda peer: (peer.record.swarm_tokens, peer.record.state_digest),
            default=None,
        )

    @property
    def loss(self) -> float | None:
        """Mean loss of the oracles, weighted by their speed, nats per token."""
        known = [peer.record for peer in self.oracles if peer.record.loss is not None]
        if not known:
            return None
        # Nobody's word counts for more than a few times what is usual.
        bound = 4 * statistics.median(record.tokens_per_second for record in known)
        weights = [min(record.tokens_per_second, bound) + 1e-9 for record in known]
        pairs = zip(known, weights, strict=True)
        return sum((record.loss or 0.0) * weight for record, weight in pairs) / sum(weights)

    def holders(self, digest: str) -> list[str]:
        """Ids of the peers that hold the state ``digest``."""
        return [peer.peer_id for peer in self.peers if peer.record.state_digest == digest]

    def companions(self, digest: str, but: str) -> tuple[Peer, ...]:
        """Oracles that work on the round after state ``digest``, without peer ``but``."""
        return tuple(
            peer
            for peer in self.oracles
            if peer.record.state_digest == digest
            and peer.record.state in ("training", "averaging")
            and peer.peer_id != but
        )

    def to_json(self, swarm_id: str) -> dict[str, Any]:
        """The public shape of ``dupt-peer status --json``."""
        best = self.best
        return {
            "swarm_id": swarm_id,
            "round": best.record.round if best else 0,
            "loss": self.loss,
            "tokens_total": best.record.swarm_tokens if best else 0,
            "peers": [peer.to_json() for peer in self.peers],
        }


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
