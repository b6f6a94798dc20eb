"""MediaWiki's XML export, page by page: https://www.mediawiki.org/wiki/Help:Export.

It comes from strangers. A document type is refused, and with it every entity but XML's own five, so nothing
expands; and whatever the file holds, no more of it is kept than one page of `PAGE_CHARACTERS`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn
from xml.parsers import expat

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.reading import decompressed

# MediaWiki itself stores at most 2 MiB; a longer text is none of an article.
PAGE_CHARACTERS = 1 << 21
READ_BYTES = 1 << 16
QUIET_BYTES = 1 << 22  # a tag or comment as long as that is none: it would be kept until it ends
DEPTH_MAX = 16  # of elements in one another; 6 in an export
# Namespaces by MediaWiki's numbers.
ARTICLES, FILES, CATEGORIES = "0", "6", "14"
WIKITEXT = "wikitext"  # the content model; others are JSON, programs and the like
ROOT = "mediawiki"
# How deep what is wanted lies; a revision may have contents beside its text, each with a text deeper down.
DEPTHS = {"page": 2, "title": 3, "ns": 3, "redirect": 3, "namespace": 4, "model": 4, "text": 4}


class Page(NamedTuple):
    """An article as it is written."""

    title: str
    wikitext: str
    namespaces: tuple[str, ...]  # what its wiki calls `FILES` and `CATEGORIES`
    position: int  # bytes of the file read so far


def read_pages(path: Path) -> Generator[Page, None, None]:
    """The articles of a dump, compressed or not: no redirects, and no pages of other namespaces.

    What is malformed as a page is passed over: without title or text, or longer than any page can be.

    Raises:
        CorpusError: it is no export of MediaWiki, is damaged, or ends too early.
        OSError, EOFError: it cannot be read or unpacked.
    """
    with path.open("rb") as raw, decompressed(path, raw) as file:
        export = _Export(path)
        while data := file.read(READ_BYTES):
            for title, text in export.feed(data):
                yield Page(title, text, tuple(export.namespaces.values()), raw.tell())
        export.close()


@dataclass
class _PageParts:
    """What has been read of a page."""

    texts: dict[str, str] = field(default_factory=dict)
    redirect: bool = False

    @property
    def article(self) -> tuple[str, str] | None:
        """Its title and text, if that is what it is."""
        title, text = self.texts.get("title", "").strip(), self.texts.get("text", "")
        of_wiki = self.texts.get("model", WIKITEXT).strip() == WIKITEXT
        if self.redirect or not of_wiki or self.texts.get("ns", "").strip() != ARTICLES:
            return None
        return (title, text) if title and text.strip() else None


class _Export:
    """Follows the elements of an export, and keeps those of the page that is being read.

    Attributes:
        namespaces: what this wiki calls `FILES` and `CATEGORIES`, by number; it is there before any page.
    """

    def __init__(self, path: Path) -> None:
        self._path, self.namespaces = path, dict[str, str]()
        self._page: _PageParts | None = None
        self._articles: list[tuple[str, str]] = []
        self._namespace = ""  # the number of that whose name is being read
        self._text: list[str] | None = None  # of an element that is wanted, while it is being read
        self._characters = self._depth = self._quiet = 0
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._read

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        """Title and text of the articles that end in ``data``, the next bytes of the file."""
        self._quiet += len(data)
        self._parse(data, final=False)
        if self._quiet > QUIET_BYTES:
            self._refuse("a tag of it has no end")
        articles, self._articles = self._articles, []
        return articles

    def close(self) -> None:
        """The file has ended, and so should the export."""
        self._parse(b"", final=True)

    def _parse(self, data: bytes, *, final: bool) -> None:
        try:
            self._parser.Parse(data, final)
        except expat.ExpatError as error:
            self._refuse(str(error))

    def _refuse(self, reason: str) -> NoReturn:
        raise CorpusError(
            f"{self._path}: damaged, or no export of MediaWiki: {reason}; fetch it again or remove it"
        )

    def _refuse_doctype(self, *_: object) -> None:
        self._refuse("it declares a document type, which such a file never does")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._quiet = 0
        self._depth += 1
        if self._depth == 1 and name != ROOT:
            self._refuse(f"it begins with <{name[:40]}>")
        if self._depth > DEPTH_MAX:
            self._refuse("its elements lie too deep in one another")
        if DEPTHS.get(name) != self._depth:
            return
        if name == "page":
            self._page = _PageParts()
        elif name == "redirect" and self._page:
            self._page.redirect = True
        elif name == "namespace":
            self._namespace = attributes.get("key", "")
        self._text, self._characters = [], 0

    def _read(self, text: str) -> None:
        self._quiet = 0
        if self._text is not None:
            self._characters += len(text)
            if self._characters <= PAGE_CHARACTERS:
                self._text.append(text)

    def _end(self, name: str) -> None:
        self._quiet = 0
        at_home, self._depth = DEPTHS.get(name) == self._depth, self._depth - 1
        if not at_home:
            return
        text = "".join(self._text or ()) if self._characters <= PAGE_CHARACTERS else ""
        self._text = None
        if name == "namespace":
            if self._namespace in (FILES, CATEGORIES):
                self.namespaces[self._namespace] = text
        elif self._page is None:
            return
        elif name != "page":
            self._page.texts[name] = text
        else:
            if article := self._page.article:
                self._articles.append(article)
            self._page = None
