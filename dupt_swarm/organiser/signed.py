"""Content with its signature (Ed25519, RFC 8032), bound to a kind: none can pass for one of another."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNATURE_BYTES = 64


def sign(key: Ed25519PrivateKey, kind: str, content: bytes) -> bytes:
    """``content`` after a signature of 64 bytes that counts for this ``kind`` only."""
    return key.sign(_bound(kind, content)) + content


def read(data: bytes, kind: str, public_key: bytes) -> bytes:
    """The content that the owner of ``public_key`` (32 bytes) signed as one of ``kind``.

    Raises:
        ValueError: nobody did, or another, or as one of another kind.
    """
    signature, content = data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:]
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, _bound(kind, content))
    except InvalidSignature as error:
        raise ValueError("the signature is wrong") from error
    return content


def _bound(kind: str, content: bytes) -> bytes:
    return f"dupt_swarm {kind}\0".encode() + content
