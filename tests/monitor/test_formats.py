import time

import pytest

from monitor import formats


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (9_876, "9,876"), (12_345, "12.3 k"), (987_654, "988 k"), (4_560_000_000, "4.56 B")],
)
def test_amounts(value: float | None, shown: str) -> None:
    """Four digits are as easy to read as a unit."""
    assert formats.short(value) == shown.replace(" ", "\N{NO-BREAK SPACE}")


def test_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the day in UTC, wherever the monitor is; a clock that was set back makes none negative."""
    with monkeypatch.context() as there:
        there.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        shown = formats.clock(3661.0)
    time.tzset()
    assert shown == "01:01:01"
    assert formats.duration(-90) == "0\N{NO-BREAK SPACE}s"
