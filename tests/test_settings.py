"""Hours of the day in which an oracle may train."""

import pytest

from dupt_swarm.errors import UsageError
from dupt_swarm.settings import ALWAYS, Hours
from tests.support.clock import in_berlin

pytestmark = pytest.mark.usefixtures("berlin")


@pytest.mark.parametrize(
    ("hours", "moment", "inside"),
    [
        ("22-07", "2026-01-10 21:59", False),
        ("22-07", "2026-01-10 22:00", True),
        ("22-07", "2026-01-11 00:00", True),
        ("22-07", "2026-01-11 06:59", True),
        ("22-07", "2026-01-11 07:00", False),
        ("12:30-13:15", "2026-01-11 12:29", False),
        ("12:30-13:15", "2026-01-11 13:14", True),
        ("18-24", "2026-01-11 23:59", True),
        ("18-24", "2026-01-12 00:00", False),
        ("0-24", "2026-01-12 00:00", True),
        ("8-9,22-7", "2026-01-12 08:30", True),
        ("8-9, 22-7", "2026-01-12 09:30", False),
    ],
)
def test_ranges_go_over_midnight_and_have_an_end_that_is_outside(
    hours: str, moment: str, inside: bool
) -> None:
    """A range includes its beginning and not its end, and may go over midnight."""
    assert Hours.parse((hours,)).contain(in_berlin(moment)) is inside


def test_repeated_and_listed_ranges_are_the_same() -> None:
    """`--hours` twice is a list with a comma; none at all is always."""
    assert Hours.parse(("22-07", "12-13")) == Hours.parse(("22-07,12-13",))
    assert Hours.parse(()) == ALWAYS
    assert ALWAYS.contain(in_berlin("2026-01-12 09:30"))


@pytest.mark.parametrize(
    "text", ["", "22", "22-", "25-3", "24-3", "22-24:30", "22:60-7", "7-7", "a-b", "22–07"]
)
def test_what_is_no_range_is_refused_with_an_example(text: str) -> None:
    """The message names the option and what was given."""
    with pytest.raises(UsageError, match="hours " + text):
        Hours.parse((text,))


@pytest.mark.parametrize(
    ("moment", "border"),
    [
        ("2026-01-10 12:00:30", "2026-01-10 22:00"),
        ("2026-01-10 07:00", "2026-01-10 22:00"),
        ("2026-01-10 22:00", "2026-01-11 07:00"),
        ("2026-01-10 21:59:59", "2026-01-10 22:00"),
    ],
)
def test_the_next_border_is_where_the_hours_begin_or_end(moment: str, border: str) -> None:
    """To the minute, and never the present moment."""
    assert Hours.parse(("22-07",)).next_border(in_berlin(moment)) == in_berlin(border)


def test_ranges_that_touch_have_no_border_between_them() -> None:
    """8-12 and 12-14 are one range; all day has no border at all."""
    now = in_berlin("2026-01-10 09:00")
    assert Hours.parse(("8-12,12-14",)).next_border(now) == in_berlin("2026-01-10 14:00")
    assert Hours.parse(("0-24",)).next_border(now) is None
    assert ALWAYS.next_border(now) is None


def test_when_clocks_are_set_forward_a_range_that_begins_in_the_gap_begins_after_it() -> None:
    """On 29 March 2026 there is no 02:30: the clock jumps from 02:00 to 03:00."""
    hours = Hours.parse(("02:30-05",))
    assert hours.next_border(in_berlin("2026-03-29 01:00")) == in_berlin("2026-03-29 03:00")
    assert hours.next_border(in_berlin("2026-03-29 03:00")) == in_berlin("2026-03-29 05:00")


def test_when_clocks_are_set_back_the_clock_on_the_wall_counts() -> None:
    """On 25 October 2026 02:30 comes twice: a range that ends at 02:30 ends twice."""
    hours = Hours.parse(("22-02:30",))
    first_end, again = in_berlin("2026-10-25 02:30"), in_berlin("2026-10-25 02:00", fold=1)
    assert hours.next_border(in_berlin("2026-10-24 23:00")) == first_end
    assert hours.next_border(first_end) == again
    assert hours.next_border(again) == first_end + 3600
