"""A clock for what asks one: it stands still until the test moves it."""


class Clock:
    """Seconds since whatever the test likes.

    Attributes:
        now: what it shows.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
