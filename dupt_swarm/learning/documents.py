"""Reads the documents of a corpus: text files, JSON lines, Parquet and dumps of Wikipedia, in pieces.

A text file is one document, and so is each line of a .jsonl, each row of a .parquet and each article of a
dump. However long a document is, it arrives in pieces of at most `PIECE_CHARACTERS`, which fit in memory and
joined give its exact text.
"""

from __future__ import annotations

import glob
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dupt_swarm.disk.home import expanded
from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.reading import (
    decompressed,
    read_json_rows,
    read_parquet_rows,
    reported,
    well_formed,
)
from dupt_swarm.learning.wikipedia.articles import (
    Article,
    is_dump,
    language_of,
    normalised,
    read_articles,
    skim_articles,
)

TEXT_SUFFIXES = (".txt", ".md", ".rst", ".py")
COMPRESSIBLE_SUFFIXES = (*TEXT_SUFFIXES, ".jsonl")
DUMP = ".xml"
SUPPORTED = (
    f"{', '.join(COMPRESSIBLE_SUFFIXES)} (each also with .gz), .parquet and *-pages-articles*.xml (also .bz2)"
)
PIECE_CHARACTERS = 1 << 18

Item = TypeVar("Item")


class Source(NamedTuple):
    """A file of the corpus as it was when it was found; a new size or time means that it changed."""

    path: str
    size: int  # bytes
    mtime_ns: int


class Piece(NamedTuple):
    """A document, or a part of a long one."""

    text: str
    first: bool  # begins its document
    last: bool  # ends it
    bytes_read: int  # of its source, up to here


def together(items: Iterable[Item], size_of: Callable[[Item], int], enough: int) -> Iterator[list[Item]]:
    """As many in a list as are ``enough`` by their sizes; the last ones may be fewer, or none."""
    some: list[Item] = []
    size = 0
    for item in items:
        some.append(item)
        size += size_of(item)
        if size >= enough:
            yield some
            some, size = [], 0
    yield some


def find_sources(path: Path | str) -> list[Source]:
    """The files of a corpus: ``path`` itself, those in that folder and below it, or those matching a glob.

    Sorted by path. Hidden files, `__pycache__` and files of other kinds are passed over; but a single file of
    another kind is an error. Only a glob follows links to folders. Each file counts once, whatever links lead
    to it. What cannot be looked at, as a folder that may not be listed or a link to nothing, is among the
    sources: reading it says why.

    Raises:
        CorpusError: nothing there, or of no kind that is supported, or it cannot be looked at.
    """
    path = expanded(path).absolute()
    with reported(path):
        found = _find(path)
    once: dict[object, Source] = {}
    for file in sorted(found, key=lambda file: (len(file.parts), file)):
        key, source = _stat(file)
        if source is not None:
            once.setdefault(key, source)
    sources = sorted(once.values(), key=lambda source: Path(source.path))
    if not sources:
        raise CorpusError(f"{path}: no files to train on; give a folder or pattern with {SUPPORTED}")
    return sources


def in_language(sources: Sequence[Source], language: str, path: Path | str) -> list[Source]:
    """``sources`` of the corpus ``path`` without the dumps of other languages; text of no dump stays.

    Raises:
        CorpusError: there is no dump in this language.
    """
    spoken = {source: language_of(Path(source.path).name) for source in sources}
    dumps = {source for source in sources if is_dump(Path(source.path).name)}
    wanted = normalised(language)
    if wanted not in spoken.values():
        found = sorted({language for language in spoken.values() if language})
        remedy = f"choose one of {', '.join(found)}" if found else "leave the language out"
        raise CorpusError(
            f"{path}: there is no dump of Wikipedia in the language `{language}`; {remedy}",
            setting="language",
        )
    return [source for source in sources if source not in dumps or spoken[source] == wanted]


def _find(path: Path) -> list[Path]:
    if path.is_dir():
        return list(_walk(path))
    if path.is_file():
        if not _kind(path):
            raise CorpusError(f"{path}: unsupported file type; use {SUPPORTED}")
        return [path]
    if not glob.has_magic(str(path)):
        raise CorpusError(f"{path}: no such file or folder; check the path of the corpus")
    found = glob.glob(str(path), recursive=True)  # noqa: PTH207 (Path.glob would match hidden files)
    return [Path(file) for file in found if _kind(Path(file))]


def read_pieces(source: Source, field: str = "text", *, skim: bool = False) -> Iterator[Piece]:
    """All documents of ``source`` in order, without the empty ones.

    Args:
        source: a file of a corpus.
        field: the JSON key or the Parquet column that holds the text.
        skim: the articles of a dump keep their markup, which takes very long to remove.

    Raises:
        CorpusError: it cannot be read or is not what its name says, a line lacks the field, or a library is
            missing; file, line and remedy are named.
    """
    path = Path(source.path)
    read = (_SKIMMERS if skim else _READERS).get(_kind(path), _read_folder)
    with reported(path):
        for piece in _pieces(read(path, field)):
            # A file that grows meanwhile must not count for more than its size at the start.
            yield piece._replace(bytes_read=min(piece.bytes_read, source.size))


