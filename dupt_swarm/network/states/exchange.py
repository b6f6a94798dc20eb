"""Exchange of blobs: each peer serves what it holds, and fetches by digest from those that hold it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Annotated, ClassVar, Protocol, Self

from pydantic import Field

from dupt_swarm.errors import NodeError
from dupt_swarm.fields import Count, Digest
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.pauses import Pauses
from dupt_swarm.network.p2p.rpc import (
    CallError,
    Callers,
    Message,
    Raw,
    Refusal,
    blamed_on_caller,
    check_elements,
    rpc,
    rpc_stream,
)
from dupt_swarm.network.states.download import AVOID_SECONDS, Donors, Download, is_harmless, reason_of
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.network.states.serving import SMALL_BYTES, SMALL_SLOTS, BlobCache, UploadSlots
from dupt_swarm.node.messages import Downloading
from dupt_swarm.replica.blob import INDEX_BYTES_MAX, Assembly, Blob, Index
from dupt_swarm.replica.contribution import CONTRIBUTION
from dupt_swarm.replica.link import Link
from dupt_swarm.replica.signed_words import BeginningRecord, LinkRecord
from dupt_swarm.replica.state import KIND

ANSWER_SECONDS = 10.0
# After this long without an answer, the next donor is asked too.
NEXT_DONOR_SECONDS = 1.0
REQUEST_CHUNKS_MAX = 64
CHUNK_BYTES_MAX = (1 << 20) + 64
NAME_BYTES_MAX = 128  # a digest
NOT_HELD = "the donor does not hold this blob any more"
# An index has one for each chunk, 67 bytes long.
INDEX_ELEMENTS_MAX = 1 << 15
# Of a chain: the last ones, and then ever fewer. A link of a hundred members has some 200 kB.
STATES_MAX, LINKS_BYTES_MAX, LINKS_ELEMENTS_MAX = 128, 1 << 20, 1 << 16
# Of a chain from one peer, each as long as an answer may be. After the first ones it answers no faster.
PAGES_MAX, PAGES_AT_ONCE, PAGE_SECONDS = 256, 16, 0.3


class ChunksMessage(Message):
    """Which chunks of a blob somebody wants."""

    digest: Digest
    numbers: Annotated[tuple[Count, ...], Field(min_length=1, max_length=REQUEST_CHUNKS_MAX)]


class KnownMessage(Message):
    """States that somebody knows, the last one first; none: it knows nothing of this swarm yet."""

    states: Annotated[tuple[Digest, ...], Field(max_length=STATES_MAX)] = ()


class LinksMessage(Message):
    """Links that follow from the last state that both know, or from the first one that we know.

    Attributes:
        links: in order.
        begins: where our chain does, for who knows nothing of it.
    """

    elements_max: ClassVar[int] = LINKS_ELEMENTS_MAX

    links: tuple[LinkRecord, ...] = ()
    begins: BeginningRecord | None = None

    @classmethod
    def of(cls, links: Iterable[Link], begins: BeginningRecord | None = None) -> LinksMessage:
        """The first ones, as many as are allowed, but one at least."""
        found: list[LinkRecord] = []
        left = LINKS_BYTES_MAX
        for link in links:
            record = LinkRecord.of(link)
            left -= len(record.to_bytes()) + 1
            if left < 0 and found:
                break
            found.append(record)
        return cls(links=tuple(found), begins=begins)


@dataclass(frozen=True)
class IndexMessage:
    """The index of a blob."""

    index: Index

    def pack(self) -> bytes:
        """As it travels."""
        return self.index.data

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Read another peer's.

        Raises:
            ValueError: it is malformed.
        """
        check_elements(data, INDEX_ELEMENTS_MAX)
        return cls(Index.parse(data))


class Files(Protocol):
    """Blobs that are on the disk; what comes from strangers need be no digest."""

    def has(self, digest: str) -> bool:
        """Whether it seems to be there."""

    async def index(self, digest: str) -> Index | None:
        """Its index, if it is there."""

    async def chunk(self, digest: str, number: int) -> memoryview | None:
        """One that its index names, if it is there; it takes time on the disk."""


