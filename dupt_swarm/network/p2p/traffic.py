"""Counts the bytes that this peer exchanges with others, where all messages pass."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from hivemind.p2p import P2P, PeerID

from dupt_swarm.node.messages import Traffic


class TrafficMeter:
    """Counts the sizes of protobuf messages sent and received."""

    def __init__(self) -> None:
        self._received = self._sent = 0

    def read(self) -> Traffic:
        """The counts so far."""
        return Traffic(self._received, self._sent)

    def received(self, message: Any) -> Any:
        """Count ``message``, and pass it on."""
        self._received += message.ByteSize()
        return message

    def sent(self, message: Any) -> Any:
        """Count ``message``, and pass it on."""
        self._sent += message.ByteSize()
        return message


class MeteredP2P(P2P):  # type: ignore[misc]
    """hivemind's connection to the libp2p daemon, with a count of the messages that pass.

    Everything passes here: contributions, averages, states, records, rolls. What libp2p adds
    (headers, encryption, relaying for others) is the daemon's business, and not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.traffic = TrafficMeter()

    async def add_protobuf_handler(
        self,
        name: str,
        handler: Callable[[Any, Any], Any],
        input_protobuf_type: type[Any],
        *,
        stream_input: bool = False,
        stream_output: bool = False,
        balanced: bool = False,
    ) -> None:
        """As inherited."""
        traffic = self.traffic

        def metered(request: Any, context: Any) -> Any:
            seen = _each(request, traffic.received) if stream_input else traffic.received(request)
            reply = handler(seen, context)
            return _each(reply, traffic.sent) if stream_output else _one(reply, traffic.sent)

        await super().add_protobuf_handler(
            name,
            metered,
            input_protobuf_type,
            stream_input=stream_input,
            stream_output=stream_output,
            balanced=balanced,
        )

    async def call_protobuf_handler(
        self, peer_id: PeerID, name: str, input: Any, output_protobuf_type: type[Any]
    ) -> Any:
        """As inherited."""
        reply = super().call_protobuf_handler(peer_id, name, self._outgoing(input), output_protobuf_type)
        return await _one(reply, self.traffic.received)

    async def iterate_protobuf_handler(
        self, peer_id: PeerID, name: str, input: Any, output_protobuf_type: type[Any]
    ) -> AsyncGenerator[Any, None]:
        """As inherited."""
        replies = await super().iterate_protobuf_handler(
            peer_id, name, self._outgoing(input), output_protobuf_type
        )
        return _each(replies, self.traffic.received)

    def _outgoing(self, input: Any) -> Any:
        return (
            _each(input, self.traffic.sent) if isinstance(input, AsyncIterable) else self.traffic.sent(input)
        )


async def _one(message: Awaitable[Any], count: Callable[[Any], Any]) -> Any:
    return count(await message)


async def _each(messages: Any, count: Callable[[Any], Any]) -> AsyncGenerator[Any, None]:
    # Closing this one closes the wrapped one.
    async with aclosing(messages):
        async for message in messages:
            yield count(message)
