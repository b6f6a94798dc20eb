"""The door: what strangers send is measured and looked through before hivemind parses it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from hivemind.p2p import P2P, PeerID
from hivemind.proto.p2pd_pb2 import RPCError

from dupt_swarm.network.admission.admission import OPEN, Admission
from dupt_swarm.network.p2p.dht_messages import check_dht_message
from dupt_swarm.network.p2p.frames import FrameReader, HeldOpen, RefusedError
from dupt_swarm.network.p2p.hivemind_internals import open_stream
from dupt_swarm.network.p2p.lengths import lengths_of
from dupt_swarm.network.p2p.limits import Kind, LimitError, PeerLimits
from dupt_swarm.network.p2p.traffic import MeteredP2P
from dupt_swarm.node.messages import Traffic

DRAIN_SECONDS = 0.1
# How long a stream stays open after the last reply for a caller that does not hang up.
LINGER_SECONDS = 2.0
# How long a call may take, and the one request of a stream; and the first part of a contribution, which waits
# for upload: as long as a manifest may allow.
CALL_SECONDS, REQUEST_SECONDS, FIRST_SECONDS = 30.0, 15.0, 300.0
TURNED_AWAY_MAX = 64  # are waited for at once, until they have read why

StreamHandler = Callable[[Any, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class GuardedP2P(MeteredP2P):
    """hivemind's connection to the libp2p daemon, which lets in only what it can bear.

    Messages are limited in length, and those of the DHT looked through by `dht_messages`. How much a peer may
    ask is in `limits`, and who may ask at all in `admission`.

    The caller of a stream hangs up first: when a handler closes its end, p2pd closes the stream for reading
    and then for writing, and between the two its other half may wake up, find the stream closed, and reset
    it; the caller then loses what it has not read. So a stream lingers, and callers stop reading when they
    have what they want.

    Attributes:
        admission: who may call, and whom this peer calls on; everybody until the manifest is known.
        limits: of what each peer may ask.
        refused: how much of what others sent was refused, by reason; see `REFUSED_MESSAGES`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.admission: Admission = OPEN
        self.limits = PeerLimits()
        self.refused: Counter[str] = Counter()
        self._turned_away = 0  # at this moment
        self._single_requests: set[str] = set()  # names of streams with one request, and many replies

    @property
    def counts(self) -> Traffic:
        """What has passed so far, and what was refused."""
        return replace(self.traffic.read(), refused=dict(self.refused))

    async def add_protobuf_handler(
        self, name: str, handler: Callable[[Any, Any], Any], input_protobuf_type: type[Any], **kind: bool
    ) -> None:
        """As inherited."""
        longest, calls = lengths_of(name).request, lengths_of(name).calls

        def streams(requests: Any, context: Any) -> Any:
            return _then_drain(handler(requests, context), requests)

        def replies(request: Any, context: Any) -> Any:
            self._check(request, context.remote_id, longest)
            return handler(request, context)

        async def answer(request: Any, context: Any) -> Any:
            with self._admitted(context.remote_id, "call", name):
                self._count(context.remote_id, calls=calls - 1, size=request.ByteSize())
                self._check(request, context.remote_id, longest)
                async with self._time_limit():
                    return await handler(request, context)

        if kind.get("stream_output") and not kind.get("stream_input"):
            self._single_requests.add(name)
        guarded = streams if kind.get("stream_input") else replies if kind.get("stream_output") else answer
        await super().add_protobuf_handler(name, guarded, input_protobuf_type, **kind)

    async def call_protobuf_handler(
        self, peer_id: PeerID, name: str, input: Any, output_protobuf_type: type[Any]
    ) -> Any:
        """As inherited."""
        call = partial(super().call_protobuf_handler, peer_id, name, input, output_protobuf_type)
        reply = await self.admission.call(peer_id, name, call)
        self._check(reply, peer_id, lengths_of(name).reply)
        return reply

    async def iterate_protobuf_handler(
        self, peer_id: PeerID, name: str, input: Any, output_protobuf_type: type[Any]
    ) -> AsyncGenerator[Any, None]:
        """As inherited."""
        replies = await super().iterate_protobuf_handler(peer_id, name, input, output_protobuf_type)
        return self.admission.watch(peer_id, replies)

    async def add_binary_stream_handler(
        self, name: str, handler: StreamHandler, balanced: bool = False
    ) -> None:
        """As inherited."""
        longest, whole = lengths_of(name).request, lengths_of(name).seconds
        # Who sends one request says at once that it sends no more.
        frames_due, seconds = (2, REQUEST_SECONDS) if name in self._single_requests else (1, FIRST_SECONDS)

        async def guarded(info: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            def check(count: int) -> None:
                self._check_length(count, longest)
                self._count(info.peer_id, size=count)

            frames = FrameReader(reader, check)
            # Cancelled when the node ends, of which Python 3.11's streams would complain in the log.
            with suppress(asyncio.CancelledError), closing(writer), ExitStack() as admitted:
                try:
                    admitted.enter_context(self._admitted(info.peer_id, "stream", name))
                except RefusedError as error:
                    await self._turn_away(error, frames, writer)
                    return
                with frames.impatient(frames_due, seconds, whole, partial(self._refusal, "slow")):
                    await handler(info, frames, HeldOpen(writer))  # type: ignore[arg-type]
                with suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(LINGER_SECONDS):
                        await frames.until_hung_up()

        await super().add_binary_stream_handler(name, guarded, balanced=balanced)

    async def call_binary_stream_handler(
        self, peer_id: PeerID, handler_name: str
    ) -> tuple[Any, FrameReader, asyncio.StreamWriter]:
        """As inherited."""
        opening = partial(open_stream, self, peer_id, handler_name)
        info, reader, writer = await self.admission.call(peer_id, handler_name, opening)
        longest = lengths_of(handler_name).reply
        return info, FrameReader(reader, lambda count: self._check_length(count, longest)), writer

    async def _turn_away(
        self, error: RefusedError, frames: FrameReader, writer: asyncio.StreamWriter
    ) -> None:
        """Say why; the first few may read it before the stream is closed, see above."""
        self._turned_away += 1
        try:
            with suppress(OSError):  # it may have hung up, or takes too long
                async with asyncio.timeout(LINGER_SECONDS):
                    await P2P.send_protobuf(RPCError(message=str(error)), writer)
                    if self._turned_away <= TURNED_AWAY_MAX:
                        await frames.until_hung_up()
        finally:
            self._turned_away -= 1

    def _check(self, message: Any, sender: PeerID, longest: int) -> None:
        self._check_length(message.ByteSize(), longest)
        with self._refusing():
            check_dht_message(message, sender.to_bytes(), self.refused)

    def _check_length(self, count: int, longest: int) -> None:
        if count > longest:
            raise self._refusal("size", f"a message of {count:,} bytes")

    def _count(self, peer: PeerID, *, calls: int = 0, size: int = 0) -> None:
        with self._refusing():
            self.limits.count(str(peer), calls=calls, size=size)

    @contextmanager
    def _admitted(self, peer: PeerID, kind: Kind, method: str) -> Iterator[None]:
        with ExitStack() as stack:
            with self._refusing():
                stack.enter_context(self.limits.open(str(peer), kind))
            if objection := self.admission.objection(str(peer), method):
                raise self._refusal("invitation", objection)
            yield

    @asynccontextmanager
    async def _time_limit(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(CALL_SECONDS) as limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self._refusal("slow", "the call took too long") from error

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """What is found malformed, or is too much, is refused."""
        try:
            yield
        except LimitError as error:
            raise self._refusal(error.reason, str(error)) from error
        except ValueError as error:
            raise self._refusal("form", str(error)) from error

    def _refusal(self, reason: str, message: str) -> RefusedError:
        self.refused[reason] += 1
        return RefusedError(message)


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
