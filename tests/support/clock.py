"""A clock for what asks one: it stands still until the test moves it; and times of day in Berlin."""

from datetime import datetime
from zoneinfo import ZoneInfo


class Clock:
    """Seconds since whatever the test likes.

    Attributes:
        now: what it shows.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def in_berlin(text: str, fold: int = 0) -> float:
    """Seconds since the epoch of a local time, for tests that use the fixture `berlin`."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=fold).timestamp()
