"""Numbers, times and texts as people read them."""

from __future__ import annotations

import time

DASH = "–"
TIME_UNITS = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"))
DURATION_UNITS = 1.5  # 80 s, but 2 min
SIZE_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
SHORT_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k"))


def short(value: float | None) -> str:
    """Such as ``9,876``, ``12.3 k`` or ``4.56 B``; a dash for None."""
    if value is None:
        return DASH
    for size, unit in SHORT_UNITS:
        if value >= size:
            # k begins at ten thousand only, as four digits are as easy to read.
            return _three_digits(value / (1e3 if unit == "k" else size), unit)
    return whole(value)


def size(count: int | None) -> str:
    """Such as ``12.3 MB``, of bytes; a dash for None."""
    if count is None:
        return DASH
    for least, unit in SIZE_UNITS:
        if count >= least:
            return _three_digits(count / least, unit)
    return f"{count}\N{NO-BREAK SPACE}B"


def wait(seconds: float | None) -> str:
    """Such as ``0.3 s``, and from 15 s on a `duration`; a dash for None."""
    if seconds is None:
        return DASH
    return f"{seconds:.1f}\N{NO-BREAK SPACE}s" if seconds < 15 else duration(seconds)


def whole(value: float | None) -> str:
    """Such as ``1,234,567``; a dash for None."""
    return DASH if value is None else f"{value:,.0f}"


def loss(value: float | None) -> str:
    """Three decimals, fewer where the number is large; a dash for None."""
    if value is None:
        return DASH
    return f"{value:.3f}" if value < 100 else f"{value:,.0f}"


def percent(ratio: float | None) -> str:
    """Such as ``42 %``; ``< 1 %`` for what is little but not nothing; a dash for None."""
    if ratio is None:
        return DASH
    if 0 < ratio < 0.01:
        return "< 1\N{NO-BREAK SPACE}%"
    return f"{100 * ratio:.0f}\N{NO-BREAK SPACE}%"


def duration(seconds: float) -> str:
    """One unit that is easy to grasp, such as ``45 s``, ``12 min``, ``3 h`` or ``4 days``."""
    size, unit = next(
        ((size, unit) for size, unit in TIME_UNITS if seconds >= DURATION_UNITS * size), TIME_UNITS[-1]
    )
    return f"{max(seconds, 0) / size:.0f}\N{NO-BREAK SPACE}{unit}"


def clock(seconds: float) -> str:
    """The time of day in UTC, such as ``14:05:09``, of ``seconds`` since the epoch."""
    return time.strftime("%H:%M:%S", time.gmtime(seconds))


def count(number: int, thing: str, things: str = "") -> str:
    """Such as ``1 peer`` and ``1,234 peers``."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def _three_digits(value: float, unit: str) -> str:
    decimals = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{decimals}f}\N{NO-BREAK SPACE}{unit}"
