"""Short names of what peers tell each other they know, so that nothing is sent twice."""

from __future__ import annotations

import functools
import hashlib

NAME_BYTES = 8
NAMES_MAX = 8192  # are remembered, as the same ones come again and again


@functools.lru_cache(maxsize=NAMES_MAX)
def short_name(data: bytes) -> bytes:
    """Of an owner tag, or a peer id."""
    return hashlib.sha256(data).digest()[:NAME_BYTES]
