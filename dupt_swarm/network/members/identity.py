"""A peer's identity: one RSA key, which makes the libp2p peer id and signs the DHT records."""

from __future__ import annotations

import hashlib
from pathlib import Path

import multihash
from hivemind.dht.crypto import RSASignatureValidator
from hivemind.p2p import P2P, PeerID
from hivemind.proto import crypto_pb2
from hivemind.utils.crypto import RSAPrivateKey, RSAPublicKey

from dupt_swarm.errors import UsageError
from dupt_swarm.network.p2p.hivemind_internals import owner_in, private_key_of, public_der


def load_identity(path: Path) -> RSAPrivateKey:
    """The key at ``path``, in libp2p's format; created if there is none."""
    if not path.exists():
        P2P.generate_identity(str(path))
    try:
        der = crypto_pb2.PrivateKey.FromString(path.read_bytes()).data
        return private_key_of(der)
    except Exception as error:
        # protobuf and cryptography each have errors of their own for a damaged file
        raise UsageError(f"{path}: not an identity ({error}); remove it to get a new one") from error


def owner_tag(key: RSAPrivateKey) -> bytes:
    """The DHT subkey under which only the owner of ``key`` can store."""
    public: bytes = key.get_public_key().to_bytes()
    return bytes(RSASignatureValidator.PUBLIC_KEY_FORMAT.replace(b"_key_", public))


def is_peer_id(data: bytes) -> bool:
    """Whether these bytes can be the peer id of an RSA key: the multihash of a SHA-256."""
    return len(data) == 34 and data.startswith(b"\x12\x20")


def peer_id_of(tag: bytes) -> str:
    """The peer id that belongs to an owner tag.

    Raises:
        ValueError: it is not an owner tag.
    """
    public = owner_in(tag)
    if public is None:
        raise ValueError("not an owner tag")
    return peer_id_of_key(public)


def peer_id_of_key(public: bytes) -> str:
    """The peer id that belongs to an RSA key in OpenSSH's format.

    Raises:
        ValueError: it is not such a key.
    """
    key = RSAPublicKey.from_bytes(public)
    if key.to_bytes() != public:  # a comment after the key would give one peer many tags
        raise ValueError("not a public key in canonical form")
    message = crypto_pb2.PublicKey(key_type=crypto_pb2.RSA, data=public_der(key)).SerializeToString()
    digest = multihash.encode(hashlib.sha256(message).digest(), multihash.coerce_code("sha2-256"))
    return str(PeerID(digest).to_base58())
