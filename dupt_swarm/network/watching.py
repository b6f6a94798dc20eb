"""The chain of rounds as somebody sees it who only looks on: fetched once, then gone on with."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass

from dupt_swarm.errors import NodeError
from dupt_swarm.network.joining.connection import Connection
from dupt_swarm.network.p2p.rpc import CallError
from dupt_swarm.network.rounds.past import by_trust, chain_of
from dupt_swarm.network.states.download import reason_of
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.ledger import Bookkeeping, Ledger
from dupt_swarm.replica.signed_words import Words

TRIES = 3  # the swarm may move on meanwhile
TELLERS_MAX = 8
UPDATE_SECONDS = 600.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Seen:
    """A state, and who decides what follows it, by the header of its blob, which its digest covers."""

    digest: str
    electorate: Electorate


class Watching:
    """Who has given what, by a chain that leads to the state that half of the oracles have reached.

    Each link is verified by the electorate of the state before it, and the last one's must be the state's
    own. Where the manifest names no first state, that one is the word of who told the chain.
    """

    def __init__(self, connection: Connection) -> None:
        """``connection``: of an observer."""
        self._connection, self._words = connection, Words(connection.manifest.swarm_id)
        self._chain: Chain | None = None
        self._bookkeeping = Bookkeeping()

    async def ledger(self) -> Ledger:
        """It, as of now.

        Raises:
            NodeError: nobody tells a chain that leads to the swarm's state.
        """
        problem = NodeError("no peer of the swarm says which state it has; try again")
        for _ in range(TRIES):
            view = await self._connection.membership.refresh()
            if view.agreed is None:
                continue
            try:
                chain = await self._chain_to(view.agreed.record.state_digest)
                return await asyncio.to_thread(self._bookkeeping.read, chain)
            except NodeError as error:
                problem = error
        raise problem

    async def _chain_to(self, digest: str) -> Chain:
        """The chain, up to this state or beyond.

        Raises:
            NodeError: nobody tells one.
        """
        if self._chain is not None and digest in self._chain:
            return self._chain
        membership, handshake = self._connection.membership, self._connection.handshake
        seen = await self._look_at(digest)
        known = [peer.peer_id for peer in by_trust(membership.view.peers, seen.electorate)]
        problem = "nobody was found"
        for peer_id in list(dict.fromkeys([*known, *handshake.peer_ids]))[:TELLERS_MAX]:
            try:
                self._chain = await self._told_by(peer_id, seen)
                return self._chain
            except (CallError, ValueError, TimeoutError) as error:
                problem = f"{peer_id}: {reason_of(error)}"
                logger.info("%s tells no links that lead to the state: %s", peer_id, reason_of(error))
        raise NodeError(f"nobody tells the links of the rounds ({problem}); try again")

    async def _look_at(self, digest: str) -> _Seen:
        """What the state's own header says.

        Raises:
            NodeError: nobody gives it.
        """
        holders = await self._connection.membership.holders(digest)
        header = (await self._connection.exchange.fetch_index(digest, holders)).header
        try:
            return _Seen(digest, Electorate.parse(int(header["round"]), header["electorate"]))
        except (KeyError, TypeError, ValueError) as error:
            raise NodeError(f"what the swarm calls its state is none: {error!r}") from error

    async def _told_by(self, peer_id: str, seen: _Seen) -> Chain:
        """A chain with that state, as this peer tells it: ours goes on, if it does not begin anew.

        Raises:
            CallError, TimeoutError: it does not tell it.
            ValueError: it tells another.
        """
        connection = self._connection
        if self._chain is not None:
            chain = self._chain.copied_from(self._chain.first)
            await self._go_on(chain, peer_id)
            if seen.digest in chain:
                place = chain.place_of(seen.digest)
                if chain.electorate_at(place) == seen.electorate:
                    return chain
        return await chain_of(
            *(connection.exchange, peer_id, connection.manifest, seen.digest, seen.electorate)
        )

    async def _go_on(self, chain: Chain, peer_id: str) -> None:
        """Follow what this peer tells from the last state that both know."""
        pages = self._connection.exchange.links_of(peer_id, chain.known())
        async with asyncio.timeout(UPDATE_SECONDS), aclosing(pages):
            async for page in pages:
                links = [record.link(self._words) for record in page.links]
                await asyncio.to_thread(chain.follow, links)
