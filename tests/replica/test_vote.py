import pytest

from dupt_swarm.replica.vote import accepts

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (3.0, 3.0, True),
        (3.0, 1.0, True),
        (3.0, 3.02, True),
        (3.0, 3.04, False),
        (3.0, NAN, False),
        (3.0, INF, False),
        (3.0, -INF, False),
        (NAN, 3.0, False),
    ],
)
def test_a_member_accepts_what_is_hardly_worse(before: float, after: float, expected: bool) -> None:
    """The loss may rise by one per cent; one that is no number is never accepted."""
    assert accepts(before, after) == expected
