"""Blobs: content-addressed data that travels in chunks, each verified on its own.

A blob is an index and its chunks. The index names the SHA-256 of every chunk, and the SHA-256 of the
index is the blob's digest. Whoever knows the digest can verify every chunk, no matter who sent it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

# Well under the 4 MiB limit of a libp2p message, and large enough to need few hashes.
CHUNK_BYTES = 1 << 20
# A unary libp2p response holds at most 2 MiB: enough for 30,000 chunks.
INDEX_BYTES_MAX = 2 << 20
SECTIONS_MAX = 64  # a replica state has one, and one for each buffer of the outer optimizer


@dataclass(frozen=True)
class Index:
    """What a blob consists of.

    Attributes:
        header: a small JSON object that says what the bytes mean.
        sizes: bytes of each section, in order; no chunk spans two sections.
        chunk_sha256: the 32-byte hash of every chunk, in order.
    """

    header: dict[str, Any]
    sizes: tuple[int, ...]
    chunk_sha256: tuple[bytes, ...]

    @cached_property
    def data(self) -> bytes:
        """The canonical bytes of this index."""
        tree = {
            "header": self.header,
            "sizes": self.sizes,
            "chunks": [digest.hex() for digest in self.chunk_sha256],
        }
        return json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes, hexadecimal: the digest of the blob."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def chunk_sizes(self) -> list[int]:
        """Bytes of each chunk, in order."""
        return [length for size in self.sizes for _, length in _cuts(size)]

    @classmethod
    def parse(cls, data: bytes) -> Index:
        """Read an untrusted index.

        Raises:
            ValueError: the bytes are not an index in canonical form.
        """
        try:
            tree = json.loads(data)
            sizes = tuple(int(size) for size in tree["sizes"])
            chunks = tuple(bytes.fromhex(text) for text in tree["chunks"])
            index = cls(dict(tree["header"]), sizes, chunks)
            canonical = index.data == data
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a blob index: {error}") from error
        if not canonical or any(size < 0 for size in sizes):
            raise ValueError("not a blob index in canonical form")
        if len(sizes) > SECTIONS_MAX:
            raise ValueError(f"a blob index of {len(sizes):,} sections")
        if sum(-(-size // CHUNK_BYTES) for size in sizes) != len(chunks):
            raise ValueError("the blob index names too many or too few chunks")
        return index


@dataclass(frozen=True)
class Blob:
    """An index and the sections it describes; immutable, so it can be served at any time."""

    index: Index
    sections: tuple[memoryview, ...]

    @classmethod
    def build(cls, header: dict[str, Any], sections: Sequence[bytes | memoryview]) -> Blob:
        """Hash ``sections``, which must not change afterwards, into a blob."""
        return cls.hashed(header, sections, [sha256 for part in sections for sha256 in chunk_hashes(part)])

    @classmethod
    def hashed(
        cls, header: dict[str, Any], sections: Sequence[bytes | memoryview], chunk_sha256: Sequence[bytes]
    ) -> Blob:
        """The blob of ``sections``, where the hash of every chunk is known."""
        views = tuple(memoryview(section).cast("B") for section in sections)
        return cls(Index(header, tuple(len(view) for view in views), tuple(chunk_sha256)), views)

    @property
    def digest(self) -> str:
        """The digest of the index."""
        return self.index.digest

    @cached_property
    def _places(self) -> list[tuple[int, int, int]]:
        return [
            (section, start, length)
            for section, view in enumerate(self.sections)
            for start, length in _cuts(len(view))
        ]

    def chunk(self, number: int) -> memoryview:
        """Chunk ``number``, from 0.

        Raises:
            IndexError: there is no such chunk.
        """
        if number < 0:
            raise IndexError(number)
        section, start, length = self._places[number]
        return self.sections[section][start : start + length]


class Assembly:
    """A blob that arrives chunk by chunk, in any order; every chunk is verified before it is kept."""

    def __init__(self, index: Index, empty: Callable[[int], memoryview] | None = None) -> None:
        """``empty`` gives memory for the bytes of a section; None: new memory."""
        self.index = index
        self._blob = Blob(index, tuple(map(empty or _empty, index.sizes)))
        self.missing = set(range(len(index.chunk_sha256)))

    def put(self, number: int, data: bytes | memoryview) -> None:
        """Store chunk ``number``.

        Raises:
            ValueError: the bytes do not have that chunk's hash.
        """
        if hashlib.sha256(data).digest() != self.index.chunk_sha256[number]:
            raise ValueError(f"chunk {number} does not have the hash that the index names")
        self._blob.chunk(number)[:] = data
        self.missing.discard(number)

    @property
    def bytes_missing(self) -> int:
        """How many bytes have not arrived yet."""
        return sum(self.index.chunk_sizes[number] for number in self.missing)

    def reuse(self, blob: Blob, without: Collection[int] = ()) -> None:
        """Copy every missing chunk that the verified ``blob`` also has, except its chunks ``without``."""
        held = {sha: number for number, sha in enumerate(blob.index.chunk_sha256) if number not in without}
        for number in list(self.missing):
            source = held.get(self.index.chunk_sha256[number])
            place = self._blob.chunk(number)
            if source is not None and len(data := blob.chunk(source)) == len(place):
                place[:] = data
                self.missing.discard(number)

    def reuse_part(self, other: Assembly) -> None:
        """Copy every missing chunk that has already arrived in ``other``."""
        self.reuse(other._blob, other.missing)

    def finish(self) -> Blob:
        """The complete blob."""
        assert not self.missing
        return self._blob


def _empty(size: int) -> memoryview:
    # Not a bytearray: to fill gigabytes with zeros takes a while, and this may be on an event loop.
    return np.empty(size, np.uint8).data


def chunk_hashes(section: bytes | memoryview) -> list[bytes]:
    """The SHA-256 of each chunk of ``section``."""
    view = memoryview(section).cast("B")
    return [hashlib.sha256(view[start : start + length]).digest() for start, length in _cuts(len(view))]


def _cuts(size: int) -> list[tuple[int, int]]:
    return [(start, min(CHUNK_BYTES, size - start)) for start in range(0, size, CHUNK_BYTES)]
