"""The table of `dupt-peer status`."""

import io
from collections.abc import Callable

from rich.console import Console

from dupt_swarm.node.record import EvaluationRecord, SampleRecord
from dupt_swarm.node.view import Peer, View
from peers.status import peer_table, sample_lines
from tests.support.screen import oracle


def shown(*names: str) -> str:
    written = io.StringIO()
    console = Console(file=written, width=200, force_terminal=False)
    view = View(0.0, tuple(oracle(f"Qm{number}", 100.0, name=name) for number, name in enumerate(names)))
    console.print(peer_table(view))
    return written.getvalue()


def test_a_strangers_name_stays_a_name() -> None:
    """Neither escapes nor rich's markup in it do anything, and it keeps to its line."""
    table = shown("\x1b[2J\x9b31mevil\u202e", "[red]bracket[/]", "two\nlines\r", "Zoë")
    assert not set("\x1b\x9b\u202e\r") & set(table)
    assert "�[2J�31mevil�" in table
    assert "[red]bracket[/]" in table
    assert "two lines" in table
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


def test_a_peer_without_a_name_is_known_by_its_id() -> None:
    """The end of it, which differs between peers."""
    assert "Qm0" in shown("")
