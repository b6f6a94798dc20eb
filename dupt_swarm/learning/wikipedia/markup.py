"""An article without its markup. As a program: reads articles as lines of JSON, writes texts as such.

Processes that start this file import nothing but mwparserfromhell, so they are ready at once.
"""

from __future__ import annotations

import contextlib
import json
import re
import resource
import signal
import sys
from collections.abc import Iterable, Iterator

import mwparserfromhell
from mwparserfromhell.nodes import Heading, Tag, Template, Text, Wikilink

# What one article may take; beyond that the process ends. Real ones take seconds and 100 MB at most, but for
# text made to that end the parser's time grows with the square of its length, and faster.
ARTICLE_SECONDS = 60  # of processor time
ARTICLE_BYTES = 2 << 30
# What is no running text. Formulas, galleries and maps are left out by the library.
NO_TEXT = {"table", "ref", "references", "ce", "chem", "hiero", "indicator", "style", "templatestyles"}
FILE = re.compile(r"[^:\[\]|]+:.*\.(jpe?g|png|gif|svg|webp|tiff?|xcf|og[agv]|webm|mp[34g]|wav|pdf|djvu)\s*")
STYLE = re.compile(r"'{2,}")  # bold and italic
SWITCH = re.compile(r"__[^\W\d_]+(?:_[^\W\d_]+)*__")  # such as __NOTOC__, translated in each language
# Brackets around a template that is gone, and where text itself has such: f().
HOLLOW = re.compile(r" ?[(（][\s,;:、，；：]*[)）]")
EMPTY = re.compile(r"[(（](?=[\s,;:、，；：]*[)）])")
COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
SECTION = re.compile(r"^(?===[^=])", re.MULTILINE)
INDENT = re.compile(r"^[:*#\t ]+(?=\{\|)", re.MULTILINE)  # of a table, which the parser does not see then
BRACKETS = tuple(
    (re.compile(opening, re.MULTILINE), re.compile(closing, re.MULTILINE))
    for opening, closing in ((r"\{\{", r"\}\}"), (r"^\{\|", r"^[\t ]*\|\}(?!\})"))
)
# What shows that the parser took rows of a table or template for text: it is not closed, or not opened.
REMAINS = re.compile(r"\{\{|^[\t ]*(?:\{\||\|\}|\|-+(?:\s|$))", re.MULTILINE)
BLANKS = re.compile(r"[ \t]+")
MARK = "\N{START OF HEADING}"  # as many as a heading's level, in front of it
KEPT = "\N{START OF TEXT}"  # in brackets that were empty from the beginning


def plain_text(title: str, wikitext: str, namespaces: Iterable[str] = ()) -> str:
    """The running text of an article below its title; empty if there is none.

    Left out are templates, tables, references, pictures and categories, and headings with nothing below.

    Args:
        title: of the article.
        wikitext: its source.
        namespaces: the wiki's own names for files and categories; the English ones are known everywhere.
    """
    unseen = {"file", "image", "category", *(name.lower() for name in namespaces)}
    sections = _sections(EMPTY.sub(rf"\g<0>{KEPT}", wikitext))
    body = _tidy("\n".join(_strip(section, unseen) for section in sections))
    return f"{title}\n\n{body}" if body else ""


def _sections(wikitext: str) -> Iterator[str]:
    """``wikitext`` in parts that end before a heading, and in no template or table.

    The parser's time grows with the square of the length: sections of a long article take a tenth of it.
    """
    section, unclosed = "", [0] * len(BRACKETS)
    for part in SECTION.split(INDENT.sub("", COMMENT.sub("", wikitext))):
        section += part
        for kind, (opening, closing) in enumerate(BRACKETS):
            unclosed[kind] += len(opening.findall(part)) - len(closing.findall(part))
        if max(unclosed) <= 0:
            yield section
            section, unclosed = "", [0] * len(BRACKETS)
    yield section


def _strip(section: str, unseen: set[str]) -> str:
    """The text of a section, each heading behind its marks."""
    code = mwparserfromhell.parse(section, skip_style_tags=True)
    for node in code.ifilter():
        if isinstance(node, Template):
            node.params.clear()  # not to be looked through
        elif isinstance(node, Wikilink):
            if _is_unseen(str(node.title), unseen):
                node.title = node.text = ""
        elif isinstance(node, Heading):
            node.title.nodes.insert(0, Text(MARK * node.level))
        elif isinstance(node, Tag):
            name = str(node.tag).strip().lower()
            if name in NO_TEXT or name == "br":
                node.contents = " " if name == "br" else ""
    return code.strip_code()


def _is_unseen(target: str, namespaces: set[str]) -> bool:
    """Whether a link shows a picture, or none at all: a colon in front makes it an ordinary link."""
    namespace, colon, _ = target.partition(":")
    return bool(colon) and (namespace.strip().lower() in namespaces or bool(FILE.fullmatch(target.lower())))


def _tidy(text: str) -> str:
    """``text`` without what the parser takes for text, and without headings that nothing follows."""
    text = SWITCH.sub(lambda switch: "" if switch[0].isupper() else switch[0], text)
    text = HOLLOW.sub("", STYLE.sub(_unstyled, text)).replace(KEPT, "")
    rows = ("{|", "|") if REMAINS.search(text) else ()
    kept: list[str] = []
    below = 0  # what follows, from the last line up: the level of a heading, or beyond all levels a text
    for line in reversed(text.split("\n")):
        words = BLANKS.sub(" ", line.lstrip(MARK)).strip()
        level = len(line) - len(line.lstrip(MARK))
        if (level and below <= level) or words.startswith(rows):
            continue
        if words:
            below = level or sys.maxsize
        if words or (kept and kept[-1]):
            kept.append(words)
        if level:
            kept.append("")
    return "\n".join(reversed(kept)).strip()


def _unstyled(quotes: re.Match[str]) -> str:
    """MediaWiki takes 2, 3 or 5 for a style: one of 4 is an apostrophe, and so are those beyond 5."""
    count = len(quotes[0])
    return "'" * (1 if count == 4 else max(0, count - 5))


def main() -> None:
    """Answer each line of stdin, ``{"title": …, "wikitext": …, "namespaces": […]}``, with one on stdout.

    An article that the library fails on gives null; one that takes too long or too much ends the process.
    """
    with contextlib.suppress(OSError, ValueError):  # not every system limits memory
        resource.setrlimit(resource.RLIMIT_AS, (ARTICLE_BYTES, ARTICLE_BYTES))
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, ARTICLE_SECONDS)
        try:
            text = plain_text(**json.loads(line))
        except Exception:  # whatever strangers' text makes of the parser
            text = None
        print(json.dumps(text), flush=True)


if __name__ == "__main__":
    main()
