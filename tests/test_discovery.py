"""How a swarm is found whose initial peers are gone, and entered; the node is a stand-in."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from dupt_swarm.discovery import PEERS_OF_OLD_MAX, discover, invited
from dupt_swarm.disk.folders import ADDRESS_BOOK_FILE, SwarmFolder
from dupt_swarm.errors import UnreachableError
from dupt_swarm.node.address_book import AddressBook
from dupt_swarm.node.commands import Discover
from dupt_swarm.node.view import View
from dupt_swarm.settings import NodeSettings
from tests.support.invented import MANIFEST, peer

GONE = "/ip4/192.0.2.1/tcp/1/p2p/QmGone"


class Nobody:
    """A node that reaches no peer but those at ``alive``, and remembers whom it was to ask."""

    def __init__(self, alive: str = "") -> None:
        self.alive, self.asked = alive, list[tuple[str, ...]]()

    def ask(self, command: Discover) -> bytes:
        self.asked.append(command.initial_peers)
        if self.alive not in command.initial_peers:
            raise UnreachableError(dict.fromkeys(command.initial_peers, "refused"))
        return b"the manifest"


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """The state folder of a volunteer who was in two swarms; in the first with many peers."""
    for swarm_id, names in (("one-0", ["QmGone", *(f"Qm{n:02}" for n in range(20))]), ("two-0", ["QmTwo"])):
        folder = tmp_path / swarm_id
        folder.mkdir()
        book = AddressBook(folder / ADDRESS_BOOK_FILE)
        for place, name in enumerate(names):
            addresses = (f"/ip4/8.8.{place}.8/tcp/1",)
            book.meet(View(1000.0 + place, (peer(name, addresses=addresses),)), "own")
        book.save()
    return tmp_path


def test_peers_met_before_are_asked(books: Path) -> None:
    """Those of the swarm that the initial peer was in, so many of them at most, the last ones seen first."""
    alive = "/ip4/8.8.20.8/tcp/1/p2p/Qm19"
    node: Any = Nobody(alive)
    found = discover(node, NodeSettings("oracle", initial_peers=(GONE,)), books)
    assert (found.manifest, found.initial_peers) == (b"the manifest", node.asked[-1])
    assert node.asked[0] == (GONE,)
    assert node.asked[1][:2] == (GONE, alive)
    assert len(node.asked[1]) == 1 + PEERS_OF_OLD_MAX
    assert len(node.asked) == 2


@pytest.mark.parametrize(
    ("address", "swarm_id"), [(GONE, ""), (GONE, "one-0"), ("/dns/example.org/tcp/1/p2p/QmElse", "")]
)
def test_nobody_is_led_into_another_swarm(books: Path, address: str, swarm_id: str) -> None:
    """Where the initial peers are gone, peers of a swarm that was not meant are not even asked."""
    node: Any = Nobody()
    with pytest.raises(UnreachableError) as error:
        discover(node, NodeSettings("oracle", initial_peers=(address,), swarm_id=swarm_id), books)
    assert address in str(error.value)
    assert not [asked for asked in node.asked if "QmTwo" in str(asked)]


def test_a_new_invitation_comes_before_the_one_that_was_kept(tmp_path: Path) -> None:
    """The old one may have ended; who gives none comes with it."""
    with contextlib.closing(SwarmFolder(tmp_path, MANIFEST.swarm_id, "oracle")) as folder:
        folder.save_shared(MANIFEST.canonical_bytes(), b"{}", "old")
    for given, used in (("new", "new"), ("", "old")):
        assert invited(MANIFEST, NodeSettings("oracle", invitation=given), tmp_path).invitation == used
