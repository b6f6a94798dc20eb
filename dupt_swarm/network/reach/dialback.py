"""Dialling back: a peer asks another whether it can dial its addresses.

Whoever is asked opens a plain TCP connection of its own: libp2p would answer from the connection that
the two have already, which proves nothing. It dials only the IP address that the caller comes from,
and only now and then, so that nobody can have it scan or flood others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated

from pydantic import Field

from dupt_swarm.command_line.printable import one_line
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.rpc import CallError, Message, Refusal, check_elements, rpc
from dupt_swarm.node.addresses import Address
from dupt_swarm.replica.plain import load

ASK_SECONDS = 15.0
TCP_SECONDS = 4.0
ADDRESSES_MAX = 8
ADDRESS_CHARS_MAX = 160
RELAYS_MAX = 4
TEXT_BYTES_MAX = 1000
ELEMENTS_MAX = 1024  # marks in reasons count too
# The greeting with which libp2p answers every connection.
GREETING = b"\x13/multistream/1.0.0\n"
CALLS_SECONDS = 60.0
# In a window; a machine may have an oracle for each of sixteen GPUs. Half of all calls are for networks that
# have not asked in it: a few hosts that go on asking must not leave newcomers without an answer.
CALLS_PER_HOST, CALLS = 20, 120


class DialMessage(Message):
    """Where somebody wants to be dialled."""

    addresses: Annotated[
        list[Annotated[str, Field(max_length=ADDRESS_CHARS_MAX)]], Field(max_length=ADDRESSES_MAX)
    ]


@dataclass(frozen=True)
class Answer:
    """What a peer found when it was asked to dial back.

    Attributes:
        observed: the IP address that we come from; empty if a relay is between.
        reasons: why each address cannot be called; empty if it can.
        relays: addresses, with peer ids, of peers that may relay for us.
    """

    observed: str
    reasons: dict[str, str]
    relays: tuple[str, ...] = ()

    def pack(self) -> bytes:
        """As it travels."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, data: bytes) -> Answer:
        """Read another peer's answer.

        Raises:
            ValueError: it is not one.
        """
        check_elements(data, ELEMENTS_MAX)
        try:
            tree = load(data)
            observed, reasons, relays = tree["observed"], tree["reasons"], tree["relays"]
            if len(reasons) > ADDRESSES_MAX or len(relays) > RELAYS_MAX:
                raise ValueError("it is too long")
            for item in (observed, *reasons, *reasons.values(), *relays):
                if len(str.encode(item)) > TEXT_BYTES_MAX:  # JSON may have halves of characters
                    raise ValueError("it is too long")
            told = {address: one_line(reason) for address, reason in reasons.items()}
            return cls(observed, told, tuple(relays))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not an answer of a dupt_swarm peer: {error}") from error


async def ask_to_dial(p2p: GuardedP2P, peer: str, addresses: Sequence[str]) -> Answer:
    """Ask ``peer`` to dial ``addresses`` of ours; in ``/ip4/0.0.0.0/…`` it puts the IP that it sees.

    Raises:
        CallError: it cannot do so, was asked too often, or does not answer.
    """
    message = DialMessage(addresses=list(addresses[:ADDRESSES_MAX]))
    answer = await p2p.call(peer, DialBack.rpc_dial_back, message)
    # What we did not ask for is not our address, whatever it says.
    return replace(
        answer, reasons={address: answer.reasons.get(address, "not checked") for address in addresses}
    )


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

    async def start(self) -> None:
        """Begin to answer other peers."""
        await self._p2p.serve(self)

    @rpc(DialMessage, Answer, longest=(4096, 16_000), seconds=ASK_SECONDS)
    async def rpc_dial_back(self, request: DialMessage, caller: str) -> Answer:
        """What comes of dialling the caller, unless it has asked too often."""
        ways = await self._ways_of(caller)
        observed = [str(way.host) for way in ways]
        self._count(ways)
        reasons = await asyncio.gather(*(_reason(address, observed) for address in request.addresses))
        return Answer(
            observed[0] if observed else "",
            dict(zip(request.addresses, reasons, strict=True)),
            tuple(self._relays())[:RELAYS_MAX],
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
