"""Auditing: past rounds are computed again, from what the swarm's peers still hold of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from dupt_swarm.errors import NodeError
from dupt_swarm.network.host import Host, background
from dupt_swarm.network.joining.connection import Connection
from dupt_swarm.network.p2p.rpc import CallError
from dupt_swarm.network.pulling import ASKED_MAX, TELLERS_MAX, meet, states_held
from dupt_swarm.network.states.download import always
from dupt_swarm.network.states.replaying import fetch_inputs
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.node.commands import Audit
from dupt_swarm.node.messages import AuditedRound, Verdict
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Link
from dupt_swarm.replica.replay import inputs_of, replay
from dupt_swarm.replica.signed_words import LinkRecord, Words
from dupt_swarm.replica.state import ReplicaState


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
            raise NodeError("no peer keeps links that lead to the swarm's state; try again later")
        last = view.agreed.record.round if view.agreed else len(chain)
        return await auditor.walk(chain, order.rounds or len(chain), last)


@dataclass(frozen=True)
class Auditor:
    """What the swarm's peers say of the past.

    Attributes:
        connection: to the swarm.
        store: fetches states.
        peers: ids of those who are asked for blobs.
        links: with verified signatures, by the digest of the state that follows: all that were told.
        holders: who says to give which state, by its digest.
    """

    connection: Connection
    store: StateStore
    peers: list[str]
    links: dict[str, list[Link]]
    holders: dict[str, list[str]]

    @classmethod
    async def begin(cls, connection: Connection, host: Host) -> Auditor:
        """Ask everybody which states they hold, and some, initial peers first, for the links."""
        held = await states_held(connection)
        known = [peer.peer_id for peer in connection.membership.view.peers]
        peers = list(dict.fromkeys([*connection.handshake.peer_ids, *known]))[:ASKED_MAX]
        words = Words(connection.manifest.swarm_id)
        telling = peers[:TELLERS_MAX]  # a chain may be as large as a model
        chains = await asyncio.gather(*(_links_of(connection, peer, words) for peer in telling))
        links: dict[str, list[Link]] = {}
        for link in (link for chain in chains for link in chain):
            links.setdefault(link.after, []).append(link)
        store = StateStore(connection.manifest, connection.exchange, host.tell)
        return cls(connection, store, peers, links, {digest: who for (_, digest), who in held.items()})

    def chain_to(self, digest: str) -> list[Link]:
        """The links that lead to the state ``digest``, in order, as far back as they are known."""
        chain: list[Link] = []
        while digest in self.links and len(chain) <= len(self.links):
            told = Counter(self.links[digest])
            chain.append(max(told, key=lambda link: (not link.choice.weak, told[link])))
            digest = chain[-1].state
        return chain[::-1]

    async def walk(self, chain: list[Link], rounds: int, last: int) -> tuple[AuditedRound, ...]:
        """Judge the last ``rounds``, from the last state before them that somebody still holds.

        ``last`` is the number of the last round of the chain.
        """
        asked = max(0, len(chain) - rounds)
        held = [number for number in range(asked + 1) if chain[number].state in self.holders]
        judged: list[AuditedRound] = []
        state: ReplicaState | None = None
        first = max(held, default=asked)
        electorate = Electorate() if len(chain) == last else None  # of the state before; None: not known
        for link in chain[:first]:
            electorate = electorate and link.electorate(electorate)
        for round, link in enumerate(chain[first:], last + 1 - len(chain) + first):
            if state is None:
                state = await self._fetch(link.state)
            if state is not None:
                electorate = state.electorate
                verdict, reason, state = await self._judge(state, link)
            else:
                verdict, reason = self._judge_link(electorate, link)
            electorate = electorate and link.electorate(electorate)
            inputs = len(inputs_of(self.connection.manifest, link, round - 1))
            judged.append(AuditedRound(round, link.after, verdict, reason, inputs))
        return tuple(judged[-rounds:])

    def _judge_link(self, electorate: Electorate | None, link: Link) -> tuple[Verdict, str]:
        """What is to be said of a round whose state before nobody holds, and why."""
        if electorate is None:
            return "no longer held", "nobody holds the state before it"
        try:
            self._check(link, electorate)
        except ValueError as error:
            return "differs", str(error)
        return "no longer held", "nobody holds the state before it, but those who decided have signed"

    async def _judge(self, state: ReplicaState, link: Link) -> tuple[Verdict, str, ReplicaState | None]:
        """What is to be said of a round, why, and the state that follows if it is what was claimed."""
        manifest = self.connection.manifest
        try:
            self._check(link, state.electorate)
            blobs = await fetch_inputs(manifest, self.connection.exchange, link, state, always(self.peers))
            after = await asyncio.to_thread(replay, manifest, state, link, blobs)
        except NodeError as error:
            return "no longer held", str(error), None
        except (ValueError, OverflowError) as error:
            return "differs", str(error), None
        if after.digest != link.after:
            return "differs", f"it leads to the state {after.digest[:12]}", None
        return "equal", "", after

    def _check(self, link: Link, electorate: Electorate) -> None:
        """Whether the link leaves the state of this electorate, or one with the same outcome that was told.

        Raises:
            ValueError: none does; says why.
        """
        problem = ValueError("nobody tells a link that leaves the state")
        for each in sorted(self.links[link.after], key=lambda each: each != link):
            try:
                each.check(electorate)
                if (each.state, each.choice) == (link.state, link.choice):
                    return
            except ValueError as error:
                problem = error
        raise problem

    async def _fetch(self, digest: str) -> ReplicaState | None:
        if digest not in self.holders:
            return None
        try:
            return await self.store.fetch(digest, always(self.holders[digest]))
        except NodeError:
            return None


def _read(records: Sequence[LinkRecord], words: Words) -> list[Link]:
    return [record.link(words) for record in records]


async def _links_of(connection: Connection, peer: str, words: Words) -> list[Link]:
    """The links that a peer tells, from its first one on; nothing if it does not answer, or nonsense."""
    found: list[Link] = []
    with suppress(CallError, ValueError):
        async with aclosing(connection.exchange.links_of(peer, [])) as pages:
            async for page in pages:
                found += await asyncio.to_thread(_read, page.links, words)
    return found
