"""Auditing: past rounds are computed again, from what the swarm's peers still hold of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from dupt_swarm.errors import NodeError
from dupt_swarm.network.averaging.pledge import Vote
from dupt_swarm.network.averaging.roll import Statement
from dupt_swarm.network.host import Host, background
from dupt_swarm.network.joining.connection import Connection
from dupt_swarm.network.p2p.rpc import CallError
from dupt_swarm.network.pulling import ASKED_MAX, meet, states_held
from dupt_swarm.network.states.replaying import fetch_inputs
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.node.commands import Audit
from dupt_swarm.node.messages import AuditedRound, Verdict
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.log_entry import Input, LogEntry
from dupt_swarm.replica.replay import replay
from dupt_swarm.replica.signed import from_text
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.voters import Voters


def check_evidence(entry: LogEntry, swarm_id: str, voters: Voters) -> None:
    """Refuse an entry whose signatures do not say what it says. (Averages are not signed.)

    ``voters`` are those of the state before; who of them was not there is not known afterwards.

    Raises:
        ValueError: says why.
    """
    {"share": _check_shared, "reduce": _check_reduced}[entry.exchange](entry, swarm_id)
    voted = {_check_vote(each, entry, swarm_id) for each in entry.votes}
    there = [peer for peer in entry.members if peer in voters] or entry.members
    if 2 * len(voted.intersection(there)) <= len(there):
        raise ValueError("not more than half of the voters have signed for the state that follows")


def _check_reduced(entry: LogEntry, swarm_id: str) -> None:
    del swarm_id
    if len(entry.inputs) != 1 or entry.inputs[0].maker:
        raise ValueError("a round that was reduced has one average")


def _check_shared(entry: LogEntry, swarm_id: str) -> None:
    for each in entry.inputs:
        _check_statement(each, entry, swarm_id)
    if len({each.maker for each in entry.inputs}) != len(entry.inputs):
        raise ValueError("a member contributed twice")


def _check_vote(text: str, entry: LogEntry, swarm_id: str) -> str:
    """Who has voted."""
    vote = Vote.read(from_text(text))
    subject = vote.subject
    if (subject.swarm_id, subject.round, subject.before, vote.digest) != (
        swarm_id,
        entry.round - 1,
        entry.before,
        entry.after,
    ):
        raise ValueError("a vote is for another state")
    if vote.maker not in entry.members:
        raise ValueError("a vote of nobody in the group")
    return vote.maker


def _check_statement(each: Input, entry: LogEntry, swarm_id: str) -> None:
    statement = Statement.read(from_text(each.statement), swarm_id)
    claim = Claim(entry.round - 1, entry.before, each.tokens, each.maker)
    if (statement.claim, statement.digest) != (claim, each.digest) or each.maker not in entry.members:
        raise ValueError("a contribution is not the one that its maker has signed for")


async def audit(connection: Connection, host: Host, order: Audit) -> tuple[AuditedRound, ...]:
    """Compute the swarm's last rounds again; see `Audit`.

    Raises:
        NodeError: no peer tells which rounds there were.
    """
    view = await connection.membership.refresh()
    async with background(meet(connection.p2p, view)):
        auditor = await Auditor.begin(connection, host)
        newest = view.agreed.record.state_digest if view.agreed else connection.handshake.state_digest
        chain = auditor.chain_to(newest)
        if not chain:
            raise NodeError("no peer keeps a log of rounds that leads to the swarm's state; try again later")
        return await auditor.walk(chain, order.rounds or len(chain))


@dataclass(frozen=True)
class Auditor:
    """What the swarm's peers say of the past.

    Attributes:
        connection: to the swarm.
        store: fetches states.
        peers: ids of those who are asked for blobs.
        entries: by the digest of the state that follows; of several, the one that most peers keep.
        holders: who says to give which state, by its digest.
    """

    connection: Connection
    store: StateStore
    peers: list[str]
    entries: dict[str, LogEntry]
    holders: dict[str, list[str]]

    @classmethod
    async def begin(cls, connection: Connection, host: Host) -> Auditor:
        """Ask everybody for the log of rounds, and which states they hold."""
        held = await states_held(connection)
        known = [peer.peer_id for peer in connection.membership.view.peers]
        peers = list(dict.fromkeys([*connection.handshake.peer_ids, *known]))[:ASKED_MAX]
        logs = await asyncio.gather(*(_log_of(connection, peer) for peer in peers))
        told = {entry: _without_votes(entry) for log in logs for entry in log}
        common = Counter(_without_votes(entry) for log in logs for entry in log)
        entries = {entry.after: entry for entry in sorted(told, key=lambda entry: common[told[entry]])}
        store = StateStore(connection.manifest, connection.exchange, host.tell)
        return cls(connection, store, peers, entries, {digest: who for (_, digest), who in held.items()})

    def chain_to(self, digest: str) -> list[LogEntry]:
        """The rounds that lead to the state ``digest``, in order, as far back as the logs reach."""
        chain: list[LogEntry] = []
        while digest in self.entries and (not chain or chain[0].round == self.entries[digest].round + 1):
            chain.insert(0, self.entries[digest])
            digest = chain[0].before
        return chain

    async def walk(self, chain: list[LogEntry], rounds: int) -> tuple[AuditedRound, ...]:
        """Judge the last ``rounds``, from the last state before them that somebody still holds."""
        asked = max(0, len(chain) - rounds)
        held = [number for number in range(asked + 1) if chain[number].before in self.holders]
        judged: list[AuditedRound] = []
        state: ReplicaState | None = None
        for entry in chain[max(held, default=asked) :]:
            if state is None:
                state = await self._fetch(entry.before)
            verdict, reason, state = await self._judge(state, entry)
            judged.append(AuditedRound(entry.round, entry.after, verdict, reason, len(entry.inputs)))
        return tuple(judged[-rounds:])

    async def _judge(
        self, state: ReplicaState | None, entry: LogEntry
    ) -> tuple[Verdict, str, ReplicaState | None]:
        """What is to be said of a round, why, and the state that follows if it is what was claimed."""
        if state is None:
            return "no longer held", "nobody holds the state before it", None
        manifest = self.connection.manifest
        try:
            check_evidence(entry, manifest.swarm_id, state.voters)
            blobs = await fetch_inputs(
                manifest, self.connection.exchange, entry, state.anchor.numel(), self._donors
            )
            after = await asyncio.to_thread(replay, manifest, state, entry, blobs)
        except NodeError as error:
            return "no longer held", str(error), None
        except (ValueError, OverflowError) as error:
            return "differs", str(error), None
        if after.digest != entry.after:
            return "differs", f"it leads to the state {after.digest[:12]}", None
        return "equal", "", after

    async def _fetch(self, digest: str) -> ReplicaState | None:
        async def donors() -> list[str]:
            return self.holders[digest]

        if digest not in self.holders:
            return None
        try:
            return await self.store.fetch(digest, donors)
        except NodeError:
            return None

    async def _donors(self) -> list[str]:
        return self.peers


def _without_votes(entry: LogEntry) -> LogEntry:
    """What is the same for all who keep the entry."""
    return entry.model_copy(update={"votes": ()})


async def _log_of(connection: Connection, peer: str) -> tuple[LogEntry, ...]:
    """What a peer tells of past rounds; nothing if it does not answer."""
    try:
        return await connection.exchange.log_of(peer)
    except CallError:
        return ()
