"""Messages of hivemind's DHT, looked through before hivemind reads them: peers meet, and store nothing."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from hivemind.proto import dht_pb2

from dupt_swarm.replica.signed import ID_BEGINNING, ID_BYTES


def place_of(peer_id: bytes) -> bytes:
    """Where a peer stands in the DHT, its node id there (20 bytes): nobody chooses a place beside a key."""
    return hashlib.sha1(peer_id, usedforsecurity=False).digest()


def _stands_at(place: bytes, peer_id: bytes) -> bool:
    """Whether this is the place of a peer whose id is an Ed25519 key, as all members' are."""
    is_key = len(peer_id) == ID_BYTES and peer_id.startswith(ID_BEGINNING)
    return is_key and place == place_of(peer_id)


KEY_BYTES = 20
FOUND_MAX = 16  # keys to look up at once: hivemind asks for no more
NEIGHBOURS_MAX = 20  # hivemind's `bucket_size`: so many are told


def check_dht_message(message: Any, sender: bytes, refused: Counter[str]) -> None:
    """Take out of a message of the DHT what hivemind would trip over; ``refused`` counts that.

    Args:
        message: changed in place; those of other services are left alone.
        sender: peer id of who sent it.
        refused: by reason, see `REFUSED_MESSAGES`.

    Raises:
        ValueError: the whole message is of no use, as each is that is to store something.
    """
    if hasattr(message, "peer") and message.peer.node_id:
        _check_place(message, sender, refused)
    if isinstance(message, dht_pb2.StoreRequest):
        raise ValueError("nothing is stored in this DHT")
    if isinstance(message, dht_pb2.FindRequest):
        if len(message.keys) > FOUND_MAX or any(len(key) != KEY_BYTES for key in message.keys):
            raise ValueError("too many DHT keys, or one of another length")
    elif isinstance(message, dht_pb2.FindResponse):
        if len(message.results) > FOUND_MAX:
            raise ValueError(f"an answer of {len(message.results):,} results")
        for result in message.results:
            _mend_result(result, refused)


def _check_place(message: Any, sender: bytes, refused: Counter[str]) -> None:
    """A node whose DHT id is not that of its peer id comes into no routing table."""
    if not _stands_at(message.peer.node_id, sender):
        refused["place"] += 1
        message.ClearField("peer")


def _mend_result(result: dht_pb2.FindResult, refused: Counter[str]) -> None:
    """Leave neighbours alone in it: whoever is honest has found no value."""
    if result.type != dht_pb2.NOT_FOUND or result.value:
        refused["form"] += 1
    neighbours = list(zip(result.nearest_node_ids[:NEIGHBOURS_MAX], result.nearest_peer_ids, strict=False))
    believed = [each for each in neighbours if _stands_at(*each)]
    refused.update(+Counter(place=len(neighbours) - len(believed)))
    result.Clear()
    result.type = dht_pb2.NOT_FOUND
    result.nearest_node_ids[:] = [place for place, _ in believed]
    result.nearest_peer_ids[:] = [peer for _, peer in believed]
