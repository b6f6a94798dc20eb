"""The articles of a dump as text: each begins with its title."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from dupt_swarm.errors import CorpusError, install
from dupt_swarm.learning.reading import MissingLibraryError
from dupt_swarm.learning.wikipedia.export import read_pages
from dupt_swarm.learning.wikipedia.workers import Workers

# Large wikis come in parts too: enwiki-20260101-pages-articles1.xml-p1p41242.bz2. An index is no .xml.
_DUMP = re.compile(
    r"(?:(?P<language>[a-z][a-z_-]*?)wik[a-z]*(?=-))?.*-pages-articles[^.]*\.xml(-p\d+p\d+)?(\.bz2|\.gz)?"
)


def is_dump(name: str) -> bool:
    """Whether a file of this name is a dump."""
    return _DUMP.fullmatch(name.lower()) is not None


def language_of(name: str) -> str | None:
    """The language of a dump, such as ``de`` or ``zh_min_nan``; None: no dump, or its name does not say."""
    match = _DUMP.fullmatch(name.lower())
    return normalised(match["language"]) if match and match["language"] else None


def normalised(language: str) -> str:
    """A language's code as file names spell it: ``be-tarask`` and ``Be_Tarask`` are one."""
    return language.strip().lower().replace("-", "_")


logger = logging.getLogger(__name__)


class Article(NamedTuple):
    """The text of an article, and how many bytes of the file had been read with it."""

    text: str
    position: int


def read_articles(path: Path) -> Iterator[Article]:
    """The articles of a dump without their markup; those without any text are passed over.

    So are those that cannot be read, with a warning at the end.

    Raises:
        CorpusError: it is no export of MediaWiki, is damaged or ends too early, or nothing in it can be read;
            or no markup can be removed on this machine.
        MissingLibraryError: mwparserfromhell is not installed.
        OSError, EOFError: it cannot be read or unpacked.
    """
    _need_library(path)
    pages = unreadable = 0
    with Workers() as workers, closing(read_pages(path)) as found:
        workers.check()
        requests = (
            (page, {"title": page.title, "wikitext": page.wikitext, "namespaces": page.namespaces})
            for page in found
        )
        for page, text in workers.map(requests):
            pages, unreadable = pages + 1, unreadable + (text is None)
            if text:
                yield Article(text, page.position)
    if pages and unreadable == pages:
        raise CorpusError(
            f"{path}: the markup of none of its {pages} articles can be read; is it another wiki's?"
        )
    if unreadable:
        logger.warning("%s: %d of %d articles cannot be read, and are passed over", path, unreadable, pages)


def skim_articles(path: Path) -> Iterator[Article]:
    """The same with all markup, which takes a fraction of the time: to see whether a dump can be read.

    Raises:
        CorpusError, MissingLibraryError, OSError, EOFError: as above.
    """
    _need_library(path)
    with closing(read_pages(path)) as pages:
        for page in pages:
            yield Article(page.wikitext, page.position)


def _need_library(path: Path) -> None:
    try:
        import mwparserfromhell  # noqa: F401
    except ImportError as error:
        raise MissingLibraryError(
            f"{path}: reading a dump of Wikipedia needs mwparserfromhell; {install('wikipedia')}"
        ) from error
