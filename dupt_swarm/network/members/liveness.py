"""Failure detection: a killed peer's record outlives it for a while, but its port refuses connections."""

from __future__ import annotations

import asyncio
import contextlib
import random

from dupt_swarm.network.members.dialling import Dialler
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.daemon import NOBODY_LISTENS
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.view import Peer, View

FEEL_SECONDS = 1.0
CALLED_AT_ONCE = 16
CALL_SECONDS = 3.0


class FailureDetector:
    """Dials the oracles to which this peer has no connection; one that refuses is taken for dead.

    Otherwise each death would cost the next round the whole time for finding the group. Silence proves
    nothing, a refusal does: nobody listens there any more. A peer that lives after all is believed again
    with its next record.
    """

    def __init__(self, dialler: Dialler, member: Membership) -> None:
        self._dialler, self._member = dialler, member

    async def watch_forever(self) -> None:
        """Check regularly."""
        while True:
            await asyncio.sleep(FEEL_SECONDS)
            with contextlib.suppress(Exception):  # p2pd may be about to be replaced
                await self.feel(self._member.view)

    async def feel(self, view: View) -> None:
        """Dial the peers of ``view`` that may be dead, each as often as its addresses may be dialled.

        Those come first that were seen at an address: of invented ones there may be any number.
        """
        connected = {*await self._dialler.connected(), self._member.peer_id}
        missing = [peer for peer in view.oracles if peer.peer_id not in connected]
        due = [peer for peer in missing if self._ways_now(peer)]
        random.shuffle(due)
        due = sorted(due, key=self._is_unseen)[:CALLED_AT_ONCE]
        await asyncio.gather(*map(self._bury_if_dead, due))

    async def _bury_if_dead(self, peer: Peer) -> None:
        if await self._refuses(peer):
            # At once: while others are waited for, it may be back, and have published a newer record.
            self._member.bury(peer.peer_id)

    async def _refuses(self, peer: Peer) -> bool:
        """Whether nobody listens at any address of ``peer`` that may be dialled now.

        It must have been seen at one of them, or none be left: a router refuses its own outside address.
        """
        ways = _ways_of(peer)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                outcomes = [(way, await self._dialler.dial(way)) for way in ways]
        except TimeoutError:
            return False
        tried = [(way, reason) for way, reason in outcomes if reason is not None]
        if not all(reason == NOBODY_LISTENS for _, reason in tried):
            return False
        return any(self._dialler.is_proved(way) for way, _ in tried) or 0 < len(tried) == len(ways)

    def _ways_now(self, peer: Peer) -> list[Address]:
        return [way for way in _ways_of(peer) if self._dialler.may(way)]

    def _is_unseen(self, peer: Peer) -> bool:
        """Whether it was seen at no address that may be dialled now."""
        return not any(map(self._dialler.is_proved, self._ways_now(peer)))


def _ways_of(peer: Peer) -> list[Address]:
    return [Address(way, peer.peer_id) for way in peer.record.addresses]
