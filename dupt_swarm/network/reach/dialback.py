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

from google.protobuf.wrappers_pb2 import StringValue
from hivemind.p2p import P2P, P2PContext, PeerID, ServicerBase

from dupt_swarm.command_line.printable import one_line
from dupt_swarm.network.p2p.plain_json import load
from dupt_swarm.node.addresses import Address

ASK_SECONDS = 15.0
TCP_SECONDS = 4.0
ADDRESSES_MAX = 8
ADDRESS_CHARS_MAX = 160
RELAYS_MAX = 4
TEXT_BYTES_MAX = 1000
# The greeting with which libp2p answers every connection.
GREETING = b"\x13/multistream/1.0.0\n"
CALLS_SECONDS = 60.0
CALLS_PER_HOST, CALLS = 6, 60  # in a window


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

    @classmethod
    def parse(cls, text: str) -> Answer:
        """Read another peer's answer.

        Raises:
            ValueError: it is not one.
        """
        try:
            tree = load(text)
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


async def ask_to_dial(p2p: P2P, peer: PeerID, addresses: Sequence[str]) -> Answer:
    """Ask ``peer`` to dial ``addresses`` of ours; in ``/ip4/0.0.0.0/…`` it puts the IP that it sees.

    Raises:
        ValueError: it cannot do so, or was asked too often.
        TimeoutError: it does not answer.
    """
    stub = DialBack.get_stub(p2p, peer)
    request = StringValue(value=json.dumps(list(addresses[:ADDRESSES_MAX])))
    try:
        async with asyncio.timeout(ASK_SECONDS):
            reply = await stub.rpc_dial_back(request)
    except TimeoutError:
        raise
    except Exception as error:
        # libp2p's errors and those of the other peer come in many types
        raise ValueError(f"{peer} does not dial back ({str(error) or type(error).__name__})") from error
    answer = Answer.parse(reply.value)
    # What we did not ask for is not our address, whatever it says.
    return replace(
        answer, reasons={address: answer.reasons.get(address, "not checked") for address in addresses}
    )


async def dial_back(p2p: P2P, peer: PeerID, addresses: Sequence[str]) -> dict[str, str]:
    """Why ``peer`` cannot call us at each of ``addresses``; an empty reason if it can.

    Raises:
        ValueError: it cannot do so, or was asked too often.
        TimeoutError: it does not answer.
    """
    return (await ask_to_dial(p2p, peer, addresses)).reasons


class DialBack(ServicerBase):  # type: ignore[misc]
    """Dials peers back when they ask for it."""

    def __init__(
        self, p2p: P2P, relays: Callable[[], Sequence[str]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``relays`` gives addresses to tell those that nobody can dial; ``clock`` is in seconds."""
        self._p2p, self._relays, self._clock = p2p, relays, clock
        self._calls: deque[tuple[float, str]] = deque()

    async def start(self) -> None:
        """Begin to answer other peers."""
        await self.add_p2p_handlers(self._p2p)

    async def rpc_dial_back(self, request: StringValue, context: P2PContext) -> StringValue:
        """An `Answer` as JSON.

        Raises:
            ValueError: not a list of addresses, or asked too often.
        """
        wanted = load(request.value)
        if not isinstance(wanted, list) or len(wanted) > ADDRESSES_MAX:
            raise ValueError(f"not a list of at most {ADDRESSES_MAX} addresses")
        addresses = [each for each in wanted if isinstance(each, str) and len(each) <= ADDRESS_CHARS_MAX]
        observed = await self._observed(context.remote_id)
        self._count(observed[0] if observed else str(context.remote_id))
        reasons = await asyncio.gather(*(_reason(address, observed) for address in addresses))
        answer = Answer(
            observed[0] if observed else "",
            dict(zip(addresses, reasons, strict=True)),
            tuple(self._relays())[:RELAYS_MAX],
        )
        return StringValue(value=json.dumps(asdict(answer)))

    async def _observed(self, peer: PeerID) -> list[str]:
        """The IP addresses that ``peer`` is connected from, without those of relays."""
        infos = [info for info in await self._p2p.list_peers() if info.peer_id == peer]
        ways = [Address.parse(str(way)) for info in infos for way in info.addrs]
        return [str(way.host) for way in ways if way.host is not None and not way.relayed]

    def _count(self, host: str) -> None:
        now = self._clock()
        while self._calls and now - self._calls[0][0] > CALLS_SECONDS:
            self._calls.popleft()
        if len(self._calls) >= CALLS or sum(each == host for _, each in self._calls) >= CALLS_PER_HOST:
            raise ValueError(f"asked too often; try again in {CALLS_SECONDS:.0f} s")
        self._calls.append((now, host))


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
