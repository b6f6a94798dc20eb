"""The live peers as one peer sees them, and what follows from all their records together."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from dupt_swarm.node.record import EvaluationRecord, PeerRecord


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
