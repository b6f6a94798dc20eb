"""Tables on stdout, as wide as a terminal or a line in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dupt_swarm.command_line.printable import one_line

PIPE_WIDTH = 120  # off a terminal nothing says how wide a line may be
GAP = 2  # between two columns
WRAPPED_WIDTH = 16  # what is wrapped can be read in so few


def stdout_console() -> Console:
    """What writes to stdout."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def build_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[str] = (),
    wrapped: Collection[str] = (),
    spare: Sequence[str] = (),
    width: int | None = None,
    min_width: int | None = None,
) -> Table:
    """Rows of text, which strangers may have written, below headings.

    Args:
        headings: of the columns.
        rows: a text for each column.
        right: headings of the columns that end in a line.
        wrapped: those of columns that may take several lines; of others half a text could be misread.
        spare: those of columns that a narrow terminal goes without, the first one first.
        width: of the terminal; None: it has room for all.
        min_width: of each column.
    """
    lines = [[one_line(cell) for cell in row] for row in rows]
    columns = {heading: [line[index] for line in lines] for index, heading in enumerate(headings)}
    for heading in spare:
        if width is not None and _width(columns, wrapped) > width:
            del columns[heading]
    table = Table(box=None, pad_edge=False)
    for heading in columns:
        justify = "right" if heading in right else "left"
        table.add_column(heading, justify=justify, no_wrap=heading not in wrapped, min_width=min_width)  # type: ignore[arg-type]
    for index in range(len(lines)):
        table.add_row(*(Text(column[index]) for column in columns.values()))
    return table


def _width(columns: dict[str, list[str]], wrapped: Collection[str]) -> int:
    """Of all columns side by side."""
    widths = {heading: max(map(cell_len, (heading, *cells))) for heading, cells in columns.items()}
    shown = (min(width, WRAPPED_WIDTH) if heading in wrapped else width for heading, width in widths.items())
    return sum(shown) + GAP * (len(columns) - 1)
