"""Reads a text out of a row."""

from __future__ import annotations

from collections.abc import Mapping

from dupt_swarm.learning.reading import well_formed


def text_of(row: Mapping[str, object], name: str) -> str:
    """The text in column ``name``; null counts as empty, half a surrogate pair (JSON can spell it) as U+FFFD.

    Raises:
        ValueError: it is not text.
    """
    value = row[name]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"`{name}` is {type(value).__name__}, not text")
    return well_formed(value)
