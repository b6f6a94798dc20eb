"""Failure detection: a killed peer's record outlives it for a while, but its port refuses connections."""

from __future__ import annotations

import asyncio
import contextlib
import time

from hivemind.p2p import P2P

from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.daemon import dial
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.view import Peer, View

FEEL_SECONDS = 1.0
CALLED_AT_ONCE = 16
CALL_SECONDS = 3.0
CALL_AGAIN_SECONDS = 10.0


class FailureDetector:
    """Dials the oracles to which this peer has no connection; one that refuses is suspected dead.

    Otherwise each death would cost the next round the whole time for finding the group. Silence proves
    nothing, a refusal does: nobody listens there any more. Who lives after all is believed again with its
    next record.
    """

    def __init__(self, p2p: P2P, member: Membership) -> None:
        self._p2p, self._member = p2p, member
        self._called: dict[str, float] = {}

    async def watch_forever(self) -> None:
        """Check regularly."""
        while True:
            await asyncio.sleep(FEEL_SECONDS)
            with contextlib.suppress(Exception):  # p2pd may be about to be replaced
                await self.feel(self._member.view)

    async def feel(self, view: View) -> None:
        """Dial the peers of ``view`` that may be dead, each at most every ten seconds."""
        connected = {str(peer.peer_id) for peer in await self._p2p.list_peers()}
        connected.add(self._member.peer_id)
        now = time.monotonic()
        strangers = [
            peer
            for peer in view.oracles
            if peer.peer_id not in connected
            and now - self._called.get(peer.peer_id, -CALL_AGAIN_SECONDS) >= CALL_AGAIN_SECONDS
        ][:CALLED_AT_ONCE]
        self._called = {
            peer.peer_id: self._called[peer.peer_id] for peer in view.oracles if peer.peer_id in self._called
        } | {peer.peer_id: now for peer in strangers}
        refused = await asyncio.gather(*(self._refuses(peer) for peer in strangers))
        dead = tuple(peer.peer_id for peer, gone in zip(strangers, refused, strict=True) if gone)
        self._member.suspect(dead)

    async def _refuses(self, peer: Peer) -> bool:
        """Whether nobody listens at any address in the record of ``peer``."""
        ways = [str(Address(way, peer.peer_id)) for way in peer.record.addresses]
        try:
            async with asyncio.timeout(CALL_SECONDS):
                reasons = [await dial(self._p2p, way) for way in ways]
        except TimeoutError:
            return False
        return bool(reasons) and all("refused" in reason for reason in reasons)
