"""The chain of rounds as somebody sees it who only looks on: fetched once, then gone on with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from dupt_swarm.errors import NodeError
from dupt_swarm.network.host import background
from dupt_swarm.network.joining.connection import Connection
from dupt_swarm.network.pulling import TELLERS_MAX, earliest_chain, meet
from dupt_swarm.network.rounds.past import by_trust, chain_of
from dupt_swarm.replica.chain import Chain, counted_in
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.ledger import Bookkeeping, Ledger

TRIES = 3  # the swarm may move on meanwhile
INITIAL_MAX = 2  # so many of the tellers are initial peers: these can be reached
UPDATE_SECONDS = 600.0  # of one of them
WHOLE_SECONDS = 1800.0  # so long a chain that begins late is gone on with before a whole one is looked for


@dataclass(frozen=True)
class _Seen:
    """A state, by the header of its blob, which its digest covers.

    Attributes:
        digest: of the state.
        electorate: who decides what follows it.
        tokens: behind all contributions that are in it.
    """

    digest: str
    electorate: Electorate
    tokens: int


class Watching:
    """What each peer has contributed, by a chain to the state that half of the oracles have reached.

    Each link is verified by the electorate of the state before it, and the last one's must be the state's
    own. A whole chain counts as many tokens as the state says. Where the manifest names no first state, that
    one is the word of who told the chain, and so is a past of weak links.
    """

    def __init__(self, connection: Connection) -> None:
        """``connection``: of an observer."""
        self._connection = connection
        self._chain: Chain | None = None
        self._bookkeeping = Bookkeeping()
        self._looked_at = 0.0  # for a whole chain

    async def ledger(self) -> Ledger:
        """The ledger as of now.

        Raises:
            NodeError: nobody tells a chain that leads to the swarm's state.
        """
        problem = NodeError("no peer of the swarm says which state it has; try again")
        for _ in range(TRIES):
            view = await self._connection.membership.refresh()
            if view.agreed is None:
                continue
            try:
                seen = await self._look_at(view.agreed.record.state_digest)
            except NodeError as error:  # it is gone: there is a newer one
                problem = error
                continue
            async with background(meet(self._connection.p2p, view)):
                self._chain = await self._chain_to(seen)
            return await asyncio.to_thread(self._bookkeeping.read, self._chain)
        raise problem

    async def _look_at(self, digest: str) -> _Seen:
        """What the state's own header says.

        Raises:
            NodeError: nobody gives it.
        """
        holders = await self._connection.membership.holders(digest)
        header = (await self._connection.exchange.fetch_index(digest, holders)).header
        try:
            electorate = Electorate.parse(int(header["round"]), header["electorate"])
            return _Seen(digest, electorate, int(header["tokens_total"]))
        except (KeyError, TypeError, ValueError) as error:
            raise NodeError(f"what the swarm calls its state is none: {error!r}") from error

    async def _chain_to(self, seen: _Seen) -> Chain:
        """The chain that leads to this state: ours, or as one of the others tells it, the earliest.

        Raises:
            NodeError: nobody tells one.
        """
        known = self._chain
        if known is not None and known.begins and time.monotonic() > self._looked_at + WHOLE_SECONDS:
            known = None  # somebody may tell the whole one by now
        if known is not None and known.head == seen.digest:
            return known
        found = await self._told(seen, known) if known is not None else None
        if found is None:
            self._looked_at = time.monotonic()
            found = await self._told(seen)
        if found is None:
            raise NodeError("nobody tells the links of the rounds; try again")
        return found

    async def _told(self, seen: _Seen, known: Chain | None = None) -> Chain | None:
        """The earliest chain to the state that is told: whole, or what ``known`` lacks. None: none."""
        exchange, manifest = self._connection.exchange, self._connection.manifest

        async def tell(peer_id: str) -> Chain:
            async with asyncio.timeout(UPDATE_SECONDS):
                chain = await chain_of(exchange, peer_id, manifest, seen.digest, seen.electorate, known=known)
            await asyncio.to_thread(self._check, chain, seen)
            return chain

        return await earliest_chain(self._tellers(seen), tell, known.begins if known else 0)

    def _check(self, chain: Chain, seen: _Seen) -> None:
        """Whether it counts what the state does. Runs in a thread: links are many.

        Raises:
            ValueError: it does not.
        """
        counts_tokens = self._connection.manifest.rounds.exchange == "share" and not chain.begins
        if counts_tokens and sum(counted_in(chain.links).values()) != seen.tokens:
            raise ValueError("its links count other tokens than the state")

    def _tellers(self, seen: _Seen) -> Sequence[str]:
        """The peers that are asked, in this order."""
        peers = self._connection.membership.view.peers
        known = [peer.peer_id for peer in by_trust(peers, seen.electorate)]
        initial = self._connection.handshake.peer_ids[:INITIAL_MAX]
        return list(dict.fromkeys([*known[: TELLERS_MAX - len(initial)], *initial, *known]))[:TELLERS_MAX]
