"""What an all-reduce says of the others."""

from unittest.mock import sentinel

import pytest

from dupt_swarm.network.averaging.tally import Tally


@pytest.fixture
def tally() -> Tally:
    """Of ada, who reduces two parts, as three others do."""
    return Tally("ada", {"ada": [0, 1], "bea": [2, 3], "cleo": [4, 5], "eve": [6, 7]})


def test_tokens(tally) -> None:
    """The mean over the values, whatever part they are in."""
    assert tally.tokens == 0
    tally.weights, tally.values = [300.0 * 10, 100.0 * 30], 40
    assert tally.tokens == 150


@pytest.mark.parametrize(
    ("returned", "silent"),
    [
        ({"ada", "bea", "cleo"}, {"eve"}),
        ({"ada", "bea"}, {"cleo", "eve"}),
        ({"bea", "cleo"}, {"eve"}),  # and our own share, which waits for somebody
        ({"ada"}, set()),  # so many: rather we are slow
        (set(), set()),
        ({"ada", "bea", "cleo", "eve"}, set()),
    ],
)
def test_for_whom_it_failed_when_the_time_is_up(tally, returned, silent) -> None:
    """Whose shares are missing where most are there; a run that is cut off loses all that it waits for."""
    tally.receipts = dict.fromkeys(returned, sentinel.receipt)
    tally.lost_reducers = tally.shares.keys() - returned
    assert tally.silent == silent
    tally.awaited_senders = {"ada", "fay"}
    assert tally.silent == silent | {"fay"}


def test_for_whom_it_failed_before(tally) -> None:
    """The others whose share did not arrive; not those without whom it has gone on."""
    tally.lost_reducers, tally.late_senders = {"ada", "eve"}, {"gil"}
    assert tally.failed == {"eve"}


def test_whose_averages_are_implausible(tally) -> None:
    """Those of the others that are longer than contributions like ours, in the whole share."""
    squares = {0: (1.0, 1.0), 1: (1.0, 1.0)}  # ours
    squares |= {
        2: (1.0, 0.0),
        3: (1.0, 201.0),
        4: (1.0, 100.0),
        5: (1.0, 99.0),
        6: (0.0, 1e74),
        7: (0.0, 0.0),
    }
    tally.squares = squares
    assert tally.implausible(100.0, 100.0, 10.0) == ("bea",)  # of eve's share we know nothing
    assert tally.implausible(100.0, 400.0, 10.0) == ()
    tally.squares[6] = 1e-6, 1e74
    assert tally.implausible(100.0, 400.0, 10.0) == ("eve",)
    tally.squares[0] = 1.0, 1000.0  # others contribute more than we do
    assert tally.implausible(100.0, 100.0, 10.0) == ("eve",)


def test_who_reduces_nothing_has_no_share(tally) -> None:
    """It compares with nothing but its own contributions to the others' shares."""
    tally.me = "fay"
    tally.squares = dict.fromkeys(range(8), (1.0, 1.0)) | {7: (1.0, 1e74)}
    assert tally.implausible(100.0, 100.0, 10.0) == ("eve",)
