"""The gate: every call passes it, ours and those of hivemind's DHT, as a caller and as who is called.

Of a call of somebody else it looks, in this order: whether the caller is admitted, and has asked for too
much; at the length; who may call the method; how many elements the request has. Then it is parsed and
handled, and the reply is charged to the caller's account and to our upload.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, closing, contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2P, P2PContext, P2PHandlerError, PeerID
from hivemind.proto.p2pd_pb2 import RPCError
from hivemind.utils.asyncio import as_aiter

from dupt_swarm.network.p2p.bandwidth import SHORT_BYTES, Bandwidth
from dupt_swarm.network.p2p.dht_messages import check_dht_message
from dupt_swarm.network.p2p.hivemind_internals import add_raw_handler, call_raw_handler, open_stream
from dupt_swarm.network.p2p.limits import OPEN, Admission, Kind, PeerLimits
from dupt_swarm.network.p2p.rpc import (
    ANSWERED,
    LONG_BYTES,
    Bounds,
    CallError,
    Callers,
    Method,
    Packed,
    Refusal,
    Reply,
    Request,
    StreamMethod,
    blamed_on_caller,
    bounds_of,
)
from dupt_swarm.network.p2p.streams import FrameReader, HeldOpen, leaving_in, then_drain
from dupt_swarm.node.messages import Traffic

# How long a stream stays open after the last reply for a caller that does not hang up.
LINGER_SECONDS = 2.0
# How long the one request of a stream may take; and the first part of a contribution, which waits for
# upload: as long as a manifest may allow.
REQUEST_SECONDS, FIRST_SECONDS = 15.0, 300.0
# A caller that reads one part of a stream's replies more slowly than this is dropped.
SEND_SECONDS = 30.0
# While our upload is so far behind, strangers get nothing that is long.
UPLOAD_DEBT_SECONDS = 5.0
TURNED_AWAY_MAX = 64  # are waited for at once, until they have read why

StreamHandler = Callable[[Any, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Read = TypeVar("Read", bound=Packed)

logger = logging.getLogger(__name__)


class GuardedP2P(P2P):  # type: ignore[misc]
    """hivemind's connection to the libp2p daemon, which lets in only what it can bear.

    The caller of a stream hangs up first: when a handler closes its end, p2pd closes the stream for reading
    and then for writing, and between the two its other half may wake up, find the stream closed, and reset
    it; the caller then loses what it has not read. So a stream lingers, and callers stop reading when they
    have what they want.

    What libp2p adds to messages (headers, encryption, relaying for others) is the daemon's business, and
    neither counted nor limited.

    Attributes:
        admission: which peers may call and be called; everybody until the manifest is known.
        bandwidth: what this peer may send and receive.
        limits: of what each peer may ask.
        refused: how much of what others sent was refused, by reason; see `REFUSED_MESSAGES`.
        unmet: ids of the peers that were dialled where others say they are, and never met. They are not
            called: libp2p would dial whatever addresses it has heard of each time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.admission: Admission = OPEN
        self.bandwidth = Bandwidth()
        self.refused: Counter[str] = Counter()
        self.limits = PeerLimits(self.refused)
        self.unmet: OrderedDict[str, None] = OrderedDict()
        self._sent = self._received = 0
        self._turned_away = 0  # at this moment
        self._streams: set[str] = set()  # names of those of ours: one request, and many replies

    @property
    def counts(self) -> Traffic:
        """The bytes that have passed so far, and what was refused."""
        return Traffic(self._received, self._sent, refused=dict(self.refused))

    # Our own methods

    async def serve(self, service: object, members: Callable[[str], bool] = lambda _: False) -> None:
        """Let others call the methods that ``service`` declares; ``members`` says who is a member."""
        for name in dir(type(service)):
            method = getattr(type(service), name)
            if isinstance(method, Method):
                await self._serve_calls(method, getattr(service, name), members)
            elif isinstance(method, StreamMethod):
                await self._serve_streams(method, getattr(service, name))

    async def call(self, peer: PeerID | str, method: Method[Request, Reply], request: Request) -> Reply:
        """Call a ``method`` of ``peer``, as it is declared in its class.

        Raises:
            CallError: whatever went wrong.
        """
        seconds = method.bounds.seconds
        with _as_call_error(seconds):
            peer_id, data = _id_of(peer), request.pack()

            async def attempt() -> bytes:
                reply = await self._ask(peer_id, method.name, method.bounds, data)
                if reply[:1] != ANSWERED:
                    raise CallError.read(reply)
                return reply

            async with asyncio.timeout(seconds):
                if method.bounds.callers is Callers.ANYBODY:
                    reply = await attempt()
                else:
                    reply = await self.admission.call(peer_id, attempt)
        try:
            return await _read(method.reply, reply[len(ANSWERED) :])
        except ValueError as error:
            raise self.refusal("form", Refusal.NONSENSE, str(error)) from None

    async def stream(
        self, peer: PeerID | str, method: StreamMethod[Request], request: Request
    ) -> AsyncGenerator[memoryview, None]:
        """The replies of ``peer``, each within as long as its caller waits: that is its own business.

        Raises:
            CallError: whatever went wrong.
        """
        peer_id = _id_of(peer)
        with _as_call_error(method.bounds.seconds):
            message = BytesValue(value=request.pack())
            replies = await self.iterate_protobuf_handler(peer_id, method.name, message, BytesValue)
        async with aclosing(replies):
            while True:
                with _as_call_error(method.bounds.seconds):
                    reply = await anext(replies, None)
                if reply is None:
                    return
                if reply.value[:1] != ANSWERED:
                    error = CallError.read(reply.value)
                    if error.refusal is Refusal.NOT_INVITED:
                        self.admission.refused_by(peer_id)
                    raise error
                yield memoryview(reply.value)[len(ANSWERED) :]

    async def _serve_calls(
        self,
        method: Method[Request, Reply],
        handler: Callable[[Request, str], Awaitable[Reply]],
        members: Callable[[str], bool],
    ) -> None:
        async def answer(data: bytes, caller: PeerID) -> bytes:
            with blamed_on_caller():
                request = await _read(method.request, data)
            return ANSWERED + (await handler(request, str(caller))).pack()

        async def answer_or_refuse(data: bytes, caller: PeerID) -> bytes:
            try:
                return await self._pass(method.name, data, caller, answer, members)
            except CallError as error:
                return self._afford(caller, error.pack())

        await add_raw_handler(self, method.name, answer_or_refuse)

    async def _serve_streams(
        self, method: StreamMethod[Request], handler: Callable[[Request, str], AsyncGenerator[Any, None]]
    ) -> None:
        async def answer(message: Any, context: P2PContext) -> AsyncGenerator[Any, None]:
            try:
                with blamed_on_caller():
                    request = await _read(method.request, message.value)
                async with aclosing(handler(request, str(context.remote_id))) as replies:
                    async for reply in replies:
                        _check_reply(len(ANSWERED) + len(reply), method.bounds)
                        yield BytesValue(value=b"".join((ANSWERED, reply)))
            except CallError as error:
                self._note(error)
                yield BytesValue(value=error.pack())
            except Exception:
                logger.exception("%s failed", method.name)
                yield BytesValue(value=CallError(Refusal.FAILED).pack())

        def paid(message: Any, context: P2PContext) -> AsyncGenerator[Any, None]:
            return self._paid(answer(message, context), context.remote_id, method.bounds, SEND_SECONDS)

        self._streams.add(method.name)
        await super().add_protobuf_handler(method.name, paid, BytesValue, stream_output=True)

    # What hivemind serves and calls

    async def add_protobuf_handler(
        self, name: str, handler: Callable[[Any, Any], Any], input_protobuf_type: type[Any], **kind: bool
    ) -> None:
        """As inherited; of calls, and of streams of requests.

        Raises:
            LookupError: nobody has declared the method.
        """
        bounds = bounds_of(name)
        if not kind.get("stream_input"):
            await self._add_unary_handler(name, handler, input_protobuf_type)
            return

        def guarded(requests: Any, context: Any) -> Any:
            return then_drain(self._paid(handler(requests, context), context.remote_id, bounds), requests)

        await super().add_protobuf_handler(name, guarded, input_protobuf_type, **kind)

    async def _add_unary_handler(
        self, name: str, handler: Callable[[Any, Any], Any], kind: type[Any]
    ) -> None:
        async def answer(data: bytes, caller: PeerID) -> bytes:
            with blamed_on_caller():
                message = self._read_protobuf(kind, data, caller)
            context = P2PContext(handle_name=name, local_id=self.peer_id, remote_id=caller)
            reply: bytes = (await handler(message, context)).SerializeToString()
            return reply

        async def answer_or_fail(data: bytes, caller: PeerID) -> bytes:
            try:
                return await self._pass(name, data, caller, answer)
            except CallError as error:
                # hivemind sends it as text, so that there always is some.
                if self._afford(caller, repr(error).encode()):
                    raise
                later = CallError(Refusal.LATER)
                self._charge(caller, len(repr(later)))
                raise later from error

        await add_raw_handler(self, name, answer_or_fail)

    async def call_protobuf_handler(
        self, peer_id: PeerID, name: str, input: Any, output_protobuf_type: type[Any]
    ) -> Any:
        """As inherited; of calls that are no streams."""
        ask = partial(self._ask, peer_id, name, bounds_of(name), input.SerializeToString())
        reply = await self.admission.call(peer_id, ask)
        try:
            return self._read_protobuf(output_protobuf_type, reply, peer_id)
        except ValueError as error:
            raise self.refusal("form", Refusal.NONSENSE, str(error)) from None

    def _read_protobuf(self, kind: type[Any], data: bytes, sender: PeerID) -> Any:
        """A message of hivemind's, without what it would trip over.

        Raises:
            ValueError: it is malformed.
        """
        try:
            message = kind.FromString(data)
        except DecodeError as error:
            raise ValueError(f"not a {kind.__name__}") from error
        check_dht_message(message, sender.to_bytes(), self.refused)
        return message

    async def iterate_protobuf_handler(
        self, peer_id: PeerID, name: str, input: Any, output_protobuf_type: type[Any]
    ) -> AsyncGenerator[Any, None]:
        """As inherited; what is sent keeps to the upload."""
        bounds = bounds_of(name)
        requests = self._paced(input if isinstance(input, AsyncIterable) else as_aiter(input), bounds)
        replies = await super().iterate_protobuf_handler(peer_id, name, requests, output_protobuf_type)
        return self._watched(replies, peer_id)

    async def add_binary_stream_handler(
        self, name: str, handler: StreamHandler, balanced: bool = False
    ) -> None:
        """As inherited."""
        bounds = bounds_of(name)
        # A caller with one request says at once that it sends no more.
        frames_due, seconds = (2, REQUEST_SECONDS) if name in self._streams else (1, FIRST_SECONDS)

        async def guarded(info: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            def check(count: int) -> None:
                self._received += count
                self._check_length(count, bounds.request)
                self.limits.count(str(info.peer_id), size=count)

            frames = FrameReader(reader, check)
            # Cancelled when the node ends, of which Python 3.11's streams would complain in the log.
            with suppress(asyncio.CancelledError), closing(writer), ExitStack() as admitted:
                try:
                    admitted.enter_context(self._admitted(info.peer_id, "stream", bounds))
                except CallError as error:
                    refused = RPCError(message=str(error))
                    if name in self._streams:
                        refused = BytesValue(value=error.pack())
                    await self._turn_away(info.peer_id, refused, frames, writer)
                    return
                late = partial(self.refusal, "slow", Refusal.TOO_SLOW)
                with frames.impatient(frames_due, seconds, bounds.seconds, late):
                    await handler(info, frames, HeldOpen(writer))  # type: ignore[arg-type]
                with suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(LINGER_SECONDS):
                        await frames.until_hung_up()

        await super().add_binary_stream_handler(name, guarded, balanced=balanced)

    async def call_binary_stream_handler(
        self, peer_id: PeerID, handler_name: str
    ) -> tuple[Any, FrameReader, asyncio.StreamWriter]:
        """As inherited."""
        longest = bounds_of(handler_name).reply + len(ANSWERED)
        self._check_met(peer_id)
        opening = partial(open_stream, self, peer_id, handler_name)
        info, reader, writer = await self.admission.call(peer_id, opening)

        def check(count: int) -> None:
            self._received += count
            self._check_length(count, longest)

        return info, FrameReader(reader, check), writer

    # The way of a call

    async def _pass(
        self,
        name: str,
        data: bytes,
        caller: PeerID,
        answer: Callable[[bytes, PeerID], Awaitable[bytes]],
        members: Callable[[str], bool] = lambda _: False,
    ) -> bytes:
        """Let a call in, have it answered, and charge for the answer.

        Raises:
            CallError: it is refused, or could not be answered.
        """
        bounds, peer = bounds_of(name), str(caller)
        self._received += len(data)
        with self._admitted(caller, "call", bounds):
            self._check_length(len(data), bounds.request)
            self.limits.count(peer, calls=bounds.calls - 1, size=len(data))
            if bounds.callers is Callers.MEMBERS and not members(peer):
                raise CallError(Refusal.NOT_ALLOWED, "only members of the round may call this")
            self._check_upload(peer, bounds)
            try:
                async with asyncio.timeout(bounds.seconds) as limit:
                    reply = await answer(data, caller)
                    _check_reply(len(reply), bounds)
                    await self._pay(caller, len(reply), bounds)
            except CallError as error:
                self._note(error)
                raise
            except Exception as error:
                if isinstance(error, TimeoutError) and limit.expired():
                    raise self.refusal("slow", Refusal.TOO_SLOW, "the call took too long") from error
                logger.exception("%s failed", name)
                raise CallError(Refusal.FAILED) from error
            return reply

    async def _ask(self, peer: PeerID, name: str, bounds: Bounds, data: bytes) -> bytes:
        """Call a method of another peer; its reply as it came, no longer than it may be."""
        self._check_met(peer)
        await self._send(len(data), bounds)
        reply: bytes = await call_raw_handler(self, peer, name, data)
        self._received += len(reply)
        self._check_length(len(reply), bounds.reply + len(ANSWERED))
        return reply

    def _check_met(self, peer: PeerID) -> None:
        if str(peer) in self.unmet:
            raise CallError(Refusal.UNREACHABLE, "nobody has met it where it is said to be")

    async def _pay(self, peer: PeerID, size: int, bounds: Bounds) -> None:
        """Charge what is about to be sent to who asked for it, and to our upload."""
        self.limits.charge(str(peer), size)
        await self._send(size, bounds, urgent=bounds.urgent or str(peer) in self.limits.mates)

    def _afford(self, peer: PeerID, refusal: bytes) -> bytes:
        """A refusal, if our upload has room for it at once; else nothing, which says `Refusal.LATER`."""
        if self.bandwidth.upload.debt_seconds > 0:
            return b""
        self._charge(peer, len(refusal))
        return refusal

    def _charge(self, peer: PeerID, size: int) -> None:
        """So much is sent to ``peer`` at once: what comes next waits for it."""
        self.limits.charge(str(peer), size)
        self.bandwidth.upload.charge(size)
        self._sent += size

    async def _send(self, size: int, bounds: Bounds, *, urgent: bool = False) -> None:
        upload = self.bandwidth.upload
        take = upload.take_short if size <= SHORT_BYTES else upload.take
        await take(size, urgent=urgent or bounds.urgent)
        self._sent += size

    async def _paid(
        self,
        replies: AsyncGenerator[Any, None],
        peer: PeerID,
        bounds: Bounds,
        seconds: float | None = None,
    ) -> AsyncGenerator[Any, None]:
        """The ``replies`` of a stream, each paid for, and read by the caller in time, if that is limited."""
        async with aclosing(replies):
            async for reply in replies:
                await self._pay(peer, reply.ByteSize(), bounds)
                with leaving_in(seconds):
                    yield reply

    async def _paced(self, requests: AsyncIterable[Any], bounds: Bounds) -> AsyncGenerator[Any, None]:
        """The ``requests`` of a stream, no faster than our upload allows."""
        async for request in requests:
            await self._send(request.ByteSize(), bounds)
            yield request

    async def _watched(self, replies: AsyncGenerator[Any, None], peer: PeerID) -> AsyncGenerator[Any, None]:
        """The ``replies`` of a stream; if it fails at the other end, it may be that that was started anew."""
        async with aclosing(replies):
            try:
                async for reply in replies:
                    yield reply
            except P2PHandlerError:
                self.admission.refused_by(peer)
                raise

    async def _turn_away(
        self, peer: PeerID, answer: Any, frames: FrameReader, writer: asyncio.StreamWriter
    ) -> None:
        """Say why; the first few may read it before the stream is closed, see above."""
        self._turned_away += 1
        try:
            with suppress(OSError):  # it may have hung up, or takes too long
                async with asyncio.timeout(LINGER_SECONDS):
                    if self._afford(peer, answer.SerializeToString()):
                        await P2P.send_protobuf(answer, writer)
                    if self._turned_away <= TURNED_AWAY_MAX:
                        await frames.until_hung_up()
        finally:
            self._turned_away -= 1

    def _check_length(self, count: int, longest: int) -> None:
        if count > longest:
            raise self.refusal("size", Refusal.TOO_LONG, f"a message of {count:,} bytes")

    def _check_upload(self, peer: str, bounds: Bounds) -> None:
        """Nothing long for strangers while what was sent already has used up our upload for a while."""
        if bounds.reply <= SHORT_BYTES or self.limits.is_member(peer):
            return
        if self.bandwidth.upload.debt_seconds > UPLOAD_DEBT_SECONDS:
            raise self.refusal("rate", Refusal.LATER, "this peer's upload is used up; try again later")

    @contextmanager
    def _admitted(self, peer: PeerID, kind: Kind, bounds: Bounds) -> Iterator[None]:
        self.unmet.pop(str(peer), None)
        with self.limits.open(str(peer), kind):
            if bounds.callers is not Callers.ANYBODY and (objection := self.admission.objection(str(peer))):
                raise self.refusal("invitation", Refusal.NOT_INVITED, objection)
            yield

    def _note(self, error: CallError) -> None:
        """Count what a handler, or reading a request, refuses as malformed; the others have been counted."""
        if error.refusal is Refusal.MALFORMED:
            self.refused["form"] += 1
            logger.debug("malformed: %s", error.__cause__ or error)

    def refusal(self, reason: str, refusal: Refusal, detail: str) -> CallError:
        """An error to raise, which is counted by its ``reason``."""
        self.refused[reason] += 1
        return CallError(refusal, detail)


async def _read(kind: type[Read], data: bytes) -> Read:
    """A request or a reply; a long one in a thread.

    Raises:
        ValueError: it is malformed.
    """
    return await asyncio.to_thread(kind.read, data) if len(data) > LONG_BYTES else kind.read(data)


def _check_reply(size: int, bounds: Bounds) -> None:
    """No reply is longer than its method says: whoever asks would not take it."""
    if size > bounds.reply + len(ANSWERED):
        raise RuntimeError(f"a reply of {size:,} bytes, where {bounds.reply:,} are the most")


def _id_of(peer: PeerID | str) -> PeerID:
    return PeerID.from_base58(peer) if isinstance(peer, str) else peer


@contextmanager
def _as_call_error(seconds: float) -> Iterator[None]:
    """Whatever fails here, in any way that libp2p knows, is a `CallError`."""
    try:
        yield
    except CallError:
        raise
    except TimeoutError as error:
        raise CallError(Refusal.NO_ANSWER, f"no answer within {seconds:g} s") from error
    except Exception as error:
        raise CallError(Refusal.UNREACHABLE, str(error) or repr(error)) from error
