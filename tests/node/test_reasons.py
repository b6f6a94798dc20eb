from dupt_swarm.network.averaging.average import Average
from dupt_swarm.network.averaging.round_counts import RoundCounts
from dupt_swarm.node.messages import Traffic
from dupt_swarm.node.reasons import COUNT_MAX, FAILURES, REJECTIONS, Failure, by_reason, in_order
from dupt_swarm.node.record import PeerRecord


def test_counts_survive_the_array() -> None:
    """Counts by reason are the same after the way through a record's array."""
    counts = {"no_group": 3, "cancelled": 1}
    assert by_reason(in_order(counts, FAILURES), FAILURES) == dict.fromkeys(FAILURES, 0) | counts


def test_arrays_are_bounded() -> None:
    """No counts are an empty array, unlisted reasons share a place, and no count leaves its range."""
    assert in_order({}, REJECTIONS) == ()
    array = in_order({"invented": 2, "else": 3, "norm": 1 << 60}, REJECTIONS)
    assert by_reason(array, REJECTIONS) == dict.fromkeys(REJECTIONS, 0) | {"other": 5, "norm": COUNT_MAX}


def test_short_arrays() -> None:
    """An array from a version that knew fewer reasons is read as far as it goes."""
    assert by_reason((1, 2), REJECTIONS) == dict.fromkeys(REJECTIONS, 0) | {"other": 1, "shape": 2}


def test_outcomes_of_rounds() -> None:
    """The record tells how many rounds ended well, why others failed, and how the last good one went."""
    outcomes = RoundCounts(lambda: Traffic(received=0, sent=0))
    outcomes.note(Average(reason=Failure.NO_GROUP), succeeded=False, seconds=9.0)
    outcomes.note(Average(mates=("a", "b")), succeeded=True, seconds=0.5)
    outcomes.note(Average(mates=("a",), reason=Failure.TIMEOUT), succeeded=False, seconds=8.0)

    fields = outcomes.fields({"norm": 2})
    record = PeerRecord(
        role="oracle", state="training", time=1.0, round=1, state_digest="a" * 64, swarm_tokens=1, **fields
    )
    assert (record.group_size, record.averaging_seconds, record.averaged_rounds) == (3, 0.5, 1)
    assert record.round_seconds >= 0
    assert by_reason(record.failures, FAILURES) == dict.fromkeys(FAILURES, 0) | {"no_group": 1, "timeout": 1}
    assert by_reason(record.rejections, REJECTIONS)["norm"] == 2


def test_bytes_of_a_round() -> None:
    """What was exchanged before the first one is none of it; what failed attempts took is of the next."""
    meter = iter([Traffic(received=5000, sent=10), Traffic(5100, 40), Traffic(5900, 240)])
    outcomes = RoundCounts(lambda: next(meter))
    assert "round_sent_bytes" not in outcomes.fields({})
    outcomes.note(Average(), succeeded=True, seconds=0.5)
    fields = outcomes.fields({})
    assert (fields["round_received_bytes"], fields["round_sent_bytes"]) == (100, 30)
    outcomes.note(Average(reason=Failure.TIMEOUT), succeeded=False, seconds=8.0)
    assert outcomes.fields({})["round_sent_bytes"] == 30
    outcomes.note(Average(), succeeded=True, seconds=0.5)
    fields = outcomes.fields({})
    assert (fields["round_received_bytes"], fields["round_sent_bytes"]) == (800, 200)
