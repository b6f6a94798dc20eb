"""Calls between peers: each method is declared once, with all that the gate must know before it reads one.

A method is a coroutine of a service under the decorator `rpc`, or an asynchronous generator under
`rpc_stream`. `GuardedP2P.serve` lets others call it, `GuardedP2P.call` and `stream` call it at another peer::

    class Deciding:
        @rpc(ReportMessage, AnswerMessage, longest=(600_000, 800_000), callers=Callers.MEMBERS)
        async def rpc_report(self, request: ReportMessage, caller: str) -> AnswerMessage: ...

    answer = await p2p.call(peer_id, Deciding.rpc_report, message)

A reply begins with one byte: 0, or a `Refusal`. Whatever goes wrong with a call, its caller gets `CallError`.
A handler refuses by raising one; any other error of it is its own, and its caller hears `FAILED`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, overload

from hivemind.p2p import P2PHandlerError
from pydantic import BaseModel, ConfigDict, ValidationError

from dupt_swarm.command_line.printable import one_line

# The largest honest frame of a stream is a chunk of a blob or a part of a vector: 1 MiB and a few bytes.
FRAME_BYTES_MAX = 2 << 20
CALL_SECONDS = 30.0
# Longer ones are read in a thread.
LONG_BYTES = 1 << 15
DETAIL_BYTES_MAX = 200
ANSWERED = b"\0"  # before what an answer says


class Refusal(IntEnum):
    """Why a call came to nothing: what a peer says instead of an answer, or what its caller finds."""

    MALFORMED = 1  # the request
    TOO_LONG = 2  # the request
    LATER = 3  # the caller asks too much, or there is no place for it at this moment
    NOT_INVITED = 4  # the caller has not shown a credential that counts
    NOT_ALLOWED = 5  # the method is for others
    NOT_HELD = 6  # what is asked for is not here, or not any more
    TOO_SLOW = 7
    FAILED = 8  # an error of whoever was called
    # Nobody says these:
    NO_ANSWER = 128  # in time
    UNREACHABLE = 129
    NONSENSE = 130  # an answer that cannot be read


class CallError(P2PHandlerError):  # type: ignore[misc]
    """A call came to nothing. A handler that raises it refuses the call; hivemind takes it for a failed one.

    Attributes:
        refusal: why.
        detail: the same in words, for people alone.
    """

    def __init__(self, refusal: Refusal, detail: str = "") -> None:
        self.refusal = refusal
        self.detail = detail or refusal.name.lower().replace("_", " ")
        super().__init__(self.detail)

    def pack(self) -> bytes:
        """As it travels in place of an answer."""
        return bytes([self.refusal]) + self.detail.encode(errors="replace")[:DETAIL_BYTES_MAX]

    @classmethod
    def read(cls, data: bytes) -> CallError:
        """What another peer said in place of an answer; nonsense is one too, and nothing is `LATER`."""
        if not data:
            return cls(Refusal.LATER, "it has no upload left to say why")
        try:
            refusal = Refusal(data[0])
        except ValueError:
            return cls(Refusal.NONSENSE, "neither an answer nor a refusal")
        return cls(refusal, one_line(bytes(data[1 : 1 + DETAIL_BYTES_MAX]).decode(errors="ignore")))


@contextmanager
def blamed_on_caller() -> Iterator[None]:
    """What is found malformed in the block has come from the caller, who hears that and no more.

    Raises:
        CallError: in place of `ValueError`, whose text may be many times as long as what it is about.
    """
    try:
        yield
    except ValueError as error:
        raise CallError(Refusal.MALFORMED) from error


class Callers(Enum):
    """Which peers may call a method."""

    ANYBODY = auto()
    ADMITTED = auto()  # by the swarm's admission; in an open swarm everybody is
    MEMBERS = auto()  # those that the service names, such as the members of a round


class Packed(Protocol):
    """What a request or a reply can do."""

    def pack(self) -> bytes:
        """As it travels."""

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Read another peer's.

        Raises:
            ValueError: it is malformed.
        """


class Message(BaseModel):
    """A message that travels as JSON, and is measured before it is parsed.

    Attributes:
        elements_max: the most values, lists and objects that an honest one has in it. Millions of empty lists
            fit into a megabyte, and each would be built.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    elements_max: ClassVar[int] = 256

    def pack(self) -> bytes:
        """As it travels."""
        return self.model_dump_json(exclude_defaults=True).encode()

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Read another peer's.

        Raises:
            ValueError: it is malformed, or has too many elements.
        """
        check_elements(data, cls.elements_max)
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            # Its text would be many times as long as the message, and take as long to write.
            raise ValueError(f"not a {cls.__name__}: {error.error_count()} problems") from None


