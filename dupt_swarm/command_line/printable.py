"""Text from strangers, made fit for a terminal."""

from __future__ import annotations

REPLACEMENT = "�"


def printable(text: str) -> str:
    """``text`` without what a terminal would obey: escapes, other control characters, changes of direction.

    Line breaks and tabs stay; all other characters that cannot be printed become U+FFFD.
    """
    return "".join(one if one.isprintable() or one in "\n\t" else REPLACEMENT for one in text)


def one_line(text: str) -> str:
    """`printable` text on a single line, for a name or a cell of a table."""
    return printable(" ".join(text.splitlines()).replace("\t", " "))
