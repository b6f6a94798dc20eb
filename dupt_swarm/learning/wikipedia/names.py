"""Which files are dumps of a wiki, by their names: ``dewiki-20260101-pages-articles.xml.bz2``."""

from __future__ import annotations

import re

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
