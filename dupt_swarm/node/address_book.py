"""The addresses of peers met before, kept in a file: a way back when every initial peer is gone."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.errors import FileError
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.view import View

PEERS_MAX = 50
OF_ONE_NETWORK = 4  # those beyond are the first to go
AWAY_SECONDS = 7 * 86400.0  # then whoever is there comes before
SAVE_SECONDS, SAVE_NEW_SECONDS = 30.0, 2.0  # how often, and when somebody new was met

logger = logging.getLogger(__name__)


class _Entry(NamedTuple):
    """When a peer was first met and last seen, by our own clock (seconds since the epoch), and where."""

    since: float
    seen: float
    addresses: tuple[str, ...]


class AddressBook:
    """Peer ids with their addresses, and when they were met.

    Voters are kept, then a few of each network, and of those the ones known longest: anybody has keys without
    end, and says of them what it likes.
    """

    def __init__(self, path: Path | None) -> None:
        """Read ``path`` if it exists and is valid; None: nothing is kept on disk."""
        self._path = path
        self._entries: dict[str, _Entry] = {}
        self._saved, self._somebody_new = 0.0, False
        if path is not None:
            self._entries = _read(path)

    @property
    def peer_ids(self) -> set[str]:
        """The peers in the book."""
        return set(self._entries)

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses, those of the peer seen last first; each ends in ``/p2p/<peer id>``."""
        newest = sorted(self._entries.values(), key=lambda entry: -entry.seen)
        return tuple(address for entry in newest for address in entry.addresses)

    def of(self, peer_ids: Iterable[str]) -> tuple[str, ...]:
        """The addresses of these peers."""
        known = [self._entries[peer_id] for peer_id in peer_ids if peer_id in self._entries]
        return tuple(address for entry in known for address in entry.addresses)

    def meet(self, view: View, own_id: str) -> None:
        """Remember the live peers that publish an address, and save now and then."""
        known = self.peer_ids
        for peer in view.peers:
            if peer.record.addresses and peer.peer_id != own_id:
                addresses = tuple(str(Address(way, peer.peer_id)) for way in peer.record.addresses)
                before = self._entries.get(peer.peer_id)
                self._entries[peer.peer_id] = _Entry(
                    before.since if before else view.time, view.time, addresses
                )
        self._entries = {each: self._entries[each] for each in self._best(view)[:PEERS_MAX]}
        self._somebody_new |= not self.peer_ids <= known
        pause = SAVE_NEW_SECONDS if self._somebody_new else SAVE_SECONDS
        if time.monotonic() - self._saved > pause:
            self.save()

    def _best(self, view: View) -> list[str]:
        """All peers, those to keep first."""
        there = view.time - AWAY_SECONDS

        def age(peer_id: str) -> tuple[bool, bool, float]:
            entry = self._entries[peer_id]
            return peer_id not in view.voters, entry.seen < there, entry.since

        networks: Counter[str] = Counter()
        crowded: dict[str, bool] = {}
        for peer_id in sorted(self._entries, key=age):
            network = Address(next(iter(self._entries[peer_id].addresses), "")).network
            networks[network] += 1
            crowded[peer_id] = peer_id not in view.voters and networks[network] > OF_ONE_NETWORK
        return sorted(crowded, key=crowded.__getitem__)

    def save(self) -> None:
        """Write the book; a disk that is full does not matter here."""
        if self._path is None or not self._entries:
            return
        self._saved, self._somebody_new = time.monotonic(), False
        tree = {peer_id: entry._asdict() for peer_id, entry in self._entries.items()}
        text = json.dumps(tree, indent=1)
        try:
            # A damaged one is an empty one; waiting for a busy disk would hold up the node's event loop.
            write_atomically(self._path, lambda file: file.write_text(text), durable=False)
        except FileError as error:
            logger.debug("the addresses of peers met are not kept: %s", error)  # checkpoints say so louder


def _read(path: Path) -> dict[str, _Entry]:
    try:
        tree = json.loads(path.read_text())
        return {
            str(peer_id): _Entry(
                float(entry["since"]), float(entry["seen"]), tuple(map(str, entry["addresses"]))
            )
            for peer_id, entry in tree.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # it is only a help; the initial peers are still there
