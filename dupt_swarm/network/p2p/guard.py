"""The door: what strangers send is measured and looked through before hivemind parses it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, closing, suppress
from typing import Any

from hivemind.dht.protocol import DHTProtocol
from hivemind.p2p import P2PHandlerError, PeerID
from hivemind.proto import dht_pb2

from dupt_swarm.network.p2p.hivemind_internals import open_stream
from dupt_swarm.network.p2p.plain_msgpack import unpack, unpack_extension
from dupt_swarm.network.p2p.traffic import MeteredP2P

# The largest honest frame of a stream is a chunk of a blob: 1 MiB and a few bytes.
FRAME_BYTES_MAX = 2 << 20
DRAIN_SECONDS = 0.1
# How long a stream stays open after the last reply for a caller that does not hang up.
LINGER_SECONDS = 2.0
READ_BYTES = 1 << 16
KEY_BYTES = 20
SUBKEY_BYTES_MAX = 1024  # an owner tag has 390
DICTIONARY_CODE = 0x50  # of `DictionaryDHTValue`, the only extension type that has a place

StreamHandler = Callable[[Any, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class RefusedError(P2PHandlerError):  # type: ignore[misc]
    """Another peer sent what no honest peer sends. hivemind takes it for a failed call, and goes on."""


class FrameReader:
    """The reader of a stream, which refuses a frame that is announced too long before it reads it."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._one_at_a_time = asyncio.Lock()
        self._refused = False

    async def readexactly(self, count: int) -> bytes:
        """As of `asyncio.StreamReader`.

        Raises:
            RefusedError: more than `FRAME_BYTES_MAX`.
        """
        if count > FRAME_BYTES_MAX:
            self._refused = True
            raise RefusedError(f"a frame of {count:,} bytes was announced")
        async with self._one_at_a_time:
            return await self._reader.readexactly(count)

    async def until_hung_up(self) -> None:
        """Read on until the other side hangs up; at once if it has been refused."""
        async with self._one_at_a_time:
            while not self._refused and await self._reader.read(READ_BYTES):
                pass


class HeldOpen:
    """The writer of a stream, which somebody else closes."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.write, self.drain = writer.write, writer.drain

    def close(self) -> None:
        """Not yet."""


class GuardedP2P(MeteredP2P):
    """hivemind's connection to the libp2p daemon, which lets in only what it can bear.

    Frames of streams are limited in length, and the messages of the DHT are checked by `check_message`.

    The caller of a stream hangs up first: when a handler closes its end, p2pd closes the stream for reading
    and then for writing, and between the two its other half may wake up, find the stream closed, and reset
    it; the caller then loses what it has not read. So a stream lingers, and callers stop reading when they
    have what they want.
    """

    async def add_protobuf_handler(
        self, name: str, handler: Callable[[Any, Any], Any], input_protobuf_type: type[Any], **kind: bool
    ) -> None:
        """As inherited."""
        streams = kind.get("stream_input") and kind.get("stream_output")

        def guarded(request: Any, context: Any) -> Any:
            check_message(request)
            reply = handler(request, context)
            return _then_drain(reply, request) if streams else reply

        await super().add_protobuf_handler(name, guarded, input_protobuf_type, **kind)

    async def call_protobuf_handler(
        self, peer_id: PeerID, name: str, input: Any, output_protobuf_type: type[Any]
    ) -> Any:
        """As inherited."""
        reply = await super().call_protobuf_handler(peer_id, name, input, output_protobuf_type)
        check_message(reply)
        return reply

    async def add_binary_stream_handler(
        self, name: str, handler: StreamHandler, balanced: bool = False
    ) -> None:
        """As inherited."""

        async def guarded(info: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            frames = FrameReader(reader)
            with closing(writer):
                await handler(info, frames, HeldOpen(writer))  # type: ignore[arg-type]
                with suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(LINGER_SECONDS):
                        await frames.until_hung_up()

        await super().add_binary_stream_handler(name, guarded, balanced=balanced)

    async def call_binary_stream_handler(
        self, peer_id: PeerID, handler_name: str
    ) -> tuple[Any, FrameReader, asyncio.StreamWriter]:
        """As inherited."""
        info, reader, writer = await open_stream(self, peer_id, handler_name)
        return info, FrameReader(reader), writer


async def _then_drain(
    replies: AsyncGenerator[Any, None], requests: AsyncGenerator[Any, None]
) -> AsyncGenerator[Any, None]:
    """``replies``, and then the ``requests`` that are here already go by unread.

    hivemind hands over five at most, and with a sixth at hand it would never notice that nobody reads.
    """
    try:
        async with aclosing(replies):
            async for reply in replies:
                yield reply
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS), aclosing(requests):
                async for _ in requests:
                    pass


def check_message(message: Any) -> None:
    """Refuse a message of the DHT in which hivemind would trip.

    Raises:
        RefusedError: says why.
    """
    try:
        if isinstance(message, dht_pb2.StoreRequest):
            _check_store(message)
            # Who asks is answered from the cache when that expires later: one value would hide all others.
            message.in_cache[:] = [False] * len(message.in_cache)
        elif isinstance(message, dht_pb2.FindResponse):
            _check_found(message)
    except ValueError as error:
        raise RefusedError(str(error)) from error


def _check_store(request: Any) -> None:
    if any(len(key) != KEY_BYTES for key in request.keys):
        raise ValueError("a DHT key of another length")
    for subkey, value in zip(request.subkeys, request.values, strict=True):
        if subkey == DHTProtocol.IS_DICTIONARY:
            _check_dictionary(value)
        elif len(subkey) > SUBKEY_BYTES_MAX:
            raise ValueError(f"a DHT subkey of {len(subkey):,} bytes")
        else:
            unpack(subkey)


def _check_found(response: Any) -> None:
    for result in response.results:
        if result.type == dht_pb2.FOUND_DICTIONARY:
            _check_dictionary(result.value)
        # What never expires would be kept, and nobody asked again.
        if not math.isfinite(result.expiration_time):
            raise ValueError("a DHT value that never expires")


def _check_dictionary(data: bytes) -> None:
    """Refuse what is not the form of hivemind's `DictionaryDHTValue` with subkeys that are bytes."""
    most, latest, items = _fields(unpack(unpack_extension(data, DICTIONARY_CODE)), 3)
    if not _is_number(most) or not _is_number(latest) or not isinstance(items, list):
        raise ValueError("a malformed DHT dictionary")
    for item in items:
        subkey, value, expiration = _fields(item, 3)
        if not (isinstance(subkey, bytes) and isinstance(value, bytes) and _is_number(expiration)):
            raise ValueError("a malformed entry of a DHT dictionary")
        if len(subkey) > SUBKEY_BYTES_MAX or not math.isfinite(expiration):
            raise ValueError("an implausible entry of a DHT dictionary")


def _fields(value: object, count: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != count:
        raise ValueError("a malformed DHT dictionary")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
