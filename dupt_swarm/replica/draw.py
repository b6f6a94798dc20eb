"""Drawing peers: an order that everybody gets alike, and nobody chooses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def drawn(peers: Iterable[str], seed: str) -> list[str]:
    """Ids of peers in the order that follows from ``seed``: the digest of something that is new each time.

    So nobody can make a key that comes first more often than others.
    """
    return sorted(peers, key=lambda peer: hashlib.sha256(f"{seed} {peer}".encode()).digest())