class Shelf(Protocol):
    """Blobs to serve."""

    def get(self, digest: str) -> Blob | None:
        """The blob, if it is here."""

    @property
    def blobs(self) -> list[Blob]:
        """All of them."""


class Exchange:
    """Serves immutable blobs, so that serving never waits for training or the other way round.

    Attributes:
        attestation: the organiser's last word that we know, for those who ask who we are.
    """

    def __init__(self, p2p: GuardedP2P) -> None:
        """``p2p`` has its bandwidth by now."""
        self._p2p = p2p
        self._hello: Hello | None = None
        self.attestation = ""
        self._cache = BlobCache()
        self._shelves: list[Shelf] = [self._cache]
        self._files: Files | None = None
        self._links: Callable[[Sequence[str]], Iterable[Link]] = lambda _: ()
        self._begins: Callable[[], BeginningRecord | None] = lambda: None
        self._slots = UploadSlots.within(p2p.bandwidth.upload.rate)
        self._small_slots = UploadSlots(SMALL_SLOTS)
        self._file_slots = UploadSlots.within(p2p.bandwidth.upload.rate)
        self._avoided = Pauses(AVOID_SECONDS, AVOID_SECONDS)

    def publish(self, hello: Hello, blobs: Sequence[Blob]) -> None:
        """From now on serve ``blobs``, and for a while older ones that are being asked for."""
        self._hello = hello
        self._cache.put(blobs)

    def serve_from(self, shelf: Shelf) -> None:
        """From now on serve whatever is on ``shelf`` too."""
        self._shelves.append(shelf)

    def serve_files(self, files: Files) -> None:
        """From now on serve these files, too."""
        self._files = files

    def tell_links(
        self,
        links: Callable[[Sequence[str]], Iterable[Link]],
        begins: Callable[[], BeginningRecord | None] = lambda: None,
    ) -> None:
        """From now on tell others what ``links`` gives (see `Chain.since`), and where the chain begins."""
        self._links, self._begins = links, begins

    @rpc(
        *(Raw, Hello),
        longest=(NAME_BYTES_MAX, 1 << 18),
        callers=Callers.ANYBODY,
        seconds=ANSWER_SECONDS,
        calls=2,
    )
    async def rpc_hello(self, request: Raw, caller: str) -> Hello:
        """Our own hello, once we have one."""
        del request, caller
        if self._hello is None:
            raise CallError(Refusal.NOT_HELD, "this peer is in no swarm yet")
        now = {"time": str(time.time()), "states": " ".join(self._states()), "attestation": self.attestation}
        return self._hello.model_copy(update=now)

    @rpc(Raw, IndexMessage, longest=(NAME_BYTES_MAX, INDEX_BYTES_MAX), seconds=ANSWER_SECONDS, calls=4)
    async def rpc_index(self, request: Raw, caller: str) -> IndexMessage:
        """The index of the blob with the digest that was sent."""
        del caller
        with blamed_on_caller():
            digest = request.data.decode()
        return IndexMessage(await self._index_of(digest))

    @rpc(
        *(KnownMessage, LinksMessage),
        longest=(10_000, LINKS_BYTES_MAX + (1 << 19)),
        seconds=ANSWER_SECONDS,
        calls=50,
    )
    async def rpc_links(self, request: KnownMessage, caller: str) -> LinksMessage:
        """The links of our chain from the last state that the caller knows too, the first ones of them."""
        del caller
        return LinksMessage.of(self._links(request.states), None if request.states else self._begins())

    # 64 chunks, at 75 KB/s
    @rpc_stream(ChunksMessage, longest=(4096, CHUNK_BYTES_MAX), seconds=900.0)
    async def rpc_chunks(self, request: ChunksMessage, caller: str) -> AsyncGenerator[memoryview, None]:
        """The chunks asked for, in the order asked for, each once.

        Instead of them, or of the rest: `LATER`, if too many peers download from us at this moment, or it is
        the turn of another stranger.
        """
        found = self._find(request.digest)
        if found is None and not (self._files and self._files.has(request.digest)):
            raise CallError(Refusal.NOT_HELD, NOT_HELD)
        slots = self._slots_for(found)
        with slots.taken_by(caller, stranger=not self._p2p.limits.is_trusted(caller)) as free:
            if not free:
                raise CallError(Refusal.LATER, "no slot is free")
            # Before anything is read for it: a refusal costs the caller nothing.
            if max(request.numbers) >= len((await self._index_of(request.digest)).chunk_sha256):
                raise CallError(Refusal.MALFORMED, "no such chunk")
            for number in dict.fromkeys(request.numbers):
                if slots.is_turn_over(caller):
                    raise CallError(Refusal.LATER, "it is the turn of others")
                self._cache.get(request.digest)  # it stays as long as it is being sent
                yield found.chunk(number) if found else await self._read(request.digest, number)

    def _slots_for(self, blob: Blob | None) -> UploadSlots:
        """Those that it waits for: who fetches a state, a file, or a contribution should not wait for others.

        None: it is a file.
        """
        if blob is None:
            return self._file_slots
        header = blob.index.header
        small = header.get("kind") == CONTRIBUTION or sum(blob.index.sizes) <= SMALL_BYTES
        return self._small_slots if small else self._slots

    async def _index_of(self, digest: str) -> Index:
        found = self._find(digest)
        index = found.index if found else await self._files.index(digest) if self._files else None
        if index is None:
            raise CallError(Refusal.NOT_HELD, NOT_HELD)
        return index

    async def _read(self, digest: str, number: int) -> memoryview:
        chunk = await self._files.chunk(digest, number) if self._files else None
        if chunk is None:
            raise CallError(Refusal.NOT_HELD, NOT_HELD)
        return chunk

    def _find(self, digest: str) -> Blob | None:
        found = (shelf.get(digest) for shelf in self._shelves)
        return next((blob for blob in found if blob is not None), None)

    def _states(self) -> Iterator[str]:
        held = {blob.digest: blob for shelf in self._shelves for blob in shelf.blobs}
        for blob in held.values():
            if blob.index.header.get("kind") == KIND:
                yield f"{blob.index.header['round']}:{blob.digest}"

    async def hello(self, peer: str) -> Hello:
        """Ask ``peer`` who it is.

        Raises:
            CallError: it is no peer of a swarm (yet).
        """
        return await self._p2p.call(peer, Exchange.rpc_hello, Raw())

    async def links_of(
        self, peer: str, known: Sequence[str], *, all: bool = False
    ) -> AsyncGenerator[LinksMessage, None]:
        """Links of the chain of ``peer`` from the last state on that is among the ``known`` ones.

        They come page by page, within the rate at which we receive. The last one is empty, unless there are
        too many; ``all``: however many there are, for whoever looks at each before the next one is asked for.

        Raises:
            CallError: it does not tell.
        """
        for number in count() if all else range(PAGES_MAX):
            if number:
                await self._p2p.bandwidth.download.take(0)
            if number >= PAGES_AT_ONCE:
                await asyncio.sleep(PAGE_SECONDS)
            states = dict.fromkeys([*known[: STATES_MAX - 1], *known[-1:]])
            message = KnownMessage(states=tuple(states))
            page = await self._p2p.call(peer, Exchange.rpc_links, message)
            self._p2p.bandwidth.download.charge(len(page.pack()))
            yield page
            if not page.links:
                return
            known = [page.links[-1].after]

    async def fetch_index(self, digest: str, donors: Sequence[str]) -> Index:
        """The index of blob ``digest``, checked, from the first donor that gives it.

        Raises:
            NodeError: none did; says why for each.
        """
        waiting = sorted(donors, key=self._avoided.__contains__)
        asked: dict[asyncio.Task[Index], str] = {}
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
                    if not is_harmless(error):
                        self._avoided.note(donor, useful=False)
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

        def ask(donor: str, numbers: list[int]) -> AsyncGenerator[memoryview, None]:
            message = ChunksMessage(digest=assembly.index.digest, numbers=tuple(numbers))
            return self._p2p.stream(donor, Exchange.rpc_chunks, message)

        download = Download(assembly, ask, self._avoided, self._p2p.bandwidth.download, tell)
        await download.run(donors, seconds)
        return assembly.finish()

    async def _ask_index(self, donor: str, digest: str) -> Index:
        index = (await self._p2p.call(donor, Exchange.rpc_index, Raw(digest.encode()))).index
        if index.digest != digest:
            raise ValueError("the donor sent another blob")
        return index
