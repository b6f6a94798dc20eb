"""Reads a corpus in spite of files that cannot be read: those are left out, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.documents import (
    Piece,
    Source,
    find_sources,
    in_language,
    read_pieces,
)
from dupt_swarm.learning.reading import InaccessibleError, MissingLibraryError

LOOK_CHARACTERS = 1 << 24  # half a second of a dump, which may take an hour to be looked through


class LeftOut(NamedTuple):
    """A file that is no part of the corpus, though it was found there."""

    path: str
    reason: str  # a sentence that names file and remedy
    lasting: bool = False  # as long as the file does not change


@dataclass(frozen=True)
class TextFiles:
    """Which text to read.

    Attributes:
        path: a file, a folder or a glob; see `find_sources`.
        field: JSON key or Parquet column of the text.
        strict: refuse the text if a file cannot be read; otherwise such files are left out.
        language: of the dumps of Wikipedia there, read only those in this one; None: all.
    """

    path: Path | str
    field: str = "text"
    strict: bool = False
    language: str | None = None

    def find(self) -> list[Source]:
        """The files; see `find_sources` and `in_language`."""
        sources = find_sources(self.path)
        return sources if self.language is None else in_language(sources, self.language, self.path)

    def read(
        self,
        sources: Sequence[Source],
        leave_out: Callable[[LeftOut], object],
        look: Callable[[], object] = lambda: None,
    ) -> Iterator[Piece]:
        """Their text; see `read_pieces`, but bytes are those of all sources together.

        Unless strict, files that cannot be read to their end are left out. So each file is read twice, the
        second time from memory as a rule; tokenising takes far longer.

        Args:
            sources: from `find`.
            leave_out: told of each file that is left out.
            look: called now and then while a file is looked through.

        Raises:
            CorpusError: no file is left, or a library is missing; if strict, one cannot be read.
        """
        starts = dict(zip(sources, accumulate((source.size for source in sources), initial=0), strict=False))
        for source in sources if self.strict else self._readable(sources, leave_out, look):
            for piece in read_pieces(source, self.field):
                yield piece._replace(bytes_read=starts[source] + piece.bytes_read)

    def check(self) -> None:
        """Find out quickly what can be known without a tokenizer; does not read on after the first text.

        Raises:
            CorpusError: there is no text, or no file can be read; if strict, also if a file before the
                first text cannot be read.
        """
        problem = CorpusError(f"{self.path}: there is no text in it; give some")
        for source in self.find():
            try:
                if next(read_pieces(source, self.field, skim=True), None) is not None:
                    return
            except CorpusError as error:
                problem = error
                if self.strict:
                    break
        raise problem

    def check_all(self, leave_out: Callable[[LeftOut], object]) -> list[Source]:
        """Look through all files, and give those that can be read to their end.

        Raises:
            CorpusError: none can be, or there is no text; if strict, also if one cannot be.
        """
        self.check()
        return list(self._readable(self.find(), leave_out))

    def _readable(
        self,
        sources: Sequence[Source],
        leave_out: Callable[[LeftOut], object],
        look: Callable[[], object] = lambda: None,
    ) -> Iterator[Source]:
        """Those that can be read to their end; for arguments and errors see `read`."""
        first, left_out = None, 0
        for source in sources:
            if error := problem_with(source, self.field, look):
                if self.strict or len(sources) == 1:
                    raise error
                first, left_out = first or error, left_out + 1
                leave_out(LeftOut(source.path, str(error), not isinstance(error, InaccessibleError)))
            else:
                yield source
        if first is not None and left_out == len(sources):
            raise CorpusError(
                f"none of the {left_out} files can be read; the first: {first}", setting=first.settings
            )


def problem_with(source: Source, field: str, look: Callable[[], object] = lambda: None) -> CorpusError | None:
    """Why it cannot be read to its end, if so; ``look`` is called now and then.

    Raises:
        MissingLibraryError: it might be read on a machine that has more installed.
    """
    characters = 0
    try:
        for piece in read_pieces(source, field, skim=True):
            characters += len(piece.text)
            if characters >= LOOK_CHARACTERS:
                characters = 0
                look()
    except MissingLibraryError:
        raise
    except CorpusError as error:
        return error
    return None
