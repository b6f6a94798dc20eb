"""The table of `dupt-peer status`."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console
from rich.table import Table

from dupt_swarm.node.reasons import REFUSED_MESSAGES, in_order
from dupt_swarm.node.record import EvaluationRecord, SampleRecord
from dupt_swarm.node.view import Peer, View
from peers.screen.table import PIPE_WIDTH
from peers.status import cost_table, peer_table, refusal_lines, sample_lines
from tests.support.costs import cost_fields
from tests.support.screen import oracle


def printed(table: Table, width: int = 200) -> str:
    written = io.StringIO()
    Console(file=written, width=width, force_terminal=False).print(table)
    return written.getvalue()


def shown(*names: str) -> str:
    view = View(0.0, tuple(oracle(f"Qm{number}", 100.0, name=name) for number, name in enumerate(names)))
    return printed(peer_table(view))


def test_a_strangers_name_stays_a_name() -> None:
    """Neither escapes nor rich's markup in it do anything, and it keeps to its line."""
    table = shown("\x1b[2J\x9b31mevil\u202e", "[red]bracket[/]", "two\nlines\r", "Zoë")
    assert not set("\x1b\x9b\u202e\r") & set(table)
    assert "�[2J�31mevil�" in table
    assert "[red]bracket[/]" in table
    assert "two�lines�" in table
    assert "Zoë" in table
    assert len(table.splitlines()) == 5


def test_what_the_model_says_keeps_to_its_line(make_peer: Callable[..., Peer]) -> None:
    """It is told as generated, with round and evaluator, and nothing in it does anything."""
    assert sample_lines(View(0.0, (oracle("Qm0", 100.0),))) == []
    sample = SampleRecord(prompt="Once \x1b[2J", text="upon\n\r a\u202e [red]time[/] 👍\x07")
    evaluation = EvaluationRecord(
        dataset="news", bits_per_byte=1.0, loss_nats=2.0, round=0, time=0.0, sample=sample
    )
    judge = make_peer(role="evaluator", name="\x9b31meve", evaluation=evaluation)
    empty, heading, text = sample_lines(View(0.0, (judge,)))
    assert (empty, heading) == ("", "the model at round 0, asked by �31meve:")
    assert text == "  generated: Once �[2J⟶upon   a� [red]time[/] 👍�"


def test_an_evaluator_shows_what_it_has_measured(make_peer: Callable[..., Peer]) -> None:
    """In the column in which oracles show what they have measured of themselves."""
    evaluation = EvaluationRecord(dataset="x", loss_nats=2.0, accuracy=0.5, round=0, time=0.0)
    peers = (make_peer("judge", role="evaluator", evaluation=evaluation), make_peer("a", heldout_loss=3.0))
    judge, own = (line.split() for line in printed(peer_table(View(0.0, peers))).splitlines()[1:])
    assert judge[-3:-1] == ["2.0000", "50.0%"]
    assert own[-2] == "3.0000"


def test_what_was_refused(make_peer: Callable[..., Peer]) -> None:
    """A line for each kind, the most frequent reason first; nothing where nothing was refused."""
    assert refusal_lines(View(0.0, (make_peer(),))) == []
    counts = in_order({"rate": 3, "form": 1200}, REFUSED_MESSAGES)
    assert refusal_lines(View(0.0, (make_peer(refused=counts),))) == [
        "",
        "messages refused since each peer started: form 1,200, rate 3",
    ]


def test_a_peer_that_is_left_out(make_peer: Callable[..., Peer]) -> None:
    """By name and by how many, so that one peer's word is seen to be one."""
    seen = View(0.0, (make_peer("a", exposed=("QmLiar",)), make_peer("b")))
    assert refusal_lines(seen) == [
        "",
        "left out for good, as it has contradicted itself: QmLiar (by 1 of 2 peers)",
    ]


def test_a_peer_without_a_name_is_known_by_its_id() -> None:
    """The end of it, which differs between peers."""
    assert "Qm0" in shown("")


def test_what_rounds_cost_has_a_table_of_its_own() -> None:
    """A row for each oracle that has ended a round, a dash for what it does not know; it fits into a pipe."""
    known = oracle("Qm0", 100.0, name="ada", **cost_fields())
    paused = oracle(
        "Qm1", 100.0, name="\x1b[2J[red]bob", **cost_fields(utilization=None, round_waiting_seconds=None)
    )
    lines = printed(cost_table(View(0.0, (known, paused, oracle("Qm2", 100.0)))), PIPE_WIDTH).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "oracle sent in last round received waited waited in all utilization",
        "ada 1.03 MB 4.12 MB 0.3 s 12.0 s 97 %",
        "�[2J[red]bob 1.03 MB 4.12 MB – 12.0 s –",
    ]


def test_the_most_that_a_record_may_claim_fits_into_the_table() -> None:
    """Whoever claims it stays in its row."""
    most = cost_fields(
        round_sent_bytes=(1 << 62) - 1,
        round_received_bytes=(1 << 62) - 1,
        round_waiting_seconds=1e9,
        waiting_seconds=1e9,
    )
    view = View(0.0, (oracle("Qm0", 100.0, name="W" * 40, **most),))
    assert len(printed(cost_table(view), PIPE_WIDTH).splitlines()) == 2


@pytest.mark.parametrize(
    ("width", "missing"),
    [
        (120, set()),
        (92, {"digest"}),
        (80, {"digest", "reach"}),
        (60, {"digest", "reach", "tokens/s", "role"}),
    ],
)
def test_a_narrow_terminal_has_fewer_columns(
    width: int, missing: set[str], make_peer: Callable[..., Peer]
) -> None:
    """Those that stay are whole: half a number would be another one."""
    figures = {"tokens_total": 243_975_168, "loss": 4.1234, "heldout_loss": 4.2345, "round": 1234}
    peers = (
        make_peer("QmFirst", role="bootstrap", state="serving", name="first", reach="direct", round=7),
        make_peer(
            "QmAda", state="averaging", name="ada", reach="relayed", tokens_per_second=12_345.0, **figures
        ),
    )
    table = printed(peer_table(View(0.0, peers), width), width)
    headings = {"peer", "role", "reach", "state", "round", "tokens", "tokens/s", "loss", "held-out", "digest"}
    assert set(table.splitlines()[0].split()) == headings - missing
    assert len(table.splitlines()) == 3
    assert {"averaging", "243,975,168", "1234", "4.1234", "4.2345"} <= set(table.split())
    assert ("bootstrap" in table) == ("role" not in missing)
    [first] = [line.split() for line in table.splitlines() if "first" in line]
    assert "0" not in first, "who does not train has no speed"


def test_a_long_name_costs_no_column(make_peer: Callable[..., Peer]) -> None:
    """It takes several lines."""
    named = View(0.0, (make_peer("QmAda", name="a name of many words, and of 40 letters"),))
    assert "direct" in printed(peer_table(named, 100), 100)
    assert len(printed(peer_table(named, 100), 100).splitlines()) > 2
