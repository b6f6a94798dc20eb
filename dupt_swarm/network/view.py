"""What a peer says of itself in the DHT, and what follows from all records together."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.reasons import FAILURES, REJECTIONS

Role = Literal["oracle", "bootstrap", "evaluator"]
PeerState = Literal["starting", "syncing", "training", "averaging", "paused", "stopping"]
Count = Annotated[int, Field(ge=0, lt=1 << 62)]
LOSS_MAX = BITS_PER_BYTE_MAX = 1e6
Loss = Annotated[float, Field(ge=0, le=LOSS_MAX)]
SmallCount = Annotated[int, Field(ge=0, lt=1 << 32)]
Reach = Literal["direct", "relayed", "client"]
Address = Annotated[str, Field(max_length=160, pattern=r"^(/[A-Za-z0-9.:_-]+)+$")]
DATASET_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$"


class EvaluationRecord(BaseModel):
    """What an evaluator measured: the swarm's state of one round on text that no oracle trains on."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)

    dataset: str = Field(pattern=DATASET_PATTERN, description="what the evaluator calls its corpus")
    bits_per_byte: float = Field(
        ge=0, le=BITS_PER_BYTE_MAX, description="of UTF-8, comparable between tokenizers"
    )
    loss_nats: Loss = Field(description="per token")
    round: Count
    time: float = Field(ge=0, le=1e11, description="when it was measured")


class PeerRecord(BaseModel):
    """A small signed statement of one peer in the DHT; times in seconds since the epoch."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)

    role: Role
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
    heldout_bits_per_byte: Loss | None = Field(default=None, description="of UTF-8")
    averaging_seconds: float = Field(
        default=0.0, ge=0, le=1e9, description="from the end of the last round to the new state"
    )
    averaged_rounds: SmallCount = Field(default=0, description="ended well since the peer started")
    failures: tuple[SmallCount, ...] = Field(
        default=(), max_length=len(FAILURES), description="rounds that failed, in the order of FAILURES"
    )
    rejections: tuple[SmallCount, ...] = Field(
        default=(), max_length=len(REJECTIONS), description="contributions, in the order of REJECTIONS"
    )
    checkpoint_round: Count | None = Field(default=None, description="of the newest one on its disk")
    checkpoint_time: float = Field(default=0.0, ge=0, le=1e11, description="when that was written")
    evaluation: EvaluationRecord | None = Field(default=None, description="an evaluator's last one")
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
    """The live peers as the DHT shows them at ``time``, sorted by peer id.

    ``refused`` counts, by reason, the records that were not believed since the node started.
    """

    time: float
    peers: tuple[Peer, ...]
    refused: Mapping[str, int] = field(default_factory=dict)

    @property
    def oracles(self) -> tuple[Peer, ...]:
        """Those who train."""
        return tuple(peer for peer in self.peers if peer.record.role == "oracle")

    @property
    def best(self) -> Peer | None:
        """A peer with the state that all should have: most tokens, then most holders, then digest.

        More tokens, so that two halves of a swarm that was split agree. Most holders, so that a peer
        whose memory went bad does not pass that on.
        """
        holders = Counter(peer.record.state_digest for peer in self.peers)

        def rank(peer: Peer) -> tuple[int, int, str]:
            digest = peer.record.state_digest
            return peer.record.swarm_tokens, holders[digest], digest

        return max(self.peers, key=rank, default=None)

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

    @property
    def evaluations(self) -> dict[str, EvaluationRecord]:
        """By dataset, what its evaluators found of the newest round: the median, if there are several."""
        best = self.best
        newest: dict[str, list[EvaluationRecord]] = {}
        for peer in self.peers:
            found = peer.record.evaluation if peer.record.role == "evaluator" else None
            # Nobody can have measured what the swarm has not reached.
            if found is None or best is None or found.round > best.record.round:
                continue
            known = newest.setdefault(found.dataset, [])
            if not known or found.round > known[0].round:
                known[:] = [found]
            elif found.round == known[0].round:
                known.append(found)
        return {
            dataset: sorted(found, key=lambda one: one.bits_per_byte)[(len(found) - 1) // 2]
            for dataset, found in sorted(newest.items())
        }

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

    def behind(self, tokens: int, but: Collection[str] = ()) -> tuple[Peer, ...]:
        """Oracles at work whose states have fewer than ``tokens``, without the peers ``but``."""
        return tuple(
            peer
            for peer in self.oracles
            if peer.record.state in ("training", "averaging")
            and peer.record.swarm_tokens < tokens
            and peer.peer_id not in but
        )

    def arriving(self, mates: Collection[str], round: int, digest: str, began: float) -> tuple[Peer, ...]:
        """Those of ``mates`` whose records are from before ``began``, as they will be in state ``digest``."""
        return tuple(
            peer.at_state(round, digest, began)
            for peer in self.oracles
            if peer.peer_id in mates and peer.record.time <= began
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
