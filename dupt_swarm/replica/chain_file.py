"""The chain of rounds on disk: for good, one line for each link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain as joined
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.link import Link
from dupt_swarm.replica.signed_words import BeginningRecord, LinkRecord, Words

BATCH = 256  # links that are read ahead: the lines of all would take as much memory again


def beginning_in(path: Path) -> BeginningRecord:
    """Where the chain that is kept at ``path`` begins.

    Raises:
        ValueError: it does not say.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return BeginningRecord.parse(file.readline())


class ChainFile:
    """The chain of one peer. The first line says where it begins: round, digest and electorate.

    Attributes:
        torn: whether the last line that was read had not been written to its end.
    """

    def __init__(self, path: Path, words: Words) -> None:
        """``words`` reads what was signed for the links."""
        self.path, self._words = path, words
        self.torn = False

    def load(self) -> Chain:
        """The chain, as it was kept; a last line that was not written to its end is dropped.

        Raises:
            ValueError: it is damaged, or a link does not leave the state before it; says which.
            OSError: it cannot be read.
        """
        with self.path.open("rb") as file, ThreadPoolExecutor() as readers:
            lines = self._lines(file)
            try:
                chain = BeginningRecord.parse(next(lines, b"")).chain
            except ValueError as error:
                raise ValueError(f"{self.path.name}: it does not say where it begins: {error}") from error
            # Most of the time goes to signatures, which threads verify side by side.
            batches = iter(lambda: [readers.submit(self._read, line) for line in islice(lines, BATCH)], [])
            for number, each in enumerate(joined.from_iterable(batches), chain.electorate.round + 1):
                try:
                    link = each.result()
                    if link.state not in chain:
                        raise ValueError("it does not leave the state before it: one is missing")
                    chain.follow([link])
                except ValueError as error:
                    readers.shutdown(cancel_futures=True)
                    raise ValueError(f"{self.path.name}: the link of round {number}: {error}") from error
        return chain

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        for line in file:
            self.torn = not line.endswith(b"\n")
            if not self.torn:
                yield line

    def _read(self, line: bytes) -> Link:
        return LinkRecord.parse(line).link(self._words)

    def write(self, chain: Chain) -> None:
        """Write ``chain`` in place of what is there.

        Raises:
            FileError: it cannot be written.
        """

        def write(temporary: Path) -> None:
            with temporary.open("wb") as file:
                file.write(BeginningRecord.of(chain).to_bytes() + b"\n")
                for link in chain.links:
                    file.write(LinkRecord.of(link).to_bytes() + b"\n")

        write_atomically(self.path, write)

    def append(self, links: Sequence[Link]) -> None:
        """Add ``links`` to what is there.

        Raises:
            OSError: it cannot be written.
        """
        with self.path.open("ab") as file:
            file.write(b"".join(LinkRecord.of(link).to_bytes() + b"\n" for link in links))
