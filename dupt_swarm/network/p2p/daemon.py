"""Dialling by the libp2p daemon, and noticing that it is of no use any more."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure

from dupt_swarm.errors import UnreachableError
from dupt_swarm.network.p2p.hivemind_internals import connect_to, is_cut_off, memory_of
from dupt_swarm.node.addresses import Address

DIAL_SECONDS = 10
PROBE_SECONDS = 2.0
PROBE_ANSWER_SECONDS = 5.0
# Of all addresses of a peer; libp2p says it in words only.
NOBODY_LISTENS = "connection refused"
# What it says of an address at which it failed lately, and for how long it tries no more the first time.
BACKOFF, BACKOFF_SECONDS = "dial backoff", 6.0
MEMORY_BYTES_MAX = 2 << 30  # an honest one takes 50 to 200 MB


async def daemon_failure(p2p: P2P) -> str:
    """Wait until ``p2pd`` is dead, hangs, is not heard or takes too much memory; return which.

    Nothing else notices. It keeps calls that are not whole, of anybody, and no flag bounds them.
    """
    while True:
        await asyncio.sleep(PROBE_SECONDS)
        try:
            async with asyncio.timeout(PROBE_ANSWER_SECONDS):
                await p2p.list_peers()
        except Exception as error:
            return repr(error)
        if is_cut_off(p2p):
            return "nobody reads what it says"
        if (taken := memory_of(p2p)) > MEMORY_BYTES_MAX:
            return f"it takes {taken >> 20} MiB"


async def connect(p2p: P2P, addresses: Sequence[str]) -> list[str]:
    """Dial all addresses at once.

    Returns:
        those that answered.

    Raises:
        UnreachableError: none did; it has the reason of each.
    """
    reasons = await dial_all(p2p, addresses)
    if not (reached := answering(reasons)):
        raise UnreachableError(reasons)
    return reached


async def dial_all(p2p: P2P, addresses: Sequence[str]) -> dict[str, str]:
    """Dial all at once: why each cannot be reached, or an empty string if it can."""
    reasons = await asyncio.gather(*(_dial_patiently(p2p, address) for address in addresses))
    return dict(zip(addresses, reasons, strict=True))


def answering(reasons: Mapping[str, str]) -> list[str]:
    """Those of the addresses that `dial_all` has dialled at which somebody answers."""
    return [address for address, reason in reasons.items() if not reason]


async def _dial_patiently(p2p: P2P, address: str) -> str:
    """As `dial`; again where libp2p did not even try, as it had failed there a moment ago."""
    reason = await dial(p2p, address)
    if not reason.endswith(BACKOFF):
        return reason
    await asyncio.sleep(BACKOFF_SECONDS)
    return await dial(p2p, address)


async def dial(p2p: P2P, text: str) -> str:
    """Why the peer at ``text`` cannot be reached, or an empty string if it can."""
    try:
        address = Address.of_peer(text)
        peer_id, route = PeerID.from_base58(address.peer_id), address.route
    except Exception:
        # multiaddr, its codecs and base58 each raise errors of their own
        return "not a multiaddr that ends in /p2p/<peer id>"
    if peer_id == p2p.peer_id:
        return "this peer's own address"
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            await connect_to(p2p, peer_id, [route])
    except TimeoutError:
        return f"no answer within {DIAL_SECONDS} s"
    except ControlFailure as error:
        return _last_reason(str(error))
    except (OSError, EOFError) as error:
        return f"the libp2p daemon of this peer is gone ({error})"
    return ""


def _last_reason(message: str) -> str:
    """The end of libp2p's report on a failed dial, such as ``connection refused``."""
    if message.endswith(NOBODY_LISTENS):
        return NOBODY_LISTENS
    lines = [line.strip(" *") for line in message.splitlines() if line.strip()]
    return re.sub(r"^.*(?:msg=|dial \w+ \S+: )", "", lines[-1]) if lines else message
