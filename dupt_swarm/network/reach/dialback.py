"""Dialling back: a peer asks another whether it can dial its addresses.

Whoever is asked opens a plain TCP connection of its own: libp2p would answer from the connection that
the two have already, which proves nothing. It dials only the IP address that the caller comes from,
and only now and then, so that nobody can have it scan or flood others.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

from pydantic import AfterValidator, ConfigDict, Field

from dupt_swarm.command_line.printable import one_line
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.rpc import CallError, Message, Refusal, rpc
from dupt_swarm.node.addresses import Address

ASK_SECONDS = 15.0
TCP_SECONDS = 4.0
ADDRESSES_MAX = 8
ADDRESS_CHARS_MAX = 160
RELAYS_MAX = 4
# The greeting with which libp2p answers every connection.
GREETING = b"\x13/multistream/1.0.0\n"
CALLS_SECONDS = 60.0
# In a window; a machine may have an oracle for each of sixteen GPUs. Half of all calls are for networks that
# have not asked in it: a few hosts that go on asking must not leave newcomers without an answer.
CALLS_PER_HOST, CALLS = 20, 120

Text = Annotated[str, Field(max_length=1000)]
Reason = Annotated[Text, AfterValidator(one_line)]


class DialMessage(Message):
    """Where somebody wants to be dialled."""

    addresses: Annotated[
        list[Annotated[str, Field(max_length=ADDRESS_CHARS_MAX)]], Field(max_length=ADDRESSES_MAX)
    ]


class DialAnswer(Message):
    """What a peer found when it was asked to dial back.

    Attributes:
        observed: the IP address that we come from; empty if a relay is between.
        reasons: why each address cannot be called; empty if it can.
        relays: addresses, with peer ids, of peers that may relay for us.
    """

    model_config = ConfigDict(extra="ignore")
    elements_max: ClassVar[int] = 1024  # marks in reasons count too

    observed: Text
    reasons: Annotated[dict[Text, Reason], Field(max_length=ADDRESSES_MAX)]
    relays: Annotated[tuple[Text, ...], Field(max_length=RELAYS_MAX)]


async def ask_to_dial(p2p: GuardedP2P, peer: str, addresses: Sequence[str]) -> DialAnswer:
    """Ask ``peer`` to dial ``addresses`` of ours; in ``/ip4/0.0.0.0/…`` it puts the IP that it sees.

    Raises:
        CallError: it cannot do so, was asked too often, or does not answer.
    """
    message = DialMessage(addresses=list(addresses[:ADDRESSES_MAX]))
    answer = await p2p.call(peer, DialBack.rpc_dial_back, message)
    # What we did not ask for is not our address, whatever it says.
    reasons = {address: answer.reasons.get(address, "not checked") for address in addresses}
    return answer.model_copy(update={"reasons": reasons})


class DialBack:
    """Dials peers back when they ask for it."""

    def __init__(
        self,
        p2p: GuardedP2P,
        relays: Callable[[], Sequence[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``relays`` gives addresses to tell those that nobody can dial; ``clock`` is in seconds."""
        self._p2p, self._relays, self._clock = p2p, relays, clock
        self._calls: deque[tuple[float, str, str]] = deque()

    @rpc(DialMessage, DialAnswer, longest=(4096, 16_000), seconds=ASK_SECONDS)
    async def rpc_dial_back(self, request: DialMessage, caller: str) -> DialAnswer:
        """What comes of dialling the caller, unless it has asked too often."""
        ways = await self._ways_of(caller)
        observed = [str(way.host) for way in ways]
        self._count(ways)
        reasons = await asyncio.gather(*(_reason(address, observed) for address in request.addresses))
        return DialAnswer(
            observed=observed[0] if observed else "",
            reasons=dict(zip(request.addresses, reasons, strict=True)),
            relays=tuple(self._relays())[:RELAYS_MAX],
        )

    async def _ways_of(self, peer_id: str) -> list[Address]:
        """The addresses that a peer is connected from, without those of relays."""
        infos = [info for info in await self._p2p.list_peers() if str(info.peer_id) == peer_id]
        ways = [Address.parse(str(way)) for info in infos for way in info.addrs]
        return [way for way in ways if way.host is not None and not way.relayed]

    def _count(self, ways: list[Address]) -> None:
        # Relays show no host, and keys are cheap: all that come over relays are one.
        host, network = (str(ways[0].host), ways[0].network) if ways else ("", "")
        now = self._clock()
        while self._calls and now - self._calls[0][0] > CALLS_SECONDS:
            self._calls.popleft()
        asked = any(each == network for _, _, each in self._calls)
        by_host = sum(each == host for _, each, _ in self._calls)
        if len(self._calls) >= (CALLS // 2 if asked else CALLS) or by_host >= CALLS_PER_HOST:
            raise CallError(Refusal.LATER, f"asked too often; try again in {CALLS_SECONDS:.0f} s")
        self._calls.append((now, host, network))


async def _reason(address: str, observed: list[str]) -> str:
    """Why nobody answers at ``address``, or an empty string."""
    way = Address.parse(address)
    if way.host is None or not way.transport or way.relayed:
        return "not checked: not an IP address with a port"
    if way.transport != "tcp":
        return "not checked: only TCP is"
    if not observed:
        return "not checked: a relay is between the two peers"
    target = observed[0] if way.host.is_unspecified else str(way.host)
    if target not in observed:
        return f"not checked: calls come from {observed[0]}, and no other address is dialled"
    return await greeted(target, way.port)


async def greeted(host: str, port: int) -> str:
    """Why no libp2p peer answers at ``host``, TCP ``port``; an empty string if one does."""
    writer = None
    try:
        async with asyncio.timeout(TCP_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(GREETING)
            if await reader.readexactly(len(GREETING)) != GREETING:
                return "another program answers there"
    except TimeoutError:
        return f"no answer within {TCP_SECONDS:.0f} s"
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return "another program answers there"
    except (OSError, OverflowError) as error:
        return str(getattr(error, "strerror", None) or error)
    finally:
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    return ""
