"""The live peers as one peer sees them, and what their records add up to."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from dupt_swarm.manifest import Limits, Manifest
from dupt_swarm.node.reasons import REFUSED_MESSAGES, REJECTIONS, by_reason
from dupt_swarm.node.record import EvaluationRecord, PeerRecord, SampleRecord, TaskResult

Result = TypeVar("Result", EvaluationRecord, TaskResult)
Name = TypeVar("Name", str, tuple[str, str])
State: TypeAlias = tuple[int, int, str]  # tokens, round, digest, as a record says them

SHOWN_MAX = 4  # peers that others accuse: anybody can invent more


@dataclass(frozen=True)
class Peer:
    """A record with the peer id that its signature proves."""

    peer_id: str
    record: PeerRecord


@dataclass(frozen=True)
class View:
    """The live peers as their records show them at ``time``, sorted by peer id.

    ``refused`` counts, by reason, the records that were not believed since the node started. ``voters`` are
    the ids of those who vote on the state that this peer is at; nobody, if it only looks on.
    """

    time: float
    peers: tuple[Peer, ...]
    refused: Mapping[str, int] = field(default_factory=dict)
    voters: frozenset[str] = frozenset()

    @property
    def oracles(self) -> tuple[Peer, ...]:
        """The peers that train."""
        return tuple(peer for peer in self.peers if peer.record.role == "oracle")

    @property
    def at_work(self) -> tuple[Peer, ...]:
        """The oracles that take part in the rounds just now."""
        return tuple(peer for peer in self.oracles if peer.record.at_work)

    @property
    def agreed(self) -> Peer | None:
        """A peer with the newest state that half of the oracles at work have reached: what to tell people.

        Not simply the newest: one peer that lies must not move the swarm's round for everybody. While
        no oracle is at work, half of all peers count.
        """
        known = self._newest_first
        return known[(len(known) - 1) // 2] if known else None

    @property
    def settled(self) -> Peer | None:
        """As `agreed`, of more than half: for what cannot be taken back. Of two peers either may lie."""
        known = self._newest_first
        return known[len(known) // 2] if known else None

    def record(self, peer_id: str) -> PeerRecord | None:
        """What that peer says of itself; None if it is not there."""
        return self._records.get(peer_id)

    def without(self, peer_id: str) -> View:
        """This view but for one peer, if it is there."""
        return replace(self, peers=tuple(peer for peer in self.peers if peer.peer_id != peer_id))

    def speeds(self, limits: Limits) -> dict[str, float]:
        """Tokens per second of each oracle by peer id: 0 for those that are not at work.

        None is more than `max_weight_ratio` × the median, as with weights: nobody's word may count for
        more than that, and one that claims a trillion would own every share.
        """
        speeds = {
            peer.peer_id: peer.record.tokens_per_second if peer.record.at_work else 0.0
            for peer in self.oracles
        }
        usual = statistics.median([speed for speed in speeds.values() if speed] or [0.0])
        return {peer_id: min(speed, limits.max_weight_ratio * usual) for peer_id, speed in speeds.items()}

    def loss(self, limits: Limits) -> float | None:
        """Mean loss of the oracles, weighted by their speeds, nats per token."""
        speeds = self.speeds(limits)
        known = [
            (peer.record.loss, speeds[peer.peer_id] + 1e-9)
            for peer in self.oracles
            if peer.record.loss is not None
        ]
        total = sum(weight for _, weight in known)
        return sum(loss * weight for loss, weight in known) / total if known else None

    @property
    def utilization(self) -> float | None:
        """Part of their time that rounds leave the oracles for training, 0 to 1: their median."""
        known = [one.record.utilization for one in self.oracles if one.record.utilization is not None]
        return statistics.median(known) if known else None

    @property
    def refusals(self) -> dict[str, dict[str, int]]:
        """What these peers have refused since each started, by kind and reason; what is zero is left out."""
        kinds = {
            "messages": [by_reason(peer.record.refused, REFUSED_MESSAGES) for peer in self.peers],
            "contributions": [by_reason(peer.record.rejections, REJECTIONS) for peer in self.peers],
        }
        sums = {kind: sum(map(Counter, counts), Counter[str]()) for kind, counts in kinds.items()}
        return {kind: dict(found) for kind, found in sums.items() if found}

    @property
    def exposed(self) -> dict[str, int]:
        """How many of these peers leave out who has contradicted itself, by its id; the most at first."""
        found = Counter(each for peer in self.peers for each in set(peer.record.exposed))
        return dict(found.most_common(SHOWN_MAX))

    @property
    def disagreeing(self) -> int:
        """How many hold another state than most of their round; those of an older one are merely late."""
        rounds: dict[int, Counter[str]] = {}
        for peer in self.peers:
            rounds.setdefault(peer.record.round, Counter())[peer.record.state_digest] += 1
        return sum(digests.total() - max(digests.values()) for digests in rounds.values())

    @property
    def first_peers(self) -> tuple[Peer, ...]:
        """The peers that keep the state, and train nothing."""
        return tuple(peer for peer in self.peers if peer.record.role == "bootstrap")

    @property
    def evaluators(self) -> tuple[tuple[Peer, EvaluationRecord], ...]:
        """The evaluators that have measured something, with what each has measured."""
        return tuple(
            (peer, found)
            for peer in self.peers
            if peer.record.role == "evaluator"
            and (found := peer.record.evaluation) is not None
            and found.round <= self.reached
        )

    @property
    def latest_sample(self) -> tuple[Peer, EvaluationRecord, SampleRecord] | None:
        """The evaluator whose sample is of the newest round, if one has any, and what it has measured."""
        shown = [(peer, found, found.sample) for peer, found in self.evaluators if found.sample is not None]
        return max(shown, key=lambda each: (each[1].round, each[0].peer_id), default=None)

    @property
    def evaluations(self) -> dict[str, EvaluationRecord]:
        """By dataset, in order, its evaluators' result for the newest round: the median of several."""
        found = (one for _, one in self.evaluators)
        return _newest(found, lambda one: one.dataset, lambda one: one.figure)

    @property
    def tasks(self) -> dict[tuple[str, str], TaskResult]:
        """By task and metric, the evaluators' result for the newest round, likewise."""
        return _newest(
            (one for peer in self.peers for one in self.tasks_of(peer)),
            lambda one: (one.task, one.metric),
            lambda one: one.value,
        )

    def tasks_of(self, peer: Peer) -> tuple[TaskResult, ...]:
        """What one says of tasks, if it is an evaluator, of rounds that the swarm has reached."""
        if peer.record.role != "evaluator":
            return ()
        return tuple(one for one in peer.record.tasks if one.round <= self.reached)

    @cached_property
    def reached(self) -> int:
        """The round of the agreed state: nobody can have measured a later one, whatever evaluators claim."""
        agreed = self.agreed
        return agreed.record.round if agreed else -1

    def holders(self, digest: str) -> list[str]:
        """Ids of the peers that hold the state ``digest``."""
        return [peer.peer_id for peer in self.peers if peer.record.state_digest == digest]

    def companions(self, digest: str, but: str = "") -> tuple[Peer, ...]:
        """Oracles that work on the round after state ``digest``, without peer ``but``."""
        return tuple(
            peer for peer in self.at_work if peer.record.state_digest == digest and peer.peer_id != but
        )

    def stragglers(self, tokens: int, but: Collection[str] = ()) -> tuple[Peer, ...]:
        """Oracles at work on states of fewer than ``tokens``, without the peers ``but``."""
        return tuple(
            peer for peer in self.at_work if peer.record.swarm_tokens < tokens and peer.peer_id not in but
        )

    def arriving(self, mates: Collection[str], round: int, digest: str, began: float) -> tuple[Peer, ...]:
        """Those of ``mates`` whose records are from before ``began``, as if in state ``digest`` by then."""
        there = {
            "round": round,
            "state_digest": digest,
            "time": began,
            "round_tokens": 0,
            "state": "training",
        }
        return tuple(
            Peer(peer.peer_id, peer.record.model_copy(update=there))
            for peer in self.oracles
            if peer.peer_id in mates and peer.record.time <= began
        )

    def to_json(self, manifest: Manifest) -> dict[str, Any]:
        """The public shape of ``dupt-peer status --json``."""
        agreed = self.agreed
        return {
            "swarm_id": manifest.swarm_id,
            "round": agreed.record.round if agreed else 0,
            "loss": self.loss(manifest.limits),
            "tokens_total": agreed.record.swarm_tokens if agreed else 0,
            "refused": self.refusals,
            "exposed": self.exposed,
            "peers": [{"peer_id": peer.peer_id, **peer.record.model_dump()} for peer in self.peers],
        }

    @property
    def _newest_first(self) -> list[Peer]:
        """The oracles at work, or else all peers, by their states."""
        return sorted(self.at_work or self.peers, key=self._rank_of, reverse=True)

    @cached_property
    def _records(self) -> dict[str, PeerRecord]:
        return {peer.peer_id: peer.record for peer in self.peers}

    @cached_property
    def _holders(self) -> Counter[State]:
        return Counter(map(_state_of, self.peers))

    def _rank_of(self, peer: Peer) -> tuple[int, int, State]:
        """Tokens, how many say the same of that state, and what they say: who ties says the same."""
        state = _state_of(peer)
        return peer.record.swarm_tokens, self._holders[state], state


def _newest(
    results: Iterable[Result], named: Callable[[Result], Name], figure: Callable[[Result], float]
) -> dict[Name, Result]:
    """By what they are ``named`` those of the newest round: the median, if there are several."""
    newest: dict[Name, list[Result]] = {}
    for found in results:
        known = newest.setdefault(named(found), [])
        if not known or found.round > known[0].round:
            known[:] = [found]
        elif found.round == known[0].round:
            known.append(found)
    return {name: sorted(found, key=figure)[(len(found) - 1) // 2] for name, found in sorted(newest.items())}


def _state_of(peer: Peer) -> State:
    return peer.record.swarm_tokens, peer.record.round, peer.record.state_digest