class _Chunk(NamedTuple):
    """At most PIECE_CHARACTERS of a document, cut anywhere."""

    text: str
    last: bool
    position: int  # bytes of its file read so far


def _pieces(chunks: Iterable[_Chunk]) -> Iterator[Piece]:
    """Move each cut to before white space, if there is any, so that it does not change the tokens."""
    rest, first = "", True
    for chunk in chunks:
        rest += chunk.text
        while len(rest) > PIECE_CHARACTERS:
            words = rest[:PIECE_CHARACTERS].rsplit(maxsplit=1)
            cut = len(words[0]) if len(words) == 2 else PIECE_CHARACTERS
            yield Piece(rest[:cut], first, False, chunk.position)
            rest, first = rest[cut:], False
        if chunk.last:
            if rest:
                yield Piece(rest, first, True, chunk.position)
            rest, first = "", True


def _read_text(path: Path, _field: str) -> Iterator[_Chunk]:
    with (
        path.open("rb") as raw,
        # newline="\n" leaves every line ending as it is; a byte order mark at the beginning is dropped.
        io.TextIOWrapper(decompressed(path, raw), encoding="utf-8-sig", newline="\n") as stream,
    ):
        while text := stream.read(PIECE_CHARACTERS):
            if "\0" in text:
                raise CorpusError(f"{path}: not text: it holds NUL bytes; remove or convert it")
            yield _Chunk(text, False, raw.tell())
        yield _Chunk("", True, raw.tell())


def _read_folder(path: Path, _field: str) -> Iterator[_Chunk]:
    """A folder is a source only if it could not be listed."""
    with os.scandir(path):
        raise CorpusError(f"{path}: could not be listed a moment ago; start again")
    yield


def _read_jsonl(path: Path, field: str) -> Iterator[_Chunk]:
    for where, row, position in read_json_rows(path):
        if field not in row:
            raise CorpusError(
                f"{where}: the line has no field `{field}`: it has {', '.join(row) or 'none'}; "
                "name the field of the text",
                setting="field",
            )
        yield from _chunks(_text_of(row[field], field, where), position)


def _read_parquet(path: Path, field: str) -> Iterator[_Chunk]:
    def check(columns: Sequence[str]) -> None:
        if field not in columns:
            raise CorpusError(
                f"{path}: there is no column `{field}`: it has {', '.join(columns)}; "
                "name the column of the text",
                setting="field",
            )

    size = path.stat().st_size
    for number, total, cells in read_parquet_rows(path, [field], check):
        text = _text_of(cells[field], field, f"{path}: row {number}")
        yield from _chunks(text, size * number // total)


def _articles(articles: Iterable[Article]) -> Iterator[_Chunk]:
    for article in articles:
        yield from _chunks(article.text, article.position)


_Reader = Callable[[Path, str], Iterator[_Chunk]]
_READERS: dict[str, _Reader] = {
    **dict.fromkeys(TEXT_SUFFIXES, _read_text),
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
    DUMP: lambda path, _field: _articles(read_articles(path)),
}
_SKIMMERS = _READERS | {DUMP: lambda path, _field: _articles(skim_articles(path))}


def _chunks(text: str, position: int) -> Iterator[_Chunk]:
    for start in range(0, len(text), PIECE_CHARACTERS):
        yield _Chunk(text[start : start + PIECE_CHARACTERS], False, position)
    yield _Chunk("", True, position)


def _text_of(value: Any, field: str, where: str) -> str:
    """The text of a row; null counts as empty, half a surrogate pair (JSON can spell it) as U+FFFD."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise CorpusError(
            f"{where}: `{field}` is {type(value).__name__}, not text; name the field of the text",
            setting="field",
        )
    return well_formed(value)


def _kind(path: Path) -> str:
    """The suffix that says how to read ``path``, without .gz; empty if it is not supported."""
    if is_dump(path.name):
        return DUMP
    suffix = path.suffix.lower()
    if suffix == ".gz":
        suffix = Path(path.stem).suffix.lower()
        return suffix if suffix in COMPRESSIBLE_SUFFIXES else ""
    return suffix if suffix in _READERS and suffix != DUMP else ""


def _walk(folder: Path) -> Iterator[Path]:
    """The files of a corpus in ``folder`` and below, and the folders that may not be listed."""
    closed: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=lambda error: closed.append(Path(error.filename))):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        found = (Path(parent, name) for name in files if not name.startswith("."))
        yield from (file for file in found if _kind(file))
    yield from closed


def _stat(path: Path) -> tuple[object, Source | None]:
    """What is the same for all names of a file; None: neither a file nor one that could not be looked at."""
    try:
        status = path.stat()
    except OSError:
        return path, Source(str(path), 0, 0)
    key = status.st_dev, status.st_ino
    if stat.S_ISDIR(status.st_mode):
        return key, None if _kind(path) else Source(str(path), 0, 0)
    source = Source(str(path), status.st_size, status.st_mtime_ns)
    return key, source if stat.S_ISREG(status.st_mode) else None
