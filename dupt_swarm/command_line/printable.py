"""Text from strangers, made fit for a terminal."""

from __future__ import annotations

import unicodedata

REPLACEMENT = "�"
# Line breaks, tabs, and what joins letters or keeps them apart: without it Persian or Hindi is misspelt.
KEPT = "\n\t\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"


def is_harmless(character: str) -> bool:
    """Whether a terminal shows it, and neither obeys it nor changes the direction of what follows."""
    return character.isprintable() or character in KEPT or unicodedata.category(character) == "Zs"


def printable(text: str) -> str:
    """``text`` without what a terminal would obey: escapes, other control characters, changes of direction.

    Line breaks, tabs, all kinds of spaces and joiners stay; what else cannot be printed becomes U+FFFD.
    """
    return "".join(one if is_harmless(one) else REPLACEMENT for one in text)


def one_line(text: str) -> str:
    """`printable` text on a single line, for a name or a cell of a table."""
    return printable(" ".join(text.splitlines()).replace("\t", " "))


def as_name(text: str) -> str:
    """`printable` text in which line breaks and tabs are replaced too: as long as it was."""
    return "".join(one if is_harmless(one) and one not in "\n\t" else REPLACEMENT for one in text)
