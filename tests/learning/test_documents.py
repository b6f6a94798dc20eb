"""Documents are read from every supported kind of file, and every bad file is named."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupt_swarm.errors import CorpusError, install
from dupt_swarm.learning import documents as documents_module
from dupt_swarm.learning.documents import find_sources, read_pieces
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.learning.tokenizer import train_tokenizer

LINES = [{"text": "one"}, {"text": "two\nlines"}, {"text": ""}, {"text": None}, {"text": "😀", "id": 5}]


def read_documents(path: Path | str, field: str = "text") -> list[str]:
    documents: list[str] = []
    parts: list[str] = []
    for piece in (piece for source in find_sources(path) for piece in read_pieces(source, field)):
        assert piece.first == (not parts)
        parts.append(piece.text)
        if piece.last:
            documents.append("".join(parts))
            parts = []
    assert not parts
    return documents


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def write_parquet(path: Path, columns: dict[str, list[Any]]) -> Path:
    parquet.write_table(arrow.table(columns), path)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.rst", "a.py", "A.TXT", "a.txt.gz", "a.py.gz"])
def test_text_file_is_one_document(tmp_path: Path, name: str) -> None:
    """A text file, compressed or not, is one document, its line endings kept."""
    text = "\ta\r\nb\rc\n\nnaïve 🦊\x0c\u2028end"
    assert [text] == read_documents(write(tmp_path / name, text.encode()))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_jsonl_line_is_one_document(tmp_path: Path, name: str) -> None:
    """A line of JSON is one document; blank lines and empty texts are none."""
    path = write(tmp_path / name, b"\n".join(json.dumps(row).encode() for row in LINES) + b"\n\n")
    assert read_documents(path) == ["one", "two\nlines", "😀"]


def test_parquet_row_is_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of Parquet is one document, read a batch of rows at a time."""
    monkeypatch.setattr("dupt_swarm.learning.reading.PARQUET_ROWS", 2)
    path = write_parquet(
        tmp_path / "a.parquet", {"body": [None, "one", "", "two", "three"], "id": [1, 2, 3, 4, 5]}
    )
    assert read_documents(path, "body") == ["one", "two", "three"]


def test_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    """A byte order mark at the beginning is no text."""
    assert read_documents(write(tmp_path / "a.txt", b"\xef\xbb\xbfa")) == ["a"]
    assert read_documents(write(tmp_path / "b.jsonl", b'\xef\xbb\xbf{"text": "b"}')) == ["b"]


def test_half_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    """JSON can spell half a surrogate pair; it is read as U+FFFD."""
    path = write(tmp_path / "a.jsonl", rb'{"text": "a\ud83eb \ud83e\udd8a\ud83e"}')
    assert read_documents(path) == ["a\ufffdb 🦊\ufffd"]


def test_folder_is_read_in_order(tmp_path: Path) -> None:
    """A folder is read recursively and sorted; hidden, cached and unknown files are passed over."""
    for name in (
        "b.txt",
        "a/z.md",
        "a/y.txt.gz",
        ".hidden.txt",
        ".git/x.txt",
        "__pycache__/x.py",
        "x.png",
        "x.tar.gz",
    ):
        write(tmp_path / name, name.encode())
    assert read_documents(tmp_path) == ["a/y.txt.gz", "a/z.md", "b.txt"]
    assert read_documents(f"{tmp_path}/**/*.[mt]*[dt]") == ["a/z.md", "b.txt"]


