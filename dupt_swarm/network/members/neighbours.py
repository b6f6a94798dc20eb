"""Reconnects a node whose neighbours died, slept or were cut off."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P, PeerID

from dupt_swarm.network.members.dialling import Dialler
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

    Attributes:
        dialler: knows where peers were met.
    """

    def __init__(self, p2p: P2P, dht: DHTNode, initial_peers: tuple[str, ...], book: AddressBook) -> None:
        self.dialler = Dialler(p2p, (*initial_peers, *book.addresses))
        self._dht = dht
        self._initial, self._book = initial_peers, book
        self._own_id = str(p2p.peer_id)

    def note(self, view: View) -> None:
        """Remember the peers of ``view`` that were met, where they were."""
        self._book.meet(self.dialler.proved(view), self._own_id)

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
        known = self._book.of(random.sample(old, min(count, len(old))))
        named = dict.fromkeys(map(Address.parse, self._initial))
        others = dict.fromkeys(each for each in map(Address.parse, known) if each not in named)
        await asyncio.gather(
            *(self._meet(each, self.dialler.dial_named) for each in named if each.peer_id not in connected),
            *(self._meet(each, self.dialler.dial) for each in others),
        )

    async def _meet(self, address: Address, dial: Callable[[Address], Awaitable[str | None]]) -> None:
        if await dial(address) != "":
            return
        peer_id = PeerID.from_base58(address.peer_id)
        async with asyncio.timeout(PING_SECONDS):
            known = await self._dht.protocol.call_ping(peer_id)
        if known is not None:
            # hivemind would exclude a peer from searches for as long again as it was away.
            self._dht.blacklist.register_success(peer_id)
