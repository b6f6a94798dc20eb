"""A corpus is read in spite of files that cannot be."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from dupt_swarm.errors import CorpusError, install
from dupt_swarm.learning import corpus as corpus_module
from dupt_swarm.learning import left_out as left_out_module
from dupt_swarm.learning.corpus import Corpus
from dupt_swarm.learning.documents import Source, find_sources
from dupt_swarm.learning.left_out import LeftOut, TextFiles
from dupt_swarm.learning.tokenizer import train_tokenizer

BYTES = train_tokenizer([], 257)
TEXT = "one document of many. " * 40


def latin_1(path: Path) -> None:
    path.write_bytes(TEXT.encode() + b"caf\xe9")


def binary(path: Path) -> None:
    path.write_bytes(b"\x7fELF\0\0")


def link_to_nothing(path: Path) -> None:
    path.symlink_to("gone")


BAD = (latin_1, binary, link_to_nothing)


def read(folder: Path) -> tuple[str, list[LeftOut]]:
    left_out: list[LeftOut] = []
    text = "".join(piece.text for piece in TextFiles(folder).read(find_sources(folder), left_out.append))
    return text, left_out


@pytest.mark.parametrize("spoil", BAD)
def test_a_file_that_cannot_be_read_is_left_out_whole(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """Its good beginning too; the others are read, and file and reason are told."""
    (tmp_path / "a.txt").write_text("first ")
    spoil(tmp_path / "b.txt")
    (tmp_path / "c.txt").write_text("last")
    text, left_out = read(tmp_path)
    assert text == "first last"
    assert [one.path for one in left_out] == [str(tmp_path / "b.txt")]
    assert left_out[0].reason.startswith(f"{tmp_path / 'b.txt'}: ")


def test_bytes_read_count_what_was_left_out(tmp_path: Path) -> None:
    """So the progress reaches the end."""
    latin_1(tmp_path / "a.txt")
    (tmp_path / "b.txt").write_text("text")
    sources = find_sources(tmp_path)
    pieces = list(TextFiles(tmp_path).read(sources, lambda _: None))
    assert pieces[-1].bytes_read == sum(source.size for source in sources)


def test_long_files_are_looked_through_with_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first of their text comes."""
    monkeypatch.setattr(left_out_module, "LOOK_CHARACTERS", 1000)
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text((json.dumps({"text": TEXT}) + "\n") * 5)
    looks: list[None] = []
    pieces = TextFiles(tmp_path).read(find_sources(tmp_path), lambda _: None, lambda: looks.append(None))
    next(pieces)
    assert len(looks) == 2
    assert len(list(pieces)) == 9
    assert len(looks) == 4


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    """It names the first file, with its remedy; and a single file is named as ever."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"body": TEXT}))
    with pytest.raises(CorpusError, match=r"^[^:]*a\.jsonl:1: the line has no field `text`") as caught:
        read(tmp_path)
    assert caught.value.settings == ("field",)
    latin_1(tmp_path / "b.txt")
    with pytest.raises(
        CorpusError, match=r"none of the 2 files can be read; the first: .*no field"
    ) as caught:
        read(tmp_path)
    assert caught.value.settings == ("field",)


def test_a_missing_library_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are in order: what to install is said, and none of them is left out."""
    parquet.write_table(arrow.table({"text": ["a"]}), tmp_path / "a.parquet")
    (tmp_path / "b.txt").write_text("text")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CorpusError, match=re.escape(install("parquet"))):
        read(tmp_path)


def test_a_quick_look_finds_text_behind_a_bad_file(tmp_path: Path) -> None:
    """Unless it is strict; nothing but bad files is an error, and so is no text at all."""
    binary(tmp_path / "a.txt")
    with pytest.raises(CorpusError, match="NUL"):
        TextFiles(tmp_path).check()
    (tmp_path / "b.txt").write_text("text")
    TextFiles(tmp_path).check()
    with pytest.raises(CorpusError, match="NUL"):
        TextFiles(tmp_path, strict=True).check()
    (tmp_path / "c.txt").write_text("")
    with pytest.raises(CorpusError, match="there is no text in it"):
        TextFiles(tmp_path / "c.txt").check()


def prepare(folder: Path, *, strict: bool = False) -> Corpus:
    cache = folder.with_name("cache")
    return Corpus.prepare(TextFiles(folder, strict=strict), BYTES, cache, context_length=16, seed=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One good file, and one of each bad kind."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "good.txt").write_text(TEXT)
    for number, spoil in enumerate(BAD):
        spoil(folder / f"bad{number}.txt")
    return folder


def test_a_corpus_says_what_was_left_out(folder: Path) -> None:
    """When it is tokenised, and when it comes from the cache."""
    for _ in range(2):
        corpus = prepare(folder)
        assert len(corpus.train) + len(corpus.held_out) == len(TEXT) + 1
        assert [Path(one.path).name for one in corpus.left_out] == ["bad0.txt", "bad1.txt", "bad2.txt"]


def test_a_strict_corpus_is_refused(folder: Path) -> None:
    """Also one whose tokens are there already; without bad files strictness changes nothing."""
    for _ in range(2):
        with pytest.raises(CorpusError, match="bad0"):
            prepare(folder, strict=True)
        assert prepare(folder).left_out
    for path in folder.glob("bad*"):
        path.unlink()
    assert not prepare(folder, strict=True).left_out


def test_a_file_that_can_be_read_again_is_taken_in(folder: Path) -> None:
    """Though neither its size nor its time of change tell, as with permissions."""
    bad = folder / "bad2.txt"
    assert len(prepare(folder).left_out) == 3
    bad.unlink()
    bad.write_text(TEXT)
    corpus = prepare(folder)
    assert (len(corpus.train) + len(corpus.held_out), len(corpus.left_out)) == (2 * len(TEXT) + 2, 2)


def test_what_is_damaged_is_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it does not change: only access may come back without a trace in the file."""
    prepare(folder)
    asked: list[str] = []

    def problem_with(source: Source, field: str) -> CorpusError | None:
        asked.append(Path(source.path).name)
        return left_out_module.problem_with(source, field)

    monkeypatch.setattr(corpus_module, "problem_with", problem_with)
    assert len(prepare(folder).left_out) == 3
    assert asked == ["bad2.txt"]  # the link to nothing
