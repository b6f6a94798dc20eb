"""Text that the swarm offers: files in a folder, which this peer serves and fetches more of."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.disk.offered import free_bytes
from dupt_swarm.errors import NodeError
from dupt_swarm.fields import DIGEST
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.task_group import wait_at_most
from dupt_swarm.node.messages import OfferedMissing, OfferedName
from dupt_swarm.node.view import View
from dupt_swarm.replica.blob import CHUNK_BYTES, Assembly, Index
from dupt_swarm.replica.offered import check_offered, offered_blob

# Time limit of a file: this, plus the time for its bytes at the slowest acceptable rate.
FILE_SECONDS = 60.0
BYTES_PER_SECOND_MIN = 25_000
READS_MAX = 2  # at once, so that there are threads for other things
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)  # the last one repeatedly

logger = logging.getLogger(__name__)


class OfferedFiles:
    """The files in one folder, each named by its digest.

    What is wanted comes one file after the other. A file is there as a whole or not at all, and was checked.
    """

    def __init__(
        self,
        folder: Path | None,
        exchange: Exchange,
        donors: Callable[[], Sequence[str]],
        tell: Callable[[object], None] = lambda _: None,
    ) -> None:
        """
        Args:
            folder: where they are; it need not be there. None: none are kept.
            exchange: fetches them, and from now on serves those that are here.
            donors: who may have some, in the order in which they are asked.
            tell: hears `OfferedMissing` when nobody gave one.
        """
        self._folder, self._exchange, self._donors, self._tell = folder, exchange, donors, tell
        self._wanted: Sequence[OfferedName] = ()
        self._changed = asyncio.Event()
        self._indices: dict[str, Index] = {}
        self._reading = asyncio.Semaphore(READS_MAX)
        if folder is not None:
            exchange.serve_files(self)
            for left in folder.glob(".*.tmp"):  # of a node that was killed while it wrote
                left.unlink(missing_ok=True)

    def want(self, files: Sequence[OfferedName]) -> None:
        """Fetch those of ``files`` that are not here, the first one first, and nothing else any more."""
        self._wanted = files
        self._changed.set()

    async def fetch_forever(self) -> None:
        """Fetch what is wanted."""
        failures = 0
        while True:
            self._changed.clear()
            missing = [each for each in self._wanted if not self.has(each.digest)]
            if not missing:
                failures = 0
                await self._changed.wait()
                continue
            try:
                await self._fetch(missing[failures % len(missing)])
                failures = 0
            except Exception as error:  # others and disks fail in many ways: it is tried again
                if not failures:  # in a row
                    logger.info("text that the swarm offers could not be fetched: %s", error)
                self._tell(OfferedMissing(str(error)))
                await wait_at_most(self._changed, RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
                failures += 1

    def has(self, digest: str) -> bool:
        """See `Files`; a name comes from strangers, and becomes a path."""
        return bool(DIGEST.fullmatch(digest)) and self._folder is not None and self._path(digest).is_file()

    async def index(self, digest: str) -> Index | None:
        """See `Files`. A file is hashed once: who fetches it does so too."""
        if not self.has(digest):
            return None
        if digest not in self._indices:
            async with self._reading:
                await asyncio.to_thread(self._hash, digest)
        return self._indices.get(digest)

    async def chunk(self, digest: str, number: int) -> memoryview | None:
        """See `Files`. Who fetches it hashes it, so that nobody does here."""
        index = await self.index(digest)
        if index is None:
            return None
        async with self._reading:
            return await asyncio.to_thread(self._read, index, number)

    def _hash(self, digest: str) -> None:
        """Runs in a thread."""
        if digest in self._indices:  # another request has had it hashed meanwhile
            return
        with contextlib.suppress(OSError):
            index = offered_blob(self._path(digest).read_bytes()).index
            if index.digest == digest:
                self._indices[digest] = index
            else:
                logger.warning("%s is damaged, and is not served", self._path(digest))

    def _read(self, index: Index, number: int) -> memoryview | None:
        """Runs in a thread."""
        size = index.chunk_sizes[number]
        try:
            with self._path(index.digest).open("rb") as file:
                file.seek(number * CHUNK_BYTES)
                data = file.read(size)
        except OSError:
            return None
        return memoryview(data) if len(data) == size else None

    def _path(self, digest: str) -> Path:
        assert self._folder is not None, "nothing is wanted or found where there is no folder"
        return self._folder / digest

    async def _fetch(self, wanted: OfferedName) -> None:
        """One file.

        Raises:
            NodeError: nobody gave it, or there is no room for it.
            ValueError: it is not what was wanted.
            FileError: it cannot be written.
        """

        async def donors() -> Sequence[str]:
            return self._donors()

        path = self._path(wanted.digest)
        _check_room(path.parent, wanted.most)
        index = await self._exchange.fetch_index(wanted.digest, self._donors())
        check_offered(index, wanted.most)
        seconds = FILE_SECONDS + sum(index.sizes) / BYTES_PER_SECOND_MIN
        blob = await self._exchange.fetch(Assembly(index), donors, seconds)
        await asyncio.to_thread(write_atomically, path, lambda file: file.write_bytes(blob.sections[0]))
        self._indices[wanted.digest] = index


def donors_in(others: View) -> list[str]:
    """Ids of those who may have such files, in the order in which to ask them.

    An oracle, then a first peer, which has all; so the latter need not be asked for everything, and what is
    rare is found soon.
    """
    groups = [[peer.peer_id for peer in peers] for peers in (others.oracles, others.first_peers)]
    for group in groups:
        random.shuffle(group)
    oracles, first_peers = groups
    return [*oracles[:1], *first_peers[:1], *oracles[1:], *first_peers[1:]]


def _check_room(folder: Path, size: int) -> None:
    """Before others have sent it for nothing.

    Raises:
        NodeError: the disk is full, or the folder cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        free = free_bytes(folder)
    except OSError as error:
        raise NodeError(f"{folder}: cannot be written ({error.strerror})") from error
    if free < size:
        raise NodeError(f"{folder}: the disk is full")
