"""One row of a table, and what to say of a column that is not there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dupt_swarm.errors import CorpusError


class Row(NamedTuple):
    """The cells of the columns asked for.

    Attributes:
        where: file and line, for messages.
        cells: by the table's own names.
    """

    where: str
    cells: dict[str, object]


def check_columns(where: str, wanted: Sequence[str], there: Iterable[str]) -> None:
    """See that all ``wanted`` columns are there.

    Raises:
        CorpusError: names those that are missing, and those that are there.
    """
    names = [str(name) for name in there]
    if missing := [name for name in wanted if name not in names]:
        raise CorpusError(
            f"{where}: there is no column {', '.join(f'`{name}`' for name in missing)}: it has "
            f"{', '.join(f'`{name}`' for name in names) or 'none'}; say which column is which",
            setting="columns",
        )
