"""Token ids on disk: raw little-endian numbers in files of equal size, memory-mapped for reading."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

TokenIds = np.ndarray[Any, np.dtype[np.unsignedinteger[Any]]]

# Each mapped file holds a descriptor: at 0.5 or 1 GiB a file, 100 billion tokens stay under the usual
# limit of 1,024 descriptors, and every file under the 4 GiB that some file systems allow.
FILE_TOKENS = 1 << 28


def token_type(vocabulary_size: int) -> str:
    """How numpy calls the smallest of such numbers that holds all ids of a vocabulary."""
    return "<u2" if vocabulary_size <= 1 << 16 else "<u4"


def id_bytes(vocabulary_size: int) -> int:
    """How many bytes one of them takes."""
    return np.dtype(token_type(vocabulary_size)).itemsize


def blocks_in(tokens: int, context_length: int) -> int:
    """How many whole blocks so many tokens make; each begins with the last token of the one before."""
    return max(0, tokens - 1) // context_length


class Split:
    """The tokens of one split of a corpus, read as if its parts were one array."""

    def __init__(self, parts: Sequence[TokenIds]) -> None:
        """All ``parts`` but the last have the same length, and none is empty."""
        self._parts = parts
        self._file_tokens = len(parts[0]) if parts else 1
        self._tokens = sum(len(part) for part in parts)

    @classmethod
    def open(cls, folder: Path, name: str, tokens: int, file_tokens: int, dtype: str) -> Split:
        """Map the first ``tokens`` tokens of the split ``name``; anything after them in the files is ignored.

        Raises:
            OSError, ValueError: a part is missing or shorter than it should be.
        """
        starts = range(0, tokens, file_tokens)
        return cls(
            [
                np.memmap(_file(folder, name, number), dtype, "r", shape=(min(file_tokens, tokens - start),))
                for number, start in enumerate(starts)
            ]
        )

    def __len__(self) -> int:
        """How many tokens there are."""
        return self._tokens

    def read(self, start: int, stop: int) -> TokenIds:
        """Tokens ``start`` to ``stop``, shape [stop − start]: a view, or a copy across two parts."""
        assert 0 <= start < stop <= self._tokens
        parts = []
        while start < stop:
            number, offset = divmod(start, self._file_tokens)
            parts.append(self._parts[number][offset : offset + stop - start])
            start += len(parts[-1])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class SplitWriter:
    """Appends the tokens of one split to its parts; a context manager that closes the last one."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self.tokens = 0
        self._folder, self._name, self._dtype = folder, name, np.dtype(dtype)
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def append(self, ids: Sequence[int] | TokenIds) -> None:
        """Append ``ids``.

        Raises:
            OSError: the disk is full or fails.
        """
        tokens = np.asarray(ids, dtype=self._dtype)
        while len(tokens):
            number, offset = divmod(self.tokens, FILE_TOKENS)
            if offset == 0:
                self._close()
                self._file = _file(self._folder, self._name, number).open("wb")
            assert self._file
            part = tokens[: FILE_TOKENS - offset]
            self._file.write(part.data)
            self.tokens += len(part)
            tokens = tokens[len(part) :]

    def flush(self) -> Split:
        """Flush everything appended, and return it for reading."""
        if self._file:
            self._file.flush()
        return Split.open(self._folder, self._name, self.tokens, FILE_TOKENS, self._dtype.str)

    def _close(self) -> None:
        # fsync: after a power cut no cache may look complete that is not.
        if self._file:
            with self._file as file:
                file.flush()
                os.fsync(file.fileno())
            self._file = None


def _file(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}-{number:05}.bin"
