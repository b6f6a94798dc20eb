"""msgpack from strangers: plain values of limited depth, and no extension types.

hivemind's own reader calls itself for extension types within extension types, until the stack is used up.
"""

from __future__ import annotations

import msgpack

DEPTH_MAX = 8
# A list takes some ninety times as much memory as the byte that says that it begins.
BYTES_MAX = 1 << 18
PLAIN = (type(None), bool, int, float, str, bytes, list, dict)


def unpack(data: bytes) -> object:
    """The value that ``data`` stands for.

    Raises:
        ValueError: not msgpack, an extension type, lists and dictionaries nested deeper than `DEPTH_MAX`, or
            longer than whatever is read here may be.
    """
    if len(data) > BYTES_MAX:
        raise ValueError(f"msgpack of {len(data):,} bytes")
    value = msgpack.unpackb(data)
    level = [value]
    for _ in range(DEPTH_MAX):
        if not all(type(each) in PLAIN for each in level):
            raise ValueError("msgpack with an extension type")
        level = [
            inner
            for each in level
            if isinstance(each, list | dict)
            for inner in (each if isinstance(each, list) else each.values())
        ]
        if not level:
            return value
    raise ValueError(f"msgpack nested more than {DEPTH_MAX} deep")
