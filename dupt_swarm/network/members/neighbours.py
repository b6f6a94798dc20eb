"""Reconnects a node whose neighbours died, slept or were cut off."""

from __future__ import annotations

import asyncio
import contextlib
import random

from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P, PeerID

from dupt_swarm.network.p2p.daemon import dial
from dupt_swarm.node.address_book import AddressBook
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.view import View

RECONNECT_SECONDS = 4.0
PING_SECONDS = 5.0
# Known peers dialled at once; more when no neighbour is left.
TRIED_AT_ONCE, TRIED_WHEN_LONELY = 3, 10


class Neighbours:
    """Dials the initial peers, and some of the address book, whenever they are not neighbours.

    hivemind's DHT forgets who does not answer, and never asks again: after a cut both halves of a swarm
    would stay apart, and a first peer that comes back would be alone.
    """

    def __init__(self, p2p: P2P, dht: DHTNode, initial_peers: tuple[str, ...], book: AddressBook) -> None:
        self._p2p, self._dht = p2p, dht
        self._initial, self._book = initial_peers, book
        self._own_id = str(p2p.peer_id)

    def note(self, view: View) -> None:
        """Remember the peers of ``view``."""
        self._book.meet(view, self._own_id)

    def save(self) -> None:
        """Keep what was noted."""
        self._book.save()

    async def keep_forever(self) -> None:
        """Check regularly which peers are missing."""
        while True:
            with contextlib.suppress(Exception):  # the network may be away for a while
                await self.reconnect()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def reconnect(self) -> None:
        """Dial the missing peers once."""
        connected = {str(peer_id) for peer_id in self._dht.protocol.routing_table.peer_id_to_uid}
        count = TRIED_AT_ONCE if connected else TRIED_WHEN_LONELY
        old = sorted(self._book.peer_ids - connected - {self._own_id})
        candidates = (*self._initial, *self._book.of(random.sample(old, min(count, len(old)))))
        unique = map(Address.parse, dict.fromkeys(candidates))
        missing = [address for address in unique if address.peer_id not in connected]
        await asyncio.gather(*(self._meet(address) for address in missing))

    async def _meet(self, address: Address) -> None:
        if await dial(self._p2p, str(address)):
            return
        peer_id = PeerID.from_base58(address.peer_id)
        async with asyncio.timeout(PING_SECONDS):
            known = await self._dht.protocol.call_ping(peer_id)
        if known is not None:
            # hivemind would exclude a peer from searches for as long again as it was away.
            self._dht.blacklist.register_success(peer_id)
