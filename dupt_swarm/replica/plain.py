"""JSON and msgpack from strangers: plain values, nested no deeper than is read without harm.

hivemind's own reader of msgpack calls itself for extension types within extension types, until the stack is
used up.
"""

from __future__ import annotations

import json
from typing import Any

import msgpack


def load(data: str | bytes) -> Any:
    """What ``data`` stands for.

    Raises:
        ValueError: it is no JSON, or nested too deep.
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deep") from error


# A list takes some ninety times as much memory as the byte that says that it begins.
BYTES_MAX = 1 << 18


def unpack(data: bytes, length_max: int = BYTES_MAX) -> object:
    """The value that ``data`` stands for, in which no list has more than ``length_max`` elements.

    Raises:
        ValueError: not msgpack, an extension type, a longer list, nested deeper than msgpack reads, or longer
            than whatever is read here may be.
    """
    if len(data) > BYTES_MAX:
        raise ValueError(f"msgpack of {len(data):,} bytes")
    return msgpack.unpackb(data, ext_hook=_refuse, max_array_len=length_max)


def _refuse(code: int, data: bytes) -> object:
    raise ValueError(f"msgpack with an extension type of {len(data):,} bytes, {code}")
