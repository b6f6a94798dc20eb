"""Failure detection: a killed peer's record outlives it for a while, but its port refuses connections."""

from __future__ import annotations

import asyncio
import contextlib

from dupt_swarm.network.members.dialling import Dialler
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.view import Peer, View

FEEL_SECONDS = 1.0
CALLED_AT_ONCE = 16
CALL_SECONDS = 3.0


class FailureDetector:
    """Dials the oracles to which this peer has no connection; one that refuses is suspected dead.

    Otherwise each death would cost the next round the whole time for finding the group. Silence proves
    nothing, a refusal does: nobody listens there any more. Who lives after all is believed again with its
    next record.
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
        """Dial the peers of ``view`` that may be dead, each as often as its addresses may be dialled."""
        connected = {*await self._dialler.connected(), self._member.peer_id}
        missing = [peer for peer in view.oracles if peer.peer_id not in connected]
        due = [peer for peer in missing if any(map(self._dialler.may, _ways_of(peer)))][:CALLED_AT_ONCE]
        refused = await asyncio.gather(*map(self._refuses, due))
        dead = tuple(peer.peer_id for peer, gone in zip(due, refused, strict=True) if gone)
        self._member.suspect(dead)

    async def _refuses(self, peer: Peer) -> bool:
        """Whether nobody listens at any address of ``peer`` that may be dialled now."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                outcomes = [await self._dialler.dial(way) for way in _ways_of(peer)]
        except TimeoutError:
            return False
        reasons = [reason for reason in outcomes if reason is not None]
        return bool(reasons) and all("refused" in reason for reason in reasons)


def _ways_of(peer: Peer) -> list[Address]:
    return [Address(way, peer.peer_id) for way in peer.record.addresses]
