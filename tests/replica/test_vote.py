import pytest

from dupt_swarm.replica.vote import accepts, stands

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([4.0, 2.0], [4.0, 2.0], True),
        ([4.0, 2.0], [5.0, 0.5], True),
        ([4.0, 2.0], [4.0, 2.05], True),
        ([4.0, 2.0], [4.0, 2.07], False),
        ([4.0, 2.0], [4.0, NAN], False),
        ([4.0, 2.0], [INF, 2.0], False),
        ([4.0, 2.0], [4.0, -INF], False),
        ([NAN, 2.0], [4.0, 2.0], False),
    ],
)
def test_a_member_accepts_what_is_hardly_worse(before, after, expected) -> None:
    """The mean loss may rise by the margin, here one per cent; a loss that is no number is never accepted."""
    assert accepts(before, after, 0.01) == expected


@pytest.mark.parametrize(
    ("accepted", "members", "expected"),
    [(1, 1, True), (1, 2, False), (2, 3, False), (3, 3, True), (3, 4, True), (5, 8, False), (6, 8, True)],
)
def test_more_than_two_thirds_must_accept(accepted, members, expected) -> None:
    """Two of three are not enough, three of four are."""
    assert stands(accepted, members) == expected
