"""The table of `dupt-peer status`."""

import io

from rich.console import Console

from dupt_swarm.node.view import View
from peers.status import peer_table
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


def test_a_peer_without_a_name_is_known_by_its_id() -> None:
    """The end of it, which differs between peers."""
    assert "Qm0" in shown("")
