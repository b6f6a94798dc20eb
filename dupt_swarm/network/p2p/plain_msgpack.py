"""msgpack from strangers: plain values of limited depth, and no extension types.

hivemind's own reader calls itself for extension types within extension types, until the stack is used up.
"""

from __future__ import annotations

import msgpack

DEPTH_MAX = 8
PLAIN = (type(None), bool, int, float, str, bytes, list, dict)


def unpack(data: bytes) -> object:
    """The value that ``data`` stands for.

    Raises:
        ValueError: not msgpack, an extension type, or lists and dictionaries nested deeper than `DEPTH_MAX`.
    """
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


def unpack_extension(data: bytes, code: int) -> bytes:
    """What is in the extension type ``code`` that ``data`` is; nothing within is looked at.

    Raises:
        ValueError: ``data`` is something else.
    """
    value = msgpack.unpackb(data)
    if not isinstance(value, msgpack.ExtType) or value.code != code:
        raise ValueError(f"not msgpack's extension type {code:#x}")
    return bytes(value.data)
