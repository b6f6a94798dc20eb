"""The addresses to join a swarm by: of a peer's own, or of those that a monitor was given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dupt_swarm.node.addresses import Address, worth_telling
from dupt_swarm.node.view import View

ADDRESSES_MAX = 3


def own_address(addresses: Iterable[str]) -> str:
    """Of a peer's own addresses, each with its id, the one that most others can reach."""
    every = list(addresses)
    return str(Address(worth_telling(every)[0], Address.parse(every[0]).peer_id))


def join_addresses(initial_peers: Sequence[str], view: View) -> list[str]:
    """An address of each initial peer, at most `ADDRESSES_MAX`; loopback ones only if there are no others.

    The records add addresses of the peers that the operator named, but no other peers: a stranger's
    record must not decide whom newcomers call first.
    """
    told = {peer.peer_id: peer.record.addresses for peer in view.peers}
    given: dict[str, list[str]] = {}
    for address in map(Address.parse, initial_peers):
        if address.peer_id:
            given.setdefault(address.peer_id, []).append(address.way)
    found = []
    for peer_id, ways in given.items():
        best = worth_telling((*ways, *told.get(peer_id, ())))
        # What the operator gave is known to work, if it is as good as any.
        found += [Address(way, peer_id) for way in [*(way for way in ways if way in best), *best][:1]]
    others = [address for address in found if not address.loopback]
    return list(map(str, (others or found)[:ADDRESSES_MAX]))
