"""Dumps of Wikipedia as a corpus: an article is a document, in the language that was asked for."""

import bz2
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dupt_swarm.errors import CorpusError, install
from dupt_swarm.learning.corpus import Corpus
from dupt_swarm.learning.left_out import LeftOut, TextFiles
from dupt_swarm.learning.tokenizer import train_tokenizer
from dupt_swarm.learning.wikipedia import markup
from dupt_swarm.learning.wikipedia.articles import read_articles, skim_articles
from tests.support.dumps import HEAD, TAIL, dump, page, write_dump

BYTES = train_tokenizer([], 257)
DE, EN = (f"{language}wiki-20260101-pages-articles.xml.bz2" for language in ("de", "en"))
BEAR, BRIDGE = page("Bär", "Ein '''Bär'''."), page("Bridge", "A [[bridge]].")

pytestmark = pytest.mark.usefixtures("nothing_left")


def documents(folder: Path | str, language: str | None = None) -> list[str]:
    files = TextFiles(folder, language=language)
    return [piece.text for piece in files.read(files.find(), unexpected)]


def unexpected(left_out: LeftOut) -> None:
    raise AssertionError(left_out)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two dumps, and text beside them."""
    write_dump(tmp_path / DE, BEAR, page("Liste", "{{Leer}}"))
    write_dump(tmp_path / EN, BRIDGE)
    (tmp_path / "notes.txt").write_text("notes")
    return tmp_path


def test_an_article_is_one_document(folder: Path) -> None:
    """All languages if none is asked for; those without text are none."""
    assert documents(folder) == ["Bär\n\nEin Bär.", "Bridge\n\nA bridge.", "notes"]


def test_a_language_can_be_chosen(folder: Path) -> None:
    """Other text stays; a language that is not there is an error with those that are."""
    assert documents(folder, "de") == ["Bär\n\nEin Bär.", "notes"]
    assert documents(folder / EN, "EN") == ["Bridge\n\nA bridge."]
    with pytest.raises(
        CorpusError, match="no dump of Wikipedia in the language `fr`; choose one of de, en"
    ) as error:
        documents(folder, "fr")
    assert error.value.settings == ("language",)
    with pytest.raises(CorpusError, match="in the language `de`; leave the language out"):
        documents(folder / "notes.txt", "de")


def test_another_language_is_tokenised_anew(folder: Path, tmp_path: Path) -> None:
    """The tokens follow from the dumps that are read."""
    (folder / "notes.txt").write_text("notes " * 20)

    def prepare(language: str | None) -> Corpus:
        files = TextFiles(folder, language=language)
        return Corpus.prepare(files, BYTES, tmp_path / "tokens", context_length=16, seed=1)

    for language, documents in (("de", 2), ("en", 2), (None, 3)):
        corpus = prepare(language)
        splits = (split.read(0, len(split)) for split in (corpus.train, corpus.held_out))
        assert sum(int((tokens == BYTES.end_of_text).sum()) for tokens in splits) == documents


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-15],
        lambda data: data[: len(data) // 2],
        lambda data: data[:100] + b"\xff" * 9 + data[109:],
        lambda _: b"no bzip2",
    ],
)
def test_a_damaged_dump_is_left_out_or_refused(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    """As a damaged gzip file: left out whole, or named if there is nothing else or all must be readable."""
    whole = bz2.compress(dump(*(page(f"Bär {number}", "Ein '''Bär'''.") for number in range(50))))
    (folder / DE).write_bytes(damage(whole))
    left_out: list[LeftOut] = []
    files = TextFiles(folder)
    assert [piece.text for piece in files.read(files.find(), left_out.append)] == [
        "Bridge\n\nA bridge.",
        "notes",
    ]
    assert [Path(one.path).name for one in left_out] == [DE]
    assert "damaged" in left_out[0].reason and "fetch it again" in left_out[0].reason
    with pytest.raises(CorpusError, match=rf"{DE}: damaged"):
        documents(folder / DE)
    with pytest.raises(CorpusError, match=rf"{DE}: damaged"):
        TextFiles(folder, strict=True).check_all(unexpected)


def test_a_lost_part_of_a_multistream_dump_is_noticed(folder: Path) -> None:
    """What follows a whole stream and is none would be passed over by who unpacks it."""
    parts = [bz2.compress(part.encode()) for part in (HEAD, BEAR, TAIL)]
    (folder / DE).write_bytes(parts[0] + parts[1] + b"lost" + parts[2])
    with pytest.raises(CorpusError, match="no element found"):
        documents(folder / DE)


def test_skimming_needs_no_markup_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To see whether a dump can be read to its end, no process is started."""
    monkeypatch.setattr("dupt_swarm.learning.wikipedia.articles.Workers", None)
    assert [article.text for article in skim_articles(folder / DE)] == ["Ein '''Bär'''.", "{{Leer}}"]
    left_out: list[LeftOut] = []
    assert len(TextFiles(folder).check_all(left_out.append)) == 3 and not left_out


def test_articles_that_cannot_be_read_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One of them does not end a corpus; if all are, that is an error."""
    program = tmp_path / "program.py"
    fails = "import sys\nfor line in sys.stdin: print('null' if 'bad' in line else '\"text\"', flush=True)"
    program.write_text(fails)
    monkeypatch.setattr("dupt_swarm.learning.wikipedia.workers.PROGRAM", program)
    with caplog.at_level(logging.WARNING):
        found = list(read_articles(write_dump(tmp_path / DE, page("A", "bad"), BEAR)))
    assert [article.text for article in found] == ["text"]
    assert "1 of 2 articles cannot be read" in caplog.text
    with pytest.raises(CorpusError, match="none of its 2 articles can be read"):
        list(read_articles(write_dump(tmp_path / EN, page("A", "bad"), page("B", "bad"))))


def test_a_machine_that_removes_no_markup_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at the end of the dump, and not as a fault of the dump's."""
    (tmp_path / "program.py").write_text("raise SystemExit(1)")
    monkeypatch.setattr("dupt_swarm.learning.wikipedia.workers.PROGRAM", tmp_path / "program.py")
    with pytest.raises(CorpusError, match=r"removes markup ends at once; .* install mwparserfromhell anew"):
        list(read_articles(write_dump(tmp_path / DE, BEAR)))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(CorpusError, match="no process can be started to remove markup: No such file"):
        list(read_articles(tmp_path / DE))


def test_a_dump_without_the_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names what to install; the dump is not left out, for it is in order."""
    monkeypatch.setitem(sys.modules, "mwparserfromhell", None)
    with pytest.raises(CorpusError, match=re.escape(install("wikipedia"))):
        documents(folder)
    with pytest.raises(CorpusError, match=re.escape(install("wikipedia"))):
        TextFiles(folder / DE).check()
    assert markup  # imported before, as by a worker
