"""Reads a corpus in spite of files that cannot be read: those are left out, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.documents import Piece, Source, find_sources, read_pieces
from dupt_swarm.learning.reading import MissingLibraryError


class LeftOut(NamedTuple):
    """A file that is no part of the corpus, though it was found there."""

    path: str
    reason: str  # a sentence that names file and remedy


@dataclass(frozen=True)
class TextFiles:
    """Which text to read.

    Attributes:
        path: a file, a folder or a glob; see `find_sources`.
        field: JSON key or Parquet column of the text.
        strict: refuse the text if a file cannot be read; otherwise such files are left out.
    """

    path: Path | str
    field: str = "text"
    strict: bool = False

    def find(self) -> list[Source]:
        """The files; see `find_sources`."""
        return find_sources(self.path)

    def read(self, sources: Sequence[Source], leave_out: Callable[[LeftOut], None]) -> Iterator[Piece]:
        """Their text; see `read_pieces` and `read_readable`."""
        if self.strict:
            return read_pieces(sources, self.field)
        return read_readable(sources, self.field, leave_out)

    def check(self) -> None:
        """Find out quickly what can be known without a tokenizer; does not read on after the first text.

        Raises:
            CorpusError: there is no text, or no file can be read; if strict, also if a file before the
                first text cannot be read.
        """
        problem = CorpusError(f"{self.path}: there is no text in it; give some")
        for source in self.find():
            try:
                if next(read_pieces([source], self.field), None) is not None:
                    return
            except CorpusError as error:
                problem = error
                if self.strict:
                    break
        raise problem


def read_readable(
    sources: Sequence[Source], field: str, leave_out: Callable[[LeftOut], None]
) -> Iterator[Piece]:
    """As `read_pieces`, but files that cannot be read to their end are left out as a whole.

    So each file is read twice, the second time from memory as a rule; tokenising takes far longer.

    Args:
        sources: from `find_sources`.
        field: the JSON key or the Parquet column that holds the text.
        leave_out: told of each file that is left out.

    Raises:
        CorpusError: no file is left, or a library is missing.
    """
    before, first, left_out = 0, None, 0
    for source in sources:
        if error := problem_with(source, field):
            if len(sources) == 1:
                raise error
            first, left_out = first or error, left_out + 1
            leave_out(LeftOut(source.path, str(error)))
        else:
            for piece in read_pieces([source], field):
                yield piece._replace(bytes_read=before + piece.bytes_read)
        before += source.size
    if first is not None and left_out == len(sources):
        raise CorpusError(
            f"none of the {left_out} files can be read; the first: {first}", setting=first.settings
        )


def problem_with(source: Source, field: str) -> CorpusError | None:
    """Why it cannot be read to its end, if so.

    Raises:
        MissingLibraryError: it might be read on a machine that has more installed.
    """
    try:
        for _ in read_pieces([source], field):
            pass
    except MissingLibraryError:
        raise
    except CorpusError as error:
        return error
    return None
