from pathlib import Path

import pytest

from dupt_swarm.node.reasons import FAILURES, REFUSED_MESSAGES, REJECTIONS, in_order
from dupt_swarm.node.view import View
from monitor.tally import INCREASE_MAX, PEERS_REMEMBERED, Floor, Tally, Totals, load_totals, save_totals
from tests.support.invented import peer


def failures(**counts: int) -> tuple[int, ...]:
    return in_order(counts, FAILURES)


def test_increases_are_summed_over_peers() -> None:
    """What a peer had counted before the monitor saw it is left out; what it counts afterwards is added."""
    tally = Tally()
    tally.add(View(1.0, (peer("a", averaged_rounds=50, failures=failures(timeout=9)), peer("b"))))
    assert tally.totals.averaged == 0
    tally.add(
        View(
            2.0,
            (
                peer("a", averaged_rounds=52, failures=failures(timeout=10)),
                peer("b", averaged_rounds=1, failures=failures(timeout=1, peer_lost=2)),
            ),
        )
    )
    assert tally.totals.averaged == 3
    assert tally.totals.failed == dict.fromkeys(FAILURES, 0) | {"timeout": 2, "peer_lost": 2}


def test_churn() -> None:
    """A peer that leaves takes nothing with it; one that starts again counts from zero."""
    tally = Tally()
    rejections = in_order({"norm": 7}, REJECTIONS)
    tally.add(View(1.0, (peer("a"),)))
    tally.add(View(2.0, (peer("a", rejections=rejections),)))
    tally.add(View(3.0, ()))
    assert tally.totals.rejected["norm"] == 7
    tally.add(View(4.0, (peer("a", rejections=in_order({"norm": 2}, REJECTIONS)),)))
    assert tally.totals.rejected["norm"] == 9


def test_refused_messages() -> None:
    """Peers' counts are summed as they rise."""
    tally = Tally()
    for number in range(3):
        refused = in_order({"rate": 2 * number, "contradiction": 1}, REFUSED_MESSAGES)
        tally.add(View(1.0 + number, (peer("a", refused=refused), peer("b", refused=refused))))
    assert tally.totals.refused_messages == dict.fromkeys(REFUSED_MESSAGES, 0) | {"rate": 8}


def test_nobody_can_inflate_the_counters() -> None:
    """One record cannot raise a sum without bound."""
    tally = Tally()
    tally.add(View(1.0, (peer("a"),)))
    tally.add(View(2.0, (peer("a", averaged_rounds=2**31),)))
    assert tally.totals.averaged == INCREASE_MAX


def test_refused_records() -> None:
    """The node's count of refused records is added up, over new nodes too."""
    tally = Tally()
    for refused in ({"signature": 3}, {"signature": 5}, {"signature": 1}):
        tally.add(View(1.0, (), refused))
    assert tally.totals.refused["signature"] == 3


def test_memory_is_bounded() -> None:
    """However many peers come and go, only so many are remembered: those that were seen last."""
    tally, strangers = Tally(), PEERS_REMEMBERED + 100
    for number in range(strangers):
        tally.add(View(1.0, (peer("a", averaged_rounds=number), peer(f"p{number}"))))
    assert len(tally._known) == PEERS_REMEMBERED
    assert tally.totals.averaged == strangers - 1
    tally.add(View(2.0, (peer(f"p{strangers - 1}", averaged_rounds=2),)))
    assert tally.totals.averaged == strangers + 1


def test_floors() -> None:
    """A peer's counters keep their greatest value, also while it was away."""
    tally = Tally()
    tally.add(View(1.0, (peer("a", tokens_total=90, failed_rounds=2),)))
    assert tally.add(View(2.0, ())) == {}
    assert tally.add(View(3.0, (peer("a", tokens_total=60),))) == {"a": Floor(90, 2)}


def test_a_liar_does_not_set_the_counter() -> None:
    """One peer's claim of absurdly many tokens does not enter a counter that never falls.

    Neither beside two oracles, nor one, nor one peer while no oracle is at work.
    """
    liar = {"swarm_tokens": 2**61, "round": 2**61}
    evaluator = peer("liar", role="evaluator", **liar)
    for others in ((peer("a"), peer("b")), (peer("a"),)):
        tally = Tally()
        tally.add(View(1.0, (*others, peer("liar", **liar))))
        tally.add(View(2.0, (*others, evaluator)))
        tally.add(View(3.0, (peer("first", role="bootstrap"), evaluator)))
        assert (tally.totals.tokens, tally.totals.round) == (900, 3)


def test_time_of_the_round() -> None:
    """The time of the last round is when the round was seen to rise, after a fall too."""
    tally, times = Tally(), []
    for now, round in ((10.0, 3), (20.0, 3), (30.0, 4), (40.0, 2), (50.0, 3)):
        tally.add(View(now, (peer("a", round=round),)))
        times.append(tally.totals.round_time)
    assert times == [10.0, 10.0, 30.0, 30.0, 50.0]


def test_kept_on_disk(tmp_path: Path) -> None:
    """Totals are the same after a restart, and the time of the last round stays what it was."""
    tally = Tally()
    tally.add(View(10.0, (peer("a"),), {"size": 1}))
    save_totals(tmp_path / "file", tally.totals)

    after = Tally(load_totals(tmp_path / "file"))
    assert after.totals == tally.totals
    after.add(View(99.0, (peer("a", swarm_tokens=600),)))
    assert (after.totals.tokens, after.totals.round_time) == (900, 10.0)


@pytest.mark.parametrize("content", [b"", b"{", b'{"tokens": -1}', b"\xff", b'{"tokens": "9"}'])
def test_damaged_file(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged file is a warning, and counters start from zero; a missing one is nothing special."""
    assert load_totals(tmp_path / "none") is None
    assert not caplog.records
    (tmp_path / "file").write_bytes(content)
    assert load_totals(tmp_path / "file") is None
    assert "counters start from zero" in caplog.text


def test_file_of_another_version(tmp_path: Path) -> None:
    """Reasons that an older version did not know begin at zero."""
    (tmp_path / "file").write_text('{"tokens": 5, "failed": {"timeout": 2}}')
    tally = Tally(load_totals(tmp_path / "file"))
    tally.add(View(1.0, (peer("a"),)))
    assert tally.totals.failed == dict.fromkeys(FAILURES, 0) | {"timeout": 2}
    assert Totals().failed.keys() == set(FAILURES)
