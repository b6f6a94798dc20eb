from dupt_swarm.node.reasons import COUNT_MAX, FAILURES, REJECTIONS, by_reason, in_order


def test_counts_survive_the_array() -> None:
    """Counts by reason are the same after the way through a record's array."""
    counts = {"peer_lost": 3, "cancelled": 1}
    assert by_reason(in_order(counts, FAILURES), FAILURES) == dict.fromkeys(FAILURES, 0) | counts


def test_arrays_are_bounded() -> None:
    """No counts are an empty array, unlisted reasons share a place, and no count leaves its range."""
    assert in_order({}, REJECTIONS) == ()
    array = in_order({"invented": 2, "else": 3, "norm": 1 << 60}, REJECTIONS)
    assert by_reason(array, REJECTIONS) == dict.fromkeys(REJECTIONS, 0) | {"other": 5, "norm": COUNT_MAX}
    assert in_order({"invented": 1 << 60}, REJECTIONS)[0] == COUNT_MAX


def test_short_arrays() -> None:
    """An array from a version that knew fewer reasons is read as far as it goes."""
    assert by_reason((1, 2), REJECTIONS) == dict.fromkeys(REJECTIONS, 0) | {"other": 1, "shape": 2}
