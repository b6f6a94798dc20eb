import contextlib

import base58
import msgpack
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hivemind.proto import crypto_pb2

from dupt_swarm.replica.signed import (
    SIGNED_BYTES_MAX,
    as_text,
    from_text,
    peer_id_of,
    public_of,
    read_signed,
    sign,
)
from tests.support.signed_records import fresh_keys


@pytest.fixture(scope="module")
def keys() -> list[Ed25519PrivateKey]:
    """Of two peers."""
    return fresh_keys(2)


def test_a_peer_id_is_the_key(keys) -> None:
    """In libp2p's form: its multihash is no digest but has the key itself, as a protobuf message."""
    for key in keys:
        public = public_of(key)
        message = crypto_pb2.PublicKey(key_type=crypto_pb2.Ed25519, data=public).SerializeToString()
        assert base58.b58decode(peer_id_of(public)) == bytes([0, len(message)]) + message
        assert peer_id_of(public).startswith("12D3KooW")  # as the specification says of all of them
    assert len({peer_id_of(public_of(key)) for key in keys}) == len(keys)


def test_one_key_has_one_id(keys) -> None:
    """A key with anything around it is no key."""
    key = public_of(keys[0])
    accepted = []
    for variant in (key + b" comment", key + b" ", b"x" + key, key + b"x", key + key, key + b"\n"):
        with contextlib.suppress(ValueError):
            accepted.append((variant, peer_id_of(variant)))
    assert accepted == []


@pytest.mark.parametrize("key", [b"", b"ssh-ed25519 AAAA", bytes(31), bytes(33), bytes(64)])
def test_junk_is_no_key(key) -> None:
    """Bytes that are no public key are a ValueError."""
    with pytest.raises(ValueError, match="not a public key"):
        peer_id_of(key)


def test_forged_messages_are_refused(keys) -> None:
    """Other content, another key, another kind, junk and what is too long: a ValueError each."""
    one, two = keys
    good = sign(one, "kind", {"a": 1})
    text, public, signature = msgpack.unpackb(good)
    assert read_signed(good, "kind") == (peer_id_of(public_of(one)), {"a": 1})
    for forged in (
        [text.replace(b"1", b"2"), public, signature],
        [text, public_of(two), signature],
        [text, public, b""],
        [text, public, signature[:-1]],
        [text, public, signature + b"\0"],
        [text, public + b"\0", signature],
        [text, b"\xff" * 2000, signature],
        [text, public],
        {"text": text},
    ):
        with pytest.raises(ValueError, match=r"signed message|signature"):
            read_signed(msgpack.packb(forged), "kind")
    with pytest.raises(ValueError, match="another kind"):
        read_signed(good, "other")
    for otherwise in (b'{"a": 1,"kind":"kind"}', b'{"a":2,"a":1,"kind":"kind"}', b'{"kind":"kind","a":1}'):
        with pytest.raises(ValueError, match="malformed"):  # one content, one text
            read_signed(msgpack.packb([otherwise, public, one.sign(otherwise)]), "kind")
    with pytest.raises(ValueError, match="too long"):
        read_signed(bytes(SIGNED_BYTES_MAX + 1), "kind")


def test_as_text(keys) -> None:
    """A signed message stands in JSON as base 64, and nothing else is read as one."""
    good = sign(keys[0], "kind", {})
    assert from_text(as_text(good)) == good
    with pytest.raises(ValueError, match="malformed"):
        from_text("not base 64")
