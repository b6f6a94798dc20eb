"""Pages are read from MediaWiki's XML, whoever wrote it and whatever is in it."""

import bz2
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.wikipedia import export
from dupt_swarm.learning.wikipedia.export import read_pages
from tests.support.dumps import HEAD, TAIL, dump, page, write_dump

BEAR = page("Bear", "A '''bear''' & a <ref>bridge</ref>.")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dewiki-20260101-pages-articles.xml"


def titles(path: Path) -> list[str]:
    return [one.title for one in read_pages(path)]


def write_repeated(path: Path, head: str, part: str, times: int) -> Path:
    """A file that unpacks to very much: ``part`` over and over, without an end."""
    block = bz2.compress(part.encode() * times)
    path.write_bytes(bz2.compress(head.encode()) + block * 40)
    return path


def test_articles_are_read_with_what_the_wiki_calls_its_namespaces(path: Path) -> None:
    """Title and text as they were written, and files and categories in the wiki's own language."""
    found = read_pages(write_dump(path, BEAR, page("A & B", "x")))
    assert [(one.title, one.wikitext, one.namespaces) for one in found] == [
        ("Bear", "A '''bear''' & a <ref>bridge</ref>.", ("Datei", "Kategorie")),
        ("A & B", "x", ("Datei", "Kategorie")),
    ]


def test_only_articles_are_read(path: Path) -> None:
    """No redirects, no other namespaces, no pages of JSON."""
    others = (
        page("Ours", "#REDIRECT [[Bear]]", more='\n    <redirect title="Bear" />'),
        page("Vorlage:Bear", "{{{1}}}", ns=10),
        page("Data", "{}", model="json"),
    )
    assert titles(write_dump(path, *others, BEAR, *others)) == ["Bear"]


def test_malformed_pages_are_passed_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without text, title or revision, empty or longer than a page can be; the others are read."""
    monkeypatch.setattr(export, "PAGE_CHARACTERS", 100)
    malformed = (
        page("Empty", " \n"),
        page("Long", "x" * 101),
        page("", "text"),
        "  <page><title>Bare</title><ns>0</ns></page>\n",
        "  <page><title>Deleted</title><ns>0</ns><revision><text deleted='deleted' /></revision></page>\n",
    )
    assert titles(write_dump(path, *malformed, page("Full", "x" * 100))) == ["Full"]


def test_other_contents_of_a_revision_are_not_its_text(path: Path) -> None:
    """A revision may have more than one content; the article is that at its own level."""
    slot = "<content><role>other</role><model>json</model><text>{}</text></content></revision>"
    [found] = read_pages(write_dump(path, BEAR.replace("</revision>", slot)))
    assert found.wikitext.startswith("A '''bear'''")


@pytest.mark.parametrize("suffix", ["", ".bz2", ".gz"])
def test_compressed_dumps_are_unpacked_as_they_are_read(path: Path, suffix: str) -> None:
    """Also one that consists of many compressed files, as multistream dumps do."""
    path = write_dump(path.with_name(path.name + suffix), *(page(str(number), "x") for number in range(9)))
    found = list(read_pages(path))
    assert [one.title for one in found] == [str(number) for number in range(9)]
    assert found[-1].position <= path.stat().st_size


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (dump(BEAR)[:-20], "no element found|unclosed token"),
        (dump(BEAR)[: len(HEAD) + 9], "no element found|unclosed token"),
        (b"", "no element found"),
        (dump(BEAR).replace(b"</revision>", b""), "mismatched tag"),
        (dump(BEAR).replace(b"&amp;", b"&bear;"), "undefined entity"),
        (b"<rss><title>Bear</title></rss>", "it begins with <rss>"),
        (b"no XML", "syntax error"),
        ((HEAD + "<a>" * 99).encode(), "too deep in one another"),
    ],
)
def test_damaged_dumps_are_named(path: Path, data: bytes, reason: str) -> None:
    """Cut off, or no export at all: file, reason and remedy."""
    path.write_bytes(data)
    with pytest.raises(CorpusError, match=rf"articles\.xml: damaged, or .*({reason}).*; fetch it again"):
        titles(path)


def test_entities_are_refused(path: Path) -> None:
    """A document type, which could declare entities that expand to gigabytes, ends the reading at once."""
    bomb = '<!DOCTYPE bomb [<!ENTITY a "bear"><!ENTITY b "&a;&a;"><!ENTITY f SYSTEM "file:///etc/passwd">]>'
    path.write_bytes((bomb + HEAD + page("Bear", "x").replace(">x<", ">&b;&f;<") + TAIL).encode())
    with pytest.raises(CorpusError, match="declares a document type"):
        titles(path)


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Fails the test if it took more than 20 MB at any moment."""
    tracemalloc.start()
    yield
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 << 20


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("head", "part"),
    [
        (HEAD + "<page><title>Long</title><ns>0</ns><revision><text>", "bear "),
        (HEAD + "<page><title>", "bear "),
        (HEAD + "<page a='", "bear "),
        (HEAD + "<!-- ", "bear "),
    ],
    ids=["text", "title", "attribute", "comment"],
)
def test_memory_is_bounded(path: Path, head: str, part: str) -> None:
    """However much a few kilobytes unpack to, and wherever it stands, little of it is kept."""
    bomb = write_repeated(path.with_name(path.name + ".bz2"), head, part, times=300_000)
    with pytest.raises(CorpusError, match="damaged"):
        titles(bomb)