@dataclass(frozen=True)
class Raw:
    """Bytes that their reader takes apart itself, or none."""

    data: bytes = b""

    def pack(self) -> bytes:
        """As it travels."""
        return self.data

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Whatever it is."""
        return cls(data)


def check_elements(data: bytes, most: int) -> None:
    """Count what JSON has in it at most, by its marks alone: a text may have some too.

    Raises:
        ValueError: more than ``most``.
    """
    elements = data.count(b",") + data.count(b"[") + data.count(b"{") + data.count(b":")
    if elements > most:
        raise ValueError(f"JSON of {elements:,} elements")


@dataclass(frozen=True)
class Bounds:
    """What is known of a method before a call is read.

    Attributes:
        request: the most bytes of a request, or of each frame of a stream of them.
        reply: the most bytes of a reply, likewise.
        callers: who may call.
        seconds: for which a caller waits, and an answer may take; or a whole stream.
        calls: as how many one counts, where its answer takes as long as theirs.
        urgent: whether its messages go before others where upload is limited: a round waits for them.
    """

    request: int
    reply: int
    callers: Callers = Callers.ADMITTED
    seconds: float = CALL_SECONDS
    calls: int = 1
    urgent: bool = False


# By their names on the wire, without a namespace: hivemind's own, and those that `rpc` declares.
BOUNDS = {
    "DHTProtocol.rpc_ping": Bounds(256, 256),
    "DHTProtocol.rpc_find": Bounds(512, 32_000),  # 16 keys; 20 neighbours of each
    "DHTProtocol.rpc_store": Bounds(512, 256),  # refused, however short
    # A round averages for 3600 s at most, as a manifest may allow.
    "Reducers.rpc_aggregate_part": Bounds(FRAME_BYTES_MAX, FRAME_BYTES_MAX, seconds=4500.0, urgent=True),
}


def bounds_of(name: str) -> Bounds:
    """Of a method by its name on the wire.

    Raises:
        LookupError: nobody has declared it.
    """
    try:
        return BOUNDS[name.rpartition("::")[2]]
    except KeyError:
        raise LookupError(f"{name}: declare this method by `rpc`, or in `BOUNDS`") from None


Request = TypeVar("Request", bound=Packed)
Reply = TypeVar("Reply", bound=Packed)
Answer = TypeVar("Answer")


@dataclass(eq=False)
class _Method(Generic[Request, Answer]):
    """A method that was declared: asked of the class it is itself, of a service what it does there."""

    handler: Callable[[Any, Request, str], Answer]
    request: type[Request]
    bounds: Bounds
    name: str = field(init=False, default="")  # on the wire

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or f"{owner.__name__}.{name}"
        BOUNDS[self.name] = self.bounds
        METHODS.setdefault(self.name, self)

    def override(self, handler: Callable[[Any, Request, str], Answer]) -> Self:
        """The same method, of a class that inherits it, with another ``handler``."""
        other = copy(self)
        other.handler = handler
        return other

    @overload
    def __get__(self, service: None, owner: type) -> Self: ...
    @overload
    def __get__(self, service: object, owner: type) -> Callable[[Request, str], Answer]: ...
    def __get__(self, service: object | None, owner: type) -> Self | Callable[[Request, str], Answer]:
        return self if service is None else partial(self.handler, service)


# All that were declared, by their names on the wire.
METHODS: dict[str, _Method[Any, Any]] = {}


@dataclass(eq=False)
class Method(_Method[Request, Coroutine[Any, Any, Reply]]):
    """One request, one reply; ``request`` and ``reply`` are their types."""

    reply: type[Reply]


class StreamMethod(_Method[Request, AsyncGenerator[Any, None]]):
    """One request, and any number of replies, each plain bytes."""


def rpc(
    request: type[Request], reply: type[Reply], *, longest: tuple[int, int], **bounds: Any
) -> Callable[[Callable[[Any, Request, str], Coroutine[Any, Any, Reply]]], Method[Request, Reply]]:
    """Declare a method ``async def rpc_…(self, request, caller: str) -> reply``.

    Args:
        request: the type of its request.
        reply: the type of its reply.
        longest: the most bytes of both.
        bounds: the other fields of `Bounds`.
    """

    def declare(handler: Callable[[Any, Request, str], Coroutine[Any, Any, Reply]]) -> Method[Request, Reply]:
        return Method(handler, request, Bounds(*longest, **bounds), reply)

    return declare


def rpc_stream(
    request: type[Request], *, longest: tuple[int, int], seconds: float = CALL_SECONDS
) -> Callable[[Callable[[Any, Request, str], AsyncGenerator[Any, None]]], StreamMethod[Request]]:
    """Declare a method that yields bytes, as `rpc` does, for whoever is admitted.

    ``longest`` is of the request, and of each reply; ``seconds`` of the whole stream.
    """

    def declare(handler: Callable[[Any, Request, str], AsyncGenerator[Any, None]]) -> StreamMethod[Request]:
        return StreamMethod(handler, request, Bounds(*longest, seconds=seconds))

    return declare
