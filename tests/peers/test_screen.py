"""What an oracle's screen says."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from dupt_swarm.learning.evaluation import Evaluation
from dupt_swarm.node.messages import Downloading, RoundResult, StateName
from dupt_swarm.node.progress import RoundProgress
from dupt_swarm.node.record import PeerRecord, Reach
from dupt_swarm.node.view import Peer, View
from dupt_swarm.oracle.status import Activity, Status
from peers.bootstrap import join_address
from peers.screen import Log, Panel, bar, company, describe, describe_download, last_round

CLOCK = time.strftime("%H:%M", time.localtime(1e9))


def oracle(peer_id: str, tokens_per_second: float, reach: Reach = "direct") -> Peer:
    record = PeerRecord(
        role="oracle",
        state="training",
        time=time.time(),
        round=7,
        state_digest="a" * 64,
        swarm_tokens=1,
        tokens_per_second=tokens_per_second,
        reach=reach,
    )
    return Peer(peer_id, record)


def status(last: RoundResult | None) -> Status:
    return Status(
        state="training",
        round=7,
        progress=RoundProgress(tokens=470.0, target=1000.0, live=2, others_averaging=False),
        rounds_done=3,
        tokens_per_second=100.0,
        contributed_tokens=12345,
        loss=5.5,
        first=None,
        latest=Evaluation(loss_nats=6.0, bits_per_byte=2.5, tokens=10, bytes=40),
        last_round=last,
        failed_rounds=0,
        activity=Activity("stepping", 3, 8, "micro-batches"),
    )


def test_everything_is_there_at_a_glance() -> None:
    """State, round and how full it is, losses, speed, share, oracles and the last round."""
    result = RoundResult(StateName(7, 1, "a" * 64), "", 1000, ("other",), 0.61)
    view = View(0.0, (oracle("me", 90.0, reach="relayed"), oracle("other", 300.0)))
    assert describe(status(result), view, "me") == {
        "state": "training",
        "doing": "stepping 3 of 8 micro-batches",
        "round": "7",
        "round full": "47 %",
        "loss": "5.5000",
        "held-out": "6.0000 (2.500 bits/byte)",
        "tokens/s": "100",
        "share": "25 %",
        "oracles": "2",
        "reach": "relayed",
        "last round": "averaged with 1 other in 0.6 s",
    }


@pytest.mark.parametrize(
    ("until", "words"),
    [
        (None, "paused (`dupt-peer resume` has it go on)"),
        (1e9, f"paused until {CLOCK} (`dupt-peer resume` has it go on now)"),
    ],
)
def test_a_pause_says_how_it_ends(until: float | None, words: str) -> None:
    """By hand, or by itself at a time of day."""
    paused = replace(status(None), state="paused", paused_until=until)
    assert describe(paused, View(0.0, ()), "me")["state"] == words


def test_a_pause_is_one_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    """However long it lasts; the end of it is a line again."""
    log, view = Log(), View(0.0, ())
    paused = replace(status(None), state="paused")
    for shown in (status(None), paused, paused, paused, status(None)):
        log.show(shown, view, "me")
    states = [line.split("  ")[1] for line in capsys.readouterr().err.splitlines()]
    assert [state.split()[1] for state in states] == ["training", "paused", "training"]


def test_a_failed_round_says_why_and_that_nothing_is_lost() -> None:
    """The reason is words, and the contribution is kept."""
    failed = RoundResult(None, "peer_lost", 0, ("other",), 2.0)
    assert last_round(status(failed)) == "failed: peer lost (the contribution is kept)"
    assert last_round(status(None)) == "none yet"


def test_a_download_shows_bytes_rate_and_donors(capsys: pytest.CaptureFixture[str]) -> None:
    """How much of what, how fast, from how many; off a terminal a line now and then, and the last one."""
    half = Downloading(bytes_done=393_000_000, bytes_total=936_000_000, bytes_per_second=11.84e6, donors=4)
    assert describe_download(half) == "42 %  393 of 936 MB  11.8 MB/s  4 donors"
    log = Log()
    for _ in range(20):
        log.downloading(half)
    log.downloading(replace(half, bytes_done=936_000_000, donors=1))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) <= 2
    assert lines[-1].endswith("fetching the state: 100 %  936 of 936 MB  11.8 MB/s  1 donor")


def test_on_a_terminal_a_bar_moves_until_the_oracle_trains() -> None:
    """A bar while joining; later downloads do not replace the oracle's facts."""
    half = Downloading(bytes_done=50, bytes_total=100, bytes_per_second=1e6, donors=1)
    shown: list[object] = []
    panel = Panel(SimpleNamespace(update=shown.append))  # type: ignore[arg-type]
    panel.downloading(half)
    assert f"{'█' * 12}{'░' * 12} 50 %" in str(shown[0])
    panel.show(status(None), View(0.0, ()), "me")
    panel.downloading(half)
    assert len(shown) == 2


@pytest.mark.parametrize(("others", "words"), [(0, "alone"), (1, "with 1 other"), (3, "with 3 others")])
def test_company_is_proper_english(others: int, words: str) -> None:
    """One other, several others, or alone."""
    assert company(others) == words


def test_the_bar_has_a_fixed_width() -> None:
    """Empty, half and full bars are equally wide."""
    assert [bar(0.0).count("█"), bar(0.5).count("█"), bar(1.0).count("█")] == [0, 12, 24]
    assert {len(bar(ratio / 10)) for ratio in range(11)} == {24}


def test_the_join_line_has_an_address_that_others_can_reach() -> None:
    """Loopback is handed out only if there is nothing else, and TCP before QUIC."""
    loopback, quic, tcp = (
        "/ip4/127.0.0.1/tcp/1/p2p/Q",
        "/ip4/10.0.0.2/udp/1/quic-v1/p2p/Q",
        "/ip4/10.0.0.2/tcp/1/p2p/Q",
    )
    assert join_address((loopback, quic, tcp)) == tcp
    assert join_address((loopback, quic)) == quic
    assert join_address((loopback,)) == loopback
