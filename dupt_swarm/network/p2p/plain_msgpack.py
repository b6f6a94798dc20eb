"""msgpack from strangers: plain values, and no extension types.

hivemind's own reader calls itself for extension types within extension types, until the stack is used up.
"""

from __future__ import annotations

import msgpack

# A list takes some ninety times as much memory as the byte that says that it begins.
BYTES_MAX = 1 << 18


def unpack(data: bytes) -> object:
    """The value that ``data`` stands for.

    Raises:
        ValueError: not msgpack, an extension type, nested deeper than msgpack reads, or longer than whatever
            is read here may be.
    """
    if len(data) > BYTES_MAX:
        raise ValueError(f"msgpack of {len(data):,} bytes")
    return msgpack.unpackb(data, ext_hook=_refuse)


def _refuse(code: int, data: bytes) -> object:
    raise ValueError(f"msgpack with an extension type of {len(data):,} bytes, {code}")
