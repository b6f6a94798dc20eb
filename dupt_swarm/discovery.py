"""Finding a swarm by the addresses of some of its peers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from dupt_swarm.disk.folders import ADDRESS_BOOK_FILE, folder_of, kept_invitation
from dupt_swarm.errors import UnreachableError, UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.address_book import AddressBook
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.commands import Discover
from dupt_swarm.node.messages import Downloading
from dupt_swarm.node.node import Node
from dupt_swarm.organiser.invitation import check_invited
from dupt_swarm.settings import NodeSettings

PEERS_OF_OLD_MAX = 12  # addresses dialled when no initial peer answers


def check_some(initial_peers: Sequence[str]) -> None:
    """Refuse to look for a swarm without any address, or at each letter of a single one.

    Raises:
        UsageError: there is none, or one that is in no list.
    """
    if isinstance(initial_peers, str):
        raise UsageError(
            f"`{initial_peers}` is one address and not a list; write [ADDRESS]", setting="initial_peers"
        )
    if not initial_peers:
        raise UsageError("it takes the address of at least one peer of the swarm", setting="initial_peers")


def discover(node: Node, wish: NodeSettings, state_dir: Path) -> NodeSettings:
    """``wish`` with the swarm's manifest, and with known peers if no initial peer answers any more."""

    def ask(peers: tuple[str, ...]) -> NodeSettings:
        return replace(wish, initial_peers=peers, manifest=node.ask(Discover(peers, wish.swarm_id)))

    try:
        return ask(wish.initial_peers)
    except UnreachableError:
        for book in address_books(state_dir, wish):
            with contextlib.suppress(UnreachableError):
                return ask((*wish.initial_peers, *book.addresses[:PEERS_OF_OLD_MAX]))
        raise


def address_books(state_dir: Path, wish: NodeSettings) -> list[AddressBook]:
    """The address books of the swarm that ``wish`` means, judged by its id or its initial peers."""
    wanted = {Address.parse(address).peer_id for address in wish.initial_peers}
    paths = sorted(state_dir.glob(f"{wish.swarm_id}*/{ADDRESS_BOOK_FILE}"))
    books = map(AddressBook, paths)
    return [book for book in books if wish.swarm_id or book.peer_ids & wanted]


def invited(manifest: Manifest, wish: NodeSettings, state_dir: Path) -> NodeSettings:
    """``wish`` with the invitation that was kept when this peer came before, if it has none.

    Raises:
        AdmissionError: the swarm admits by invitation, and there is none that counts.
    """
    kept = kept_invitation(folder_of(state_dir, manifest.swarm_id, wish.role))
    wish = replace(wish, invitation=wish.invitation or kept)
    check_invited(manifest, wish.invitation)
    return wish


def observe(
    initial_peers: Sequence[str],
    settings: NodeSettings | None = None,
    on_download: Callable[[Downloading], None] = lambda _: None,
) -> tuple[Node, Manifest]:
    """Observe a swarm without joining it: nothing is published; close the node afterwards.

    Args:
        initial_peers: multiaddrs ending in ``/p2p/<peer id>``, at least one.
        settings: the swarm expected, the invitation to it, the greatest rate to receive at.
        on_download: hears how far the download of a state is, in another thread.

    Raises:
        DuptError: why it is not possible; see `errors`.
    """
    check_some(initial_peers)
    wish = replace(settings or NodeSettings("observer"), role="observer", initial_peers=tuple(initial_peers))
    node = Node(on_download)
    try:
        return node, Manifest.from_bytes(node.join(wish).manifest)
    except BaseException:
        node.close()
        raise