def test_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources are absolute, so that a cache does not depend on the current folder."""
    path = write(tmp_path / "a.txt", b"a")
    monkeypatch.chdir(tmp_path)
    assert [str(path)] == [source.path for source in find_sources("a.txt")]


def test_bytes_read(tmp_path: Path) -> None:
    """The bytes read grow up to the size of all files together."""
    write_jsonl(tmp_path / "a.jsonl", LINES)
    write(tmp_path / "b.txt.gz", b"some text")
    write_parquet(tmp_path / "c.parquet", {"text": ["x", "y"]})
    sources = find_sources(tmp_path)
    read = [piece.bytes_read for piece in TextFiles(tmp_path, strict=True).read(sources, print)]
    assert sorted(read) == read
    assert sum(source.size for source in sources) == read[-1]
    grown = sources[0]._replace(size=3)
    assert [piece.bytes_read for piece in read_pieces(grown)][-1] == 3, "as large as it was when found"


@given(st.lists(st.text(alphabet="ab \n\té", max_size=40), max_size=5), st.integers(1, 12))
def test_pieces_join_to_the_document(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int
) -> None:
    """However small the pieces, joined they give each document exactly, and none is longer."""
    path = write_jsonl(tmp_path_factory.getbasetemp() / "pieces.jsonl", [{"text": text} for text in texts])
    text_path = write(path.with_suffix(".txt"), "".join(texts).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents_module, "PIECE_CHARACTERS", size)
        assert [text for text in texts if text] == read_documents(path)
        assert [text for text in ["".join(texts)] if text] == read_documents(text_path)
        assert all(0 < len(piece.text) <= size for piece in read_pieces(find_sources(path)[0]))


def test_cuts_do_not_change_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordinary text cut into pieces has the same tokens as uncut."""
    text = "It's the swarm's text:\n\n    indented, 12 words\r\nand  double  spaces. " * 20
    tokenizer = train_tokenizer([text], 300)
    monkeypatch.setattr(documents_module, "PIECE_CHARACTERS", 50)
    pieces = list(read_pieces(find_sources(write(tmp_path / "a.txt", text.encode()))[0]))
    assert len(pieces) > 20
    assert tokenizer.encode(text) == [token for piece in pieces for token in tokenizer.encode(piece.text)]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.png", b"x", r"a\.png: unsupported file type.*\.jsonl.*\.parquet"),
        ("a.parquet.gz", b"x", "unsupported file type"),
        ("a.txt", b"a\0b", r"a\.txt: not text: .*NUL.*remove"),
        ("a.txt", b"caf\xe9", r"a\.txt: not UTF-8.*convert"),
        ("a.txt", b"caf\xc3", r"a\.txt: not UTF-8.*convert"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xe9"}', r"a\.jsonl:2: not UTF-8"),
        ("a.jsonl", b'{"text": "a"}\n{"text"', r"a\.jsonl:2: not valid JSON.*remove that line"),
        ("a.jsonl", b"[" * 100000, r"a\.jsonl:1: not valid JSON"),
        (
            "a.jsonl",
            b'{"text": "a"}\n\n{"body": 1, "id": 2}',
            r"a\.jsonl:3: .*no field `text`: it has body, id",
        ),
        ("a.jsonl", b'["text"]', r"a\.jsonl:1: not a JSON object but list.*remove that line"),
        ("a.jsonl", b'{"text": 5}', r"a\.jsonl:1: `text` is int, not text"),
        ("a.parquet", b"no parquet at all", r"a\.parquet: not valid Parquet"),
    ],
)
def test_bad_file(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    """A file that is not what it should be is named, with line and remedy."""
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(CorpusError, match=message):
        read_documents(path)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_line_is_not_read_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A long line is one of a document; one beyond the bound may be a whole array, and is named."""
    monkeypatch.setattr("dupt_swarm.learning.reading.LINE_MAX", 1 << 20)
    longest = json.dumps({"text": ((1 << 20) - len('{"text": ""}\n')) * "x"}).encode() + b"\n"
    path = write(tmp_path / name, 2 * longest)
    assert len(read_documents(path)) == 2
    write(path, longest + b"\n[" + longest)
    with pytest.raises(
        CorpusError, match=f"{name}:3: the line is longer than 1 MiB; if the file is one JSON"
    ):
        read_documents(path)


@pytest.mark.parametrize(
    "cut", [lambda _: b"plain", lambda data: data[:-9], lambda data: data[:10] + b"\xff" * 9]
)
@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz"])
def test_damaged_gzip(tmp_path: Path, name: str, cut: Callable[[bytes], bytes]) -> None:
    """A gzip file that is none, cut short or damaged is named."""
    (tmp_path / name).write_bytes(cut(gzip.compress(b'{"text": "some text"}\n' * 9)))
    with pytest.raises(CorpusError, match=r"gz: damaged gzip file"):
        read_documents(tmp_path)


def test_damaged_parquet(tmp_path: Path) -> None:
    """A page whose bytes were changed is no matter of permissions."""
    path = write_parquet(tmp_path / "a.parquet", {"text": [f"some text {number}" for number in range(999)]})
    data = path.read_bytes()
    for damaged in (data[:20] + bytes(300) + data[320:], data[: len(data) // 2] + data[-400:]):
        path.write_bytes(damaged)
        with pytest.raises(
            CorpusError, match=r"a\.parquet: not valid Parquet: .*; fetch it again or remove it"
        ):
            read_documents(path)


def test_parquet_without_the_column(tmp_path: Path) -> None:
    """A Parquet file without the column, or with numbers in it, is named with its columns."""
    path = write_parquet(tmp_path / "a.parquet", {"body": ["a"], "id": [1]})
    with pytest.raises(CorpusError, match=r"a\.parquet: there is no column `text`: it has body, id"):
        read_documents(path)
    with pytest.raises(CorpusError, match=r"a\.parquet: row 1: `id` is int"):
        read_documents(path, "id")


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow the message names what to install."""
    path = write_parquet(tmp_path / "a.parquet", {"text": ["a"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CorpusError, match=re.escape(install("parquet"))):
        read_documents(path)


def test_nothing_there(tmp_path: Path) -> None:
    """A missing path, an empty folder and a glob without match are told apart from one another."""
    with pytest.raises(CorpusError, match="no such file or folder"):
        find_sources(tmp_path / "missing")
    with pytest.raises(CorpusError, match="no files to train on"):
        find_sources(tmp_path)
    with pytest.raises(CorpusError, match=r"no files to train on.*\.jsonl"):
        find_sources(tmp_path / "*.txt")


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that may not be read is named (refused by a stand-in: root may read everything)."""
    sources = find_sources(write(tmp_path / "a.txt", b"a"))

    def refuse(path: Path, *_: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(
        CorpusError, match=r"a\.txt: cannot be read: Permission denied; check its permissions"
    ):
        list(read_pieces(sources[0]))


def test_unreadable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that may not be listed is named like a file that may not (refused by a stand-in)."""
    write(tmp_path / "a/a.txt", b"a")
    real = os.scandir

    def refuse(path: Any) -> Any:
        if Path(path).name == "a":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    write(tmp_path / "b.txt", b"b")
    sources = find_sources(tmp_path)
    assert [Path(source.path).name for source in sources] == ["a", "b.txt"]
    with pytest.raises(CorpusError, match=r"a: cannot be read: Permission denied"):
        list(read_pieces(sources[0]))


def test_a_path_that_cannot_be_looked_at(tmp_path: Path) -> None:
    """It is named with the system's reason."""
    for name in (300 * "x", f"{300 * 'x'}/*.txt"):
        with pytest.raises(CorpusError, match=f"{300 * 'x'}.*: cannot be read: File name too long; check"):
            find_sources(tmp_path / name)


def test_link_to_nothing(tmp_path: Path) -> None:
    """It is named; a folder with the name of a text and a pipe are passed over."""
    (tmp_path / "a.txt").symlink_to("gone.txt")
    (tmp_path / "b.txt").mkdir()
    os.mkfifo(tmp_path / "c.txt")
    for corpus in (tmp_path, f"{tmp_path}/*.txt"):
        with pytest.raises(CorpusError, match=r"a\.txt: cannot be read: No such file"):
            read_documents(corpus)


def test_a_file_that_links_lead_to_counts_once(tmp_path: Path) -> None:
    """By its shortest path: links to files are followed, those to folders in globs, in a circle too."""
    write(tmp_path / "corpus/sub/z.txt", b"z")
    write(tmp_path / "elsewhere/b.txt", b"b")
    (tmp_path / "corpus/sub/self").symlink_to(".")
    (tmp_path / "corpus/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "corpus/z.txt").symlink_to("sub/z.txt")
    (tmp_path / "corpus/sub/again.txt").hardlink_to(tmp_path / "elsewhere/b.txt")
    assert read_documents(f"{tmp_path}/corpus/sub/**/*.txt") == ["b", "z"]
    assert read_documents(f"{tmp_path}/corpus/**/*.txt") == ["b", "z"]
    sources = find_sources(tmp_path / "corpus")
    assert [source.path for source in sources] == [
        str(tmp_path / "corpus" / name) for name in ("sub/again.txt", "z.txt")
    ]


def test_file_that_vanishes(tmp_path: Path) -> None:
    """A file removed after it was found is named."""
    sources = find_sources(write(tmp_path / "a.txt", b"a"))
    (tmp_path / "a.txt").unlink()
    with pytest.raises(CorpusError, match=r"a\.txt: cannot be read: No such file"):
        list(read_pieces(sources[0]))
