"""Which tables to read, and which of their columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dupt_swarm.disk.home import expanded
from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.labelled.tables import READERS, Row
from dupt_swarm.learning.reading import reported

SUPPORTED = ", ".join(READERS)
LABEL = "label"


@dataclass(frozen=True)
class LabelledFiles:
    """Labelled examples as tables.

    Attributes:
        path: a file, or a folder whose files count, in order of their names.
        columns: what a column is called in the files, by what it is: ``{"text": "review"}``.
    """

    path: Path
    columns: Mapping[str, str] = field(default_factory=dict)

    def find(self) -> list[Path]:
        """The files.

        Raises:
            CorpusError: there is none that is supported, or it cannot be looked at.
        """
        path = expanded(self.path)
        with reported(path):
            return self._find(path)

    def _find(self, path: Path) -> list[Path]:
        if path.is_dir():
            found = sorted(file for file in path.iterdir() if _kind(file) and file.is_file())
            if not found:
                raise CorpusError(f"{path}: there is no table in it; give one of {SUPPORTED}")
            return found
        if not path.exists():
            raise CorpusError(f"{path}: no such file; check the path of the examples")
        if not _kind(path):
            raise CorpusError(f"{path}: unsupported file type; use {SUPPORTED}")
        return [path]

    def rows(self, names: Sequence[str]) -> Iterator[Row]:
        """All rows, their cells called ``names``.

        Raises:
            CorpusError: a file cannot be read, or lacks a column; file, row and remedy are named.
        """
        theirs = {name: self.columns.get(name, name) for name in names}
        for path in self.find():
            with reported(path):
                for where, cells in READERS[_kind(path)](path, list(theirs.values())):
                    yield Row(where, {name: cells[column] for name, column in theirs.items()})

    def check_names(self, names: Sequence[str]) -> None:
        """See that only columns that the examples have are renamed.

        Raises:
            UsageError: another one is.
        """
        if unknown := sorted(set(self.columns) - {*names}):
            raise UsageError(
                f"the examples have no column `{unknown[0]}`: there are "
                f"{', '.join(f'`{name}`' for name in names)}; rename one of those",
                setting="columns",
            )


def is_table(path: Path) -> bool:
    """Whether its name is that of a table, or it is a folder, which may hold some."""
    return os.path.isdir(path) or bool(_kind(path))  # noqa: PTH112 (Path.is_dir raises if it may not look)


def _kind(path: Path) -> str:
    """The end of its name that says how to read it; empty if there is none."""
    name = path.name.lower()
    return next((kind for kind in sorted(READERS, key=len, reverse=True) if name.endswith(kind)), "")
