"""Peer ids as bytes, and the places in the DHT that follow from them."""

from __future__ import annotations

import hashlib

RSA_PREFIX, RSA_BYTES = b"\x12\x20", 34  # the multihash of a SHA-256


def is_rsa_id(data: bytes) -> bool:
    """Whether these bytes can be the peer id of an RSA key, as all members have one."""
    return len(data) == RSA_BYTES and data.startswith(RSA_PREFIX)


def place_of(peer_id: bytes) -> bytes:
    """Where a peer stands in the DHT, its node id there (20 bytes): nobody chooses a place beside a key."""
    return hashlib.sha1(peer_id, usedforsecurity=False).digest()
