"""Labelled tables are read by column, and what is wrong with one is named with its remedy."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.labelled.files import LabelledFiles, is_table

ROWS = [("one, two", "a"), ('say "x"\nand y', "b"), ("", "a")]
AS_CSV = 'label,text,more\na,"one, two",5\nb,"say ""x""\nand y",6\n\na,,7\n'
AS_LINES = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read(path: Path, **columns: str) -> list[dict[str, object]]:
    return [row.cells for row in LabelledFiles(path, columns).rows(["text", "label"])]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl", "A.JSONL.GZ", "a.parquet"])
def test_all_kinds_give_the_same_rows(tmp_path: Path, name: str) -> None:
    """CSV, JSON lines (each also compressed) and Parquet give the cells that were written."""
    path = tmp_path / name
    if name.endswith("parquet"):
        texts, labels = zip(*ROWS, strict=True)
        parquet.write_table(arrow.table({"more": [1, 2, 3], "text": texts, "label": labels}), path)
    else:
        data = (AS_CSV if "csv" in name else "\n" + AS_LINES).encode()
        path.write_bytes(gzip.compress(data) if name.lower().endswith(".gz") else data)
    assert read(path) == [{"text": text, "label": label} for text, label in ROWS]


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    """A column is read under the name that it has in the file, and called by ours."""
    path = write(tmp_path / "a.csv", "review,stars\nfine,5\n".encode("utf-8-sig"))
    assert read(path, text="review", label="stars") == [{"text": "fine", "label": "5"}]


def test_a_folder_is_all_its_tables(tmp_path: Path) -> None:
    """The tables of a folder are read in order of their names; other files are none."""
    for name in ("b.csv", "a.csv", "notes.txt"):
        write(tmp_path / name, f"text,label\n{name},x\n".encode())
    assert [row["text"] for row in read(tmp_path)] == ["a.csv", "b.csv"]
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match="no table in it; give one of"):
        read(empty)


def test_long_cells(tmp_path: Path) -> None:
    """A text may be longer than the 128 kB that Python's csv allows by default."""
    path = write(tmp_path / "a.csv", b"text,label\n" + 200_000 * b"x" + b",a\n")
    assert len(str(read(path)[0]["text"])) == 200_000


@pytest.mark.parametrize("blank", ["\ufeff", "\u00a0", "\u3000", "\x1f"])
def test_a_line_that_is_blank_to_the_eye_is_passed_over(blank: str, tmp_path: Path) -> None:
    """Also at the beginning, with a byte order mark; what has no other line has no rows."""
    lines = f"{blank}\n{AS_LINES}{blank}".encode()
    assert len(read(write(tmp_path / "a.jsonl", lines))) == len(ROWS)
    assert not read(write(tmp_path / "b.jsonl", blank.encode()))


def test_a_line_is_not_read_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of JSON beyond the bound may be a whole array, and is named."""
    monkeypatch.setattr("dupt_swarm.learning.reading.LINE_MAX", 1 << 20)
    start, end = b'{"label": "a", "text": "', b'"}\n'
    longest = start + ((1 << 20) - len(start + end)) * b"x" + end
    assert len(read(write(tmp_path / "a.jsonl", 2 * longest))) == 2
    with pytest.raises(
        CorpusError, match=r"b\.jsonl:2: the line is longer than 1 MiB; if the file is one JSON"
    ):
        read(write(tmp_path / "b.jsonl", longest + b"[" + longest))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "a.csv: the file is empty"),
        ("a.csv", b"review,label\nx,a\n", r"no column `text`: it has `review`, `label`; say which column"),
        ("a.csv", b"text,label\na,b\nx\n", r"a.csv:3: the row has 1 cells and the header 2"),
        ("a.csv", b'text,label\n"a"b,c\n', "a.csv:2: not valid CSV"),
        ("a.csv", b"text,label\n\xff,b\n", "a.csv: not UTF-8 text"),
        ("a.csv.gz", b"text", "damaged gzip file"),
        (
            "a.jsonl",
            b'{"text": "x", "label": 1}\n{"text": "x"}\n',
            "a.jsonl:2: there is no column `label`: it",
        ),
        ("a.jsonl", b"{}\n", r"no column `text`, `label`: it has none"),
        ("a.jsonl", b"[1]\n", "a.jsonl:1: not a JSON object but list"),
        ("a.jsonl", b"{\n", "a.jsonl:1: not valid JSON"),
        ("a.parquet", b"PAR1", "a.parquet: not valid Parquet"),
        ("a.tsv", b"", "unsupported file type; use .csv, .csv.gz"),
    ],
)
def test_bad_tables(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    """Each problem is named with file, row and remedy."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        read(tmp_path / name)


def test_missing_column_of_parquet(tmp_path: Path) -> None:
    """Parquet's columns are named too."""
    parquet.write_table(arrow.table({"review": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="no column `text`, `label`: it has `review`") as caught:
        read(tmp_path / "a.parquet")
    assert caught.value.settings == ("columns",)


def test_no_file(tmp_path: Path) -> None:
    """A file that is not there is named."""
    with pytest.raises(CorpusError, match="no such file"):
        read(tmp_path / "a.csv")


def test_what_cannot_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is too long, and a folder that may not be listed (refused by a stand-in), are named."""
    too_long = tmp_path / (300 * "x")
    assert not is_table(too_long)
    with pytest.raises(CorpusError, match="x: cannot be read: File name too long; check its permissions"):
        read(too_long)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(CorpusError, match=f"{tmp_path}: cannot be read: Permission denied"):
        read(tmp_path)


def test_no_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow it is said what to install."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(CorpusError, match="needs pyarrow; `pip install"):
        read(tmp_path / "a.parquet")


def test_only_the_tasks_columns_are_renamed() -> None:
    """A name that the task does not know is refused, with those that it does."""
    files = LabelledFiles(Path("a.csv"), {"txt": "review"})
    with pytest.raises(UsageError, match="no column `txt`: there are `text`, `label`; rename"):
        files.check_names(["text", "label"])
    LabelledFiles(Path("a.csv"), {"text": "review", "label": "stars"}).check_names(["text", "label"])


def test_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system refuses to open is said with the system's reason."""
    path = write(tmp_path / "a.csv", AS_CSV.encode())

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # the tests may run as root, who may open anything
    with pytest.raises(CorpusError, match="cannot be read: Permission denied"):
        read(path)
