"""Corpora on the command line: ``--corpus PATH`` or ``--corpus PATH:WEIGHT``, repeatable."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dupt_swarm.errors import UsageError
from dupt_swarm.settings import WeightedCorpus

if TYPE_CHECKING:
    _CorpusType = click.ParamType[WeightedCorpus]
else:
    _CorpusType = click.ParamType  # only newer versions of click have it generic

SEPARATOR = ";"  # in an environment variable, since paths have spaces and weights colons


def parse_corpus(text: str) -> WeightedCorpus:
    """A corpus and its weight; what exists as it is typed is a path without one.

    Raises:
        UsageError: neither, or the weight is no positive number.
    """
    path, colon, weight = text.rpartition(":")
    if not colon or _is_there(text):
        return WeightedCorpus(Path(text))
    number = _number(weight)
    if not path or number is None:
        raise UsageError(
            f"`{text}`: no such file or folder, and what follows its last colon is no weight; "
            "write PATH, or PATH:WEIGHT with a number such as 0.3"
        )
    return WeightedCorpus(Path(path), number)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _is_there(text: str) -> bool:
    """Whether a path or a glob leads to anything."""
    path = os.path.expanduser(text)  # noqa: PTH111 (Path.expanduser raises for an unknown user)
    return os.path.lexists(path) or any(glob.iglob(path, recursive=True))  # noqa: PTH207


class CorpusType(_CorpusType):
    """The type of ``--corpus`` where several may be given."""

    name = "corpus"

    def convert(
        self, value: str | WeightedCorpus, param: click.Parameter | None, ctx: click.Context | None
    ) -> WeightedCorpus:
        """See `parse_corpus`; what it refuses is a usage error."""
        if isinstance(value, WeightedCorpus):
            return value
        try:
            return parse_corpus(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """The corpora in an environment variable."""
        return [one.strip() for one in rv.split(SEPARATOR) if one.strip()]


CORPUS = CorpusType()
