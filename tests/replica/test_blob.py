import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupt_swarm.replica import blob as blob_module
from dupt_swarm.replica.blob import CHUNK_BYTES, Assembly, Blob, Index

SECTIONS = st.lists(st.binary(max_size=100), max_size=5)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 16 bytes, so that small blobs have many."""
    monkeypatch.setattr(blob_module, "CHUNK_BYTES", 16)


def cut(data: bytes) -> list[bytes]:
    return [data[start : start + 16] for start in range(0, len(data), 16)]


def altered(index: Index, **changes: object) -> bytes:
    """The canonical bytes of an index with some keys of its JSON replaced."""
    return json.dumps(json.loads(index.data) | changes, sort_keys=True, separators=(",", ":")).encode()


@pytest.fixture
def blob() -> Blob:
    return Blob.build({"kind": "test"}, [bytes(range(40)), b"abc"])


def test_chunks_fit_a_message() -> None:
    """A chunk stays well under the 4 MiB that a libp2p message may have."""
    assert CHUNK_BYTES <= 2 << 20


@given(SECTIONS, st.randoms())
def test_any_sections_round_trip(sections: list[bytes], random) -> None:
    """Any sections arrive as they were, with their chunks in any order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blob_module, "CHUNK_BYTES", 16)
        sent = Blob.build({"kind": "any"}, sections)
        assembly = Assembly(Index.parse(sent.index.data))
        numbers = list(assembly.missing)
        assert len(numbers) == sum(len(cut(section)) for section in sections)
        random.shuffle(numbers)
        for number in numbers:
            assembly.put(number, bytes(sent.chunk(number)))
        arrived = assembly.finish()
    assert [bytes(section) for section in arrived.sections] == sections
    assert arrived.digest == sent.digest


@given(SECTIONS, SECTIONS)
def test_digest_stands_for_the_content(first: list[bytes], second: list[bytes]) -> None:
    """Two blobs have the same digest exactly when their sections are the same, borders included."""
    same = Blob.build({}, first).digest == Blob.build({}, second).digest
    assert same == (first == second)


def test_digest_covers_the_header() -> None:
    """The digest changes with the header, and does not depend on the order of its keys."""
    digest = Blob.build({"a": 1, "b": 2}, [b"x"]).digest
    assert Blob.build({"b": 2, "a": 1}, [b"x"]).digest == digest
    assert Blob.build({"a": 1, "b": 3}, [b"x"]).digest != digest


def test_chunks(blob: Blob) -> None:
    """Chunks are cut within each section, and the index has their hashes and sizes."""
    expected = [*cut(bytes(range(40))), b"abc"]
    assert [bytes(blob.chunk(number)) for number in range(4)] == expected
    assert blob.index.chunk_sizes == [16, 16, 8, 3]
    assert list(blob.index.chunk_sha256) == [hashlib.sha256(chunk).digest() for chunk in expected]
    assert blob.digest == hashlib.sha256(blob.index.data).hexdigest()


def test_an_index_has_few_sections() -> None:
    """A million that are empty need no chunk, and would take memory all the same."""
    with pytest.raises(ValueError, match="a blob index of 65 sections"):
        Index.parse(Index({}, (0,) * 65, ()).data)


def test_a_chunk_does_not_fit_into_a_shorter_place(blob: Blob) -> None:
    """An index may name the hash of a known chunk where it has a shorter one: that stays missing."""
    *others, _ = blob.index.chunk_sha256
    assembly = Assembly(Index({}, blob.index.sizes, (*others, others[0])))
    assembly.reuse(blob)
    assert assembly.missing == {3}


@pytest.mark.parametrize("number", [-1, 4, 1 << 70])
def test_no_such_chunk(blob: Blob, number: int) -> None:
    """A chunk number out of range is an IndexError, also below zero."""
    with pytest.raises(IndexError):
        blob.chunk(number)


@pytest.mark.parametrize("data", [b"", b"abd", b"abcd", bytes(16)])
def test_wrong_chunk_is_refused(blob: Blob, data: bytes) -> None:
    """A chunk with other bytes is refused, stays missing, and can still be got elsewhere."""
    assembly = Assembly(blob.index)
    with pytest.raises(ValueError, match="chunk 3 does not have the hash"):
        assembly.put(3, data)
    assert assembly.missing == {0, 1, 2, 3}
    assembly.put(3, b"abc")
    assert assembly.missing == {0, 1, 2}


def test_chunk_in_the_wrong_place_is_refused(blob: Blob) -> None:
    """A genuine chunk does not pass for another one."""
    with pytest.raises(ValueError, match="does not have the hash"):
        Assembly(blob.index).put(1, bytes(blob.chunk(0)))


def test_index_that_lies_about_sizes() -> None:
    """A chunk whose hash is right but whose length is not that of the index is refused."""
    index = Index({}, (16,), (hashlib.sha256(b"short").digest(),))
    with pytest.raises(ValueError, match="different structures"):
        Assembly(index).put(0, b"short")


def test_index_round_trip(blob: Blob) -> None:
    """An index read from its canonical bytes is the index."""
    index = Index.parse(blob.index.data)
    assert index == blob.index
    assert index.digest == blob.digest


@pytest.mark.parametrize(
    "changes",
    [
        {"sizes": [40]},
        {"sizes": [40, 3, 3]},
        {"sizes": [40, 16 + 3]},
        {"sizes": [1 << 60, 3]},
        {"sizes": [40, -3]},
        {"sizes": [40, 3, -3]},
        {"sizes": [40.0, 3]},
        {"sizes": ["40", 3]},
        {"sizes": [float("inf"), 3]},
        {"sizes": None},
        {"chunks": []},
        {"chunks": ["00" * 32] * 5},
        {"chunks": ["zz"] * 4},
        {"chunks": [1, 2, 3, 4]},
        {"header": [["kind", "test"]]},
        {"header": None},
        {"more": 1},
    ],
)
def test_wrong_index_is_refused(blob: Blob, changes: dict) -> None:
    """An index with wrong counts, types or additional keys is refused."""
    with pytest.raises(ValueError, match="blob index"):
        Index.parse(altered(blob.index, **changes))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b"[" * 200_000,
        b'{"sizes":' + b"9" * 10_000,
        b'{"chunks":[],"header":{"a":' + b"[" * 200_000,
    ],
    ids=range(9),
)
def test_junk_is_no_index(data: bytes) -> None:
    """Whatever bytes arrive, the answer is a ValueError."""
    with pytest.raises(ValueError, match="not a blob index"):
        Index.parse(data)


def test_index_must_be_canonical(blob: Blob) -> None:
    """The same index with other white space or key order is refused: one content, one digest."""
    tree = json.loads(blob.index.data)
    spaced = json.dumps(tree, sort_keys=True).encode()
    reordered = json.dumps(dict(reversed(tree.items())), separators=(",", ":")).encode()
    upper = blob.index.data.replace(b'["', b'["' + b"\xc2\xa0")
    for data in (spaced, reordered, upper, blob.index.data + b"\n"):
        with pytest.raises(ValueError, match="blob index"):
            Index.parse(data)
