import contextlib

import msgpack
import pytest
from hivemind.p2p import PeerID
from hivemind.proto import crypto_pb2
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.replica.signed import SIGNED_BYTES_MAX, as_text, from_text, peer_id_of_key, read_signed, sign


@pytest.fixture(scope="module")
def keys() -> list[RSAPrivateKey]:
    """Of two peers."""
    return [RSAPrivateKey() for _ in range(2)]


def public_of(key: RSAPrivateKey) -> bytes:
    return bytes(key.get_public_key().to_bytes())


def test_a_key_proves_the_peer_id(keys) -> None:
    """The peer id derived from the public key is the one that libp2p derives from the same key."""
    for key in keys:
        identity = crypto_pb2.PrivateKey(key_type=crypto_pb2.RSA, data=key.to_bytes()).SerializeToString()
        assert peer_id_of_key(public_of(key)) == PeerID.from_identity(identity).to_base58()
    assert len({peer_id_of_key(public_of(key)) for key in keys}) == len(keys)


def test_one_key_has_one_id(keys) -> None:
    """A key with a comment after it, or with anything around it, is no key."""
    key = public_of(keys[0])
    accepted = []
    for variant in (key + b" comment", key + b" ", b"x" + key, key + b"x", key + key, key + b"\n"):
        with contextlib.suppress(ValueError):
            accepted.append((variant, peer_id_of_key(variant)))
    assert accepted == []


@pytest.mark.parametrize("key", [b"", b"ssh-rsa AAAA", b"ssh-ed25519 AAAA", b"x"])
def test_junk_is_no_key(key) -> None:
    """Bytes that are no public key are a ValueError."""
    with pytest.raises(ValueError, match="not a public key"):
        peer_id_of_key(key)


def test_forged_messages_are_refused(keys) -> None:
    """Other content, another key, another kind, junk and what is too long: a ValueError each."""
    one, two = keys
    good = sign(one, "kind", {"a": 1})
    text, public, signature = msgpack.unpackb(good)
    assert read_signed(good, "kind") == (peer_id_of_key(public_of(one)), {"a": 1})
    for forged in (
        [text.replace(b"1", b"2"), public, signature],
        [text, public_of(two), signature],
        [text, public, b""],
        [text, public, b"not base 64"],
        [text, public + b" comment", signature],
        [text, b"\xff" * 2000, signature],
        [text, public],
        {"text": text},
    ):
        with pytest.raises(ValueError, match=r"signed message|signature|canonical"):
            read_signed(msgpack.packb(forged), "kind")
    with pytest.raises(ValueError, match="another kind"):
        read_signed(good, "other")
    with pytest.raises(ValueError, match="too long"):
        read_signed(bytes(SIGNED_BYTES_MAX + 1), "kind")


def test_as_text(keys) -> None:
    """A signed message stands in JSON as base 64, and nothing else is read as one."""
    good = sign(keys[0], "kind", {})
    assert from_text(as_text(good)) == good
    with pytest.raises(ValueError, match="malformed"):
        from_text("not base 64")
