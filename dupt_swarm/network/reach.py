"""How others reach this peer, and telling them."""

from __future__ import annotations

import asyncio
import contextlib

from hivemind.p2p import P2P

from dupt_swarm.network.addresses import reach_of, worth_telling
from dupt_swarm.network.membership import Membership

ADDRESSES_SECONDS = 10.0


async def tell_addresses(p2p: P2P, member: Membership) -> None:
    """Put into the record where others find this peer."""
    addresses = [str(address) for address in await p2p.get_visible_maddrs(latest=True)]
    member.update(addresses=worth_telling(addresses), reach=reach_of(addresses, dialled=True))


async def tell_addresses_for_ever(p2p: P2P, member: Membership) -> None:
    """Look at them again regularly: relays are found later, and laptops change their network."""
    while True:
        await asyncio.sleep(ADDRESSES_SECONDS)
        with contextlib.suppress(Exception):  # p2pd may be about to be replaced
            await tell_addresses(p2p, member)
