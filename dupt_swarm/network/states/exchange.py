"""Exchange of blobs: each peer serves what it holds, and fetches by digest from those that hold it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import asdict
from typing import AsyncIterator, Protocol  # noqa: UP035 (hivemind recognises streams by this one only)

from google.protobuf.wrappers_pb2 import BytesValue, StringValue
from hivemind.p2p import P2P, P2PContext, PeerID, ServicerBase

from dupt_swarm.errors import NodeError
from dupt_swarm.network.p2p.bandwidth import Bandwidth
from dupt_swarm.network.p2p.plain_json import load
from dupt_swarm.network.states.blob_cache import BlobCache
from dupt_swarm.network.states.donor import (
    NOT_HELD,
    Backoff,
    BusyError,
    Donors,
    NotHeldError,
    busy_if_told_so,
    reason_of,
)
from dupt_swarm.network.states.download import Download
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.network.states.upload_slots import SMALL_BYTES, SMALL_SLOTS, UploadSlots
from dupt_swarm.node.messages import Downloading
from dupt_swarm.replica.blob import INDEX_BYTES_MAX, Assembly, Blob, Index
from dupt_swarm.replica.contribution import CONTRIBUTION
from dupt_swarm.replica.log_entry import LogEntry, log_bytes, parse_log
from dupt_swarm.replica.state import KIND

HELLO_SECONDS = 10.0
INDEX_SECONDS = 10.0
LOG_SECONDS = 10.0
# After this long without an answer, the next donor is asked too.
NEXT_DONOR_SECONDS = 1.0
# A downloader that reads a chunk more slowly than this is dropped.
SEND_SECONDS = 30.0
REQUEST_CHUNKS_MAX = 64


class Shelf(Protocol):
    """Blobs to serve."""

    def get(self, digest: str) -> Blob | None:
        """The blob, if it is here."""

    @property
    def blobs(self) -> list[Blob]:
        """All of them."""


class Exchange(ServicerBase):  # type: ignore[misc]
    """Serves immutable blobs, so that serving never waits for training or the other way round.

    Attributes:
        attestation: the organiser's last word that we know, for those who ask who we are.
    """

    def __init__(
        self,
        p2p: P2P,
        bandwidth: Bandwidth | None = None,
        is_member: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """``is_member`` says of a peer id whether its record is known: strangers have fewer places."""
        self._p2p, self._is_member = p2p, is_member
        self._bandwidth = bandwidth or Bandwidth()
        self._hello: Hello | None = None
        self.attestation = ""
        self._cache = BlobCache()
        self._shelves: list[Shelf] = [self._cache]
        self._log: Callable[[str], list[LogEntry]] = lambda _: []
        self._slots, self._small_slots = (
            UploadSlots.within(self._bandwidth.upload.rate),
            UploadSlots(SMALL_SLOTS),
        )
        self._backoff = Backoff()

    async def start(self) -> None:
        """Start serving other peers."""
        await self.add_p2p_handlers(self._p2p)

    def publish(self, hello: Hello, blobs: Sequence[Blob]) -> None:
        """From now on serve ``blobs``, and for a while older ones that are being asked for."""
        self._hello = hello
        self._cache.put(blobs)

    def serve_from(self, shelf: Shelf) -> None:
        """From now on serve whatever is on ``shelf`` too."""
        self._shelves.append(shelf)

    def tell_log(self, log: Callable[[str], list[LogEntry]]) -> None:
        """From now on tell others the rounds that ``log`` gives: since the state of a digest, or all."""
        self._log = log

    async def rpc_hello(self, _request: StringValue, _context: P2PContext) -> BytesValue:
        """Our own hello; empty until we have one."""
        if self._hello is None:
            return BytesValue()
        now = {
            "time": str(time.time()),
            "states": " ".join(self._states()),
            "attestation": self.attestation,
        }
        return BytesValue(value=json.dumps(asdict(self._hello) | now).encode())

    async def rpc_index(self, request: StringValue, _context: P2PContext) -> BytesValue:
        """The index of a blob, or nothing if we do not hold it."""
        blob = self._find(request.value)
        return BytesValue(value=blob.index.data if blob else b"")

    async def rpc_log(self, request: StringValue, _context: P2PContext) -> BytesValue:
        """The log of rounds up to our state: from the state that is named on, or else all that we keep."""
        return BytesValue(value=log_bytes(self._log(request.value)))

    async def rpc_chunks(self, request: BytesValue, context: P2PContext) -> AsyncIterator[BytesValue]:
        """The chunks asked for, in the order asked for, each once.

        Instead of them: `NOT_HELD`, or an empty message, as no chunk is: too many peers download from us at
        this moment. Instead of the rest an empty one too, when it is the turn of another stranger.
        """
        wanted = load(request.value)
        blob = self._find(wanted["digest"])
        if blob is None:
            yield BytesValue(value=NOT_HELD)
            return
        numbers = list(dict.fromkeys(wanted["numbers"]))
        if len(numbers) > REQUEST_CHUNKS_MAX:
            raise ValueError(f"ask for at most {REQUEST_CHUNKS_MAX} chunks at once")
        urgent = blob.index.header.get("kind") == CONTRIBUTION  # a group waits for it
        small = urgent or sum(blob.index.sizes) <= SMALL_BYTES
        slots, peer = self._small_slots if small else self._slots, str(context.remote_id)
        with slots.taken_by(peer, stranger=not self._is_member(peer)) as free:
            if not free:
                yield BytesValue()
                return
            for number in numbers:
                if slots.is_turn_over(peer):
                    yield BytesValue()
                    return
                chunk = bytes(blob.chunk(number))
                await self._bandwidth.upload.take(len(chunk), urgent=urgent)
                self._cache.get(blob.digest)  # it stays as long as it is being sent
                with _time_limit(SEND_SECONDS):
                    yield BytesValue(value=chunk)

    def _find(self, digest: str) -> Blob | None:
        found = (shelf.get(digest) for shelf in self._shelves)
        return next((blob for blob in found if blob is not None), None)

    def _states(self) -> Iterator[str]:
        held = {blob.digest: blob for shelf in self._shelves for blob in shelf.blobs}
        for blob in held.values():
            if blob.index.header.get("kind") == KIND:
                yield f"{blob.index.header['round']}:{blob.digest}"

    async def hello(self, peer: PeerID) -> Hello:
        """Ask ``peer`` who it is.

        Raises:
            ValueError: it is no peer of a swarm (yet).
        """
        async with asyncio.timeout(HELLO_SECONDS):
            reply = await self.get_stub(self._p2p, peer).rpc_hello(StringValue())
        return Hello.parse(reply.value)

    async def log_of(self, peer: PeerID, since: str = "") -> list[LogEntry]:
        """The log of rounds of ``peer``, from the state ``since`` on if it reaches back so far.

        Raises:
            ValueError: it is malformed.
        """
        async with asyncio.timeout(LOG_SECONDS):
            reply = await self.get_stub(self._p2p, peer).rpc_log(StringValue(value=since))
        return parse_log(reply.value)

    async def fetch_index(self, digest: str, donors: Sequence[PeerID]) -> Index:
        """The index of blob ``digest``, checked, from the first donor that gives it.

        Raises:
            NodeError: none did; says why for each.
        """
        waiting = sorted(donors, key=self._backoff.__contains__)
        asked: dict[asyncio.Task[Index], PeerID] = {}
        problems = []
        try:
            while waiting or asked:
                if waiting:
                    donor = waiting.pop(0)
                    asked[asyncio.create_task(self._ask_index(donor, digest))] = donor
                patience = NEXT_DONOR_SECONDS if waiting else None
                done, _ = await asyncio.wait(asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    donor, error = asked.pop(task), task.exception()
                    if error is None:
                        return task.result()
                    problems.append(f"{donor}: {reason_of(error)}")
                    if not isinstance(error, NotHeldError | BusyError):
                        self._backoff.add(donor)
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        raise NodeError("no peer could give the data: " + ("; ".join(problems) or "nobody has it"))

    async def fetch(
        self,
        assembly: Assembly,
        donors: Donors,
        seconds: float,
        tell: Callable[[Downloading], None] = lambda _: None,
    ) -> Blob:
        """Complete ``assembly`` from several donors at once; see `Download.run`.

        Raises:
            NodeError: it could not be completed in time; what arrived stays in the assembly.
        """

        def ask(donor: PeerID, numbers: list[int]) -> AsyncGenerator[bytes, None]:
            return self._ask_chunks(donor, assembly.index.digest, numbers)

        await Download(assembly, ask, self._backoff, self._bandwidth.download, tell).run(donors, seconds)
        return assembly.finish()

    async def _ask_index(self, donor: PeerID, digest: str) -> Index:
        stub = self.get_stub(self._p2p, donor)
        with busy_if_told_so():
            async with asyncio.timeout(INDEX_SECONDS):
                reply = await stub.rpc_index(StringValue(value=digest))
        if not reply.value:
            raise NotHeldError
        if len(reply.value) > INDEX_BYTES_MAX or hashlib.sha256(reply.value).hexdigest() != digest:
            raise ValueError("the donor sent another blob")
        return Index.parse(reply.value)

    async def _ask_chunks(
        self, donor: PeerID, digest: str, numbers: list[int]
    ) -> AsyncGenerator[bytes, None]:
        request = json.dumps({"digest": digest, "numbers": numbers}).encode()
        with busy_if_told_so():
            stream = await self.get_stub(self._p2p, donor).rpc_chunks(BytesValue(value=request))
            async with contextlib.aclosing(stream) as replies:
                async for reply in replies:
                    if reply.value == NOT_HELD:
                        raise NotHeldError
                    yield reply.value


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Cancel the task that runs this block if it does not leave the block in time.

    Unlike `asyncio.timeout` it may enclose a ``yield``: libp2p's handler then waits for the receiver.
    """
    task = asyncio.current_task()
    assert task is not None
    timer = asyncio.get_running_loop().call_later(seconds, task.cancel)
    try:
        yield
    finally:
        timer.cancel()
