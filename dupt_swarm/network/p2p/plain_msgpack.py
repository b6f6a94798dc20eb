"""msgpack from strangers: plain values, and no extension types.

hivemind's own reader calls itself for extension types within extension types, until the stack is used up.
"""

from __future__ import annotations

from itertools import pairwise

import msgpack

# A list takes some ninety times as much memory as the byte that says that it begins.
BYTES_MAX = 1 << 18
SHORT_LIST = 0x90  # begins a list of less than 16, with its length


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


def unpack_flat(data: bytes) -> object:
    """The value that ``data`` stands for, and no list or dictionary of anything, which is not even built.

    Raises:
        ValueError: something else.
    """
    return msgpack.unpackb(data, max_array_len=0, max_map_len=0)


def split_list(data: bytes, fields: int, most: int) -> list[bytes]:
    """What is in the list that is the last of the ``fields`` of a list, each as it travels: none is built.

    Raises:
        ValueError: ``data`` is no such list, or more than ``most`` are in it.
    """
    reader = msgpack.Unpacker(max_buffer_size=max(1, len(data)))
    reader.feed(data)
    try:
        if reader.read_array_header() != fields:
            raise ValueError(f"not {fields} fields of msgpack")
        for _ in range(fields - 1):
            reader.skip()
        count = reader.read_array_header()
        if count > most:
            raise ValueError(f"a list of {count:,} in msgpack")
        ends = [reader.tell()]
        for _ in range(count):
            reader.skip()
            ends.append(reader.tell())
    except msgpack.OutOfData as error:
        raise ValueError("msgpack that ends too early") from error
    if ends[-1] != len(data):
        raise ValueError("msgpack with something after it")
    return [data[start:end] for start, end in pairwise(ends)]


def unpack_row(data: bytes, fields: int) -> list[object]:
    """The list of so many flat values that ``data`` stands for.

    Raises:
        ValueError: it is something else, of which nothing is built.
    """
    if not data or data[0] != SHORT_LIST | fields:
        raise ValueError(f"not a row of {fields} values")
    reader = msgpack.Unpacker(max_buffer_size=len(data), max_array_len=0, max_map_len=0)
    reader.feed(data[1:])
    values = list(reader)
    if len(values) != fields:
        raise ValueError(f"not a row of {fields} values")
    return values


def unpack_extension(data: bytes, code: int) -> bytes:
    """What is in the extension type ``code`` that ``data`` is; nothing within is looked at.

    Raises:
        ValueError: ``data`` is something else.
    """
    value = unpack_flat(data)
    if not isinstance(value, msgpack.ExtType) or value.code != code:
        raise ValueError(f"not msgpack's extension type {code:#x}")
    return bytes(value.data)
