"""Inputs for fuzzing: what is valid, with a few things changed, as only such comes deep into a parser."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgpack
from hypothesis import strategies as st

Tree = Any
# What has tripped parsers elsewhere: huge lengths, deep nesting, numbers that are none, halves of characters.
TOKENS = (
    *(
        b"\xff\xff\xff\xff\x0f",
        b"\xdf\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x50",
        b"\xdc\xff\xff",
        b"\xc7\xff\x40",
    ),
    *(b"\x91" * 600, b"[" * 2000, b'{"a":' * 1200, b"\xd4\xff\x00", b"\x81\x90\x01"),
    *(b"NaN", b"1e999", b"-0", b'"\\ud800"', b"\\u0000", b"9" * 5000, b"\x00", b"\xff\xfe", b"null"),
    *(b"[owner:", b"[signature:", b"]", b"ssh-rsa ", b"/p2p/", b"\n"),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["x" * 5000, "1" * 5000, "\ud800", "\x00", "NaN"]),
)
JSON_VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
# Another value of the same type comes further than one of another.
ALIKE: dict[type, Callable[[Any], st.SearchStrategy[Any]]] = {
    int: lambda number: st.sampled_from([0, -1, number ^ 1, 1 << 31, 1 << 62, (1 << 63) - 1]),
    float: lambda number: st.sampled_from([0.0, -0.0, -1.0, number * 2, 5e-324, 1e308, 1e11]),
    str: lambda text: st.sampled_from([text[1:], text + text[:1], text.upper(), text[::-1], f"{text} ", ""]),
    bytes: lambda data: st.sampled_from([data[1:], data + data[:1], data[::-1], bytes(len(data)), b""]),
}
# Stands for lists within lists, too deep for those who write JSON or msgpack: they are put there afterwards.
DEEP = "\x01deep"
NESTED = st.one_of(st.just(DEEP), st.sampled_from([20, 400]).map(lambda depth: _nested(depth)))
MSGPACK_LEAVES = st.one_of(
    LEAVES.filter(lambda leaf: leaf != "\ud800"),
    st.binary(max_size=20),
    st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=8)),
    st.sampled_from([bytes(5000), msgpack.Timestamp(1, 1), msgpack.ExtType(0x40, b"\x91" * 50)]),
)
MSGPACK_VALUES = st.recursive(
    MSGPACK_LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def _nested(depth: int) -> list[Any]:
    tree: list[Any] = []
    for _ in range(depth):
        tree = [tree]
    return tree


@st.composite
def changed_bytes(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """One of ``seeds`` with up to four places overwritten, cut out or repeated."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 4]))):
        start = draw(st.integers(0, len(data)))
        stop = min(len(data), start + draw(st.sampled_from([0, 1, 2, 8, 64, 1 << 20])))
        change = draw(st.sampled_from(["token", "bytes", "cut", "twice", "bit"]))
        if change == "token":
            data[start:stop] = draw(st.sampled_from(TOKENS))
        elif change == "bytes":
            data[start:stop] = draw(st.binary(max_size=16))
        elif change == "cut":
            del data[start:stop]
        elif change == "twice":
            data[stop:stop] = data[start:stop]
        elif start < len(data):
            data[start] ^= 1 << draw(st.integers(0, 7))
    return bytes(data)


@st.composite
def changed_tree(draw: st.DrawFn, seed: Tree, values: st.SearchStrategy[Any]) -> Tree:
    """``seed`` (lists and dictionaries) with up to three of its nodes replaced, left out or doubled."""
    tree = seed
    for _ in range(draw(st.integers(1, 3))):
        tree = _changed(draw, tree, values)
    return tree


def _changed(draw: st.DrawFn, node: Tree, values: st.SearchStrategy[Any]) -> Tree:
    alike = ALIKE.get(type(node))
    if alike is not None and draw(st.integers(0, 3)):
        return draw(alike(node))
    if not isinstance(node, dict | list | tuple) or not node or draw(st.integers(0, 9)) == 0:
        return draw(values)
    if isinstance(node, dict):
        key = draw(st.sampled_from(list(node)))
        change = draw(st.sampled_from(["deeper", "deeper", "deeper", "cut", "more"]))
        if change == "deeper":
            return {**node, key: _changed(draw, node[key], values)}
        if change == "more":
            return {**node, draw(st.text(max_size=5)): draw(values)}
        return {other: value for other, value in node.items() if other != key}
    place = draw(st.integers(0, len(node) - 1))
    before, inner, after = list(node[:place]), node[place], list(node[place + 1 :])
    change = draw(st.sampled_from(["deeper", "deeper", "deeper", "cut", "twice", "often"]))
    if change == "deeper":
        return [*before, _changed(draw, inner, values), *after]
    often = 3 if isinstance(inner, dict | list | tuple) else 300
    return [*before, *[inner] * {"cut": 0, "twice": 2, "often": often}[change], *after]


@st.composite
def json_of(draw: st.DrawFn, seed: Tree) -> bytes:
    """JSON nearly as ``seed``: changed as a tree, or as bytes."""
    if draw(st.integers(0, 2)):
        return _to_json(draw(changed_tree(seed, st.one_of(JSON_VALUES, NESTED))))
    return draw(changed_bytes([_to_json(seed)]))


@st.composite
def msgpack_of(draw: st.DrawFn, seed: Tree) -> bytes:
    """msgpack nearly as ``seed``: changed as a tree, or as bytes."""
    if draw(st.integers(0, 2)):
        return _to_msgpack(draw(changed_tree(seed, st.one_of(MSGPACK_VALUES, NESTED))))
    return draw(changed_bytes([_to_msgpack(seed)]))


def _to_json(tree: Tree) -> bytes:
    data = json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()
    return data.replace(json.dumps(DEEP).encode(), b"[" * 3000 + b"]" * 3000)


def _to_msgpack(tree: Tree) -> bytes:
    return bytes(msgpack.packb(tree)).replace(msgpack.packb(DEEP), b"\x91" * 1000 + b"\x90")
