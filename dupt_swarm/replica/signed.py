"""Messages that a peer signs with its identity: others may pass them on, and anybody may check them."""

from __future__ import annotations

import base64
import binascii
import functools
import json
from typing import Any

import base58
import msgpack
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dupt_swarm.replica.plain import unpack

# A proposal of 256 contributions, by maker, digest and tokens, where 512 have left.
SIGNED_BYTES_MAX = 80_000
PUBLIC_BYTES = 32
# What libp2p writes before an Ed25519 key to make a peer id of it: multihash "identity", 36 bytes; then its
# protobuf message of a key, whose type is Ed25519, 32 bytes.
ID_BEGINNING = bytes.fromhex("0024") + bytes.fromhex("08011220")
ID_BYTES = len(ID_BEGINNING) + PUBLIC_BYTES
IDS_KEPT_MAX = 4096  # each message that is read needs one


def sign(key: Ed25519PrivateKey, kind: str, content: dict[str, Any]) -> bytes:
    """``content`` (plain JSON) as a message of ``kind`` that only the owner of ``key`` can have made."""
    text = _text(kind, content)
    return bytes(msgpack.packb([text, public_of(key), key.sign(text)]))


def read_signed(data: bytes, kind: str) -> tuple[str, dict[str, Any]]:
    """The peer id of who signed ``data``, and what.

    Raises:
        ValueError: it is malformed, too long, of another kind, or the signature is wrong.
    """
    if len(data) > SIGNED_BYTES_MAX:
        raise ValueError("a signed message is too long")
    fields = unpack(data)
    if not isinstance(fields, list) or [type(each) for each in fields] != [bytes, bytes, bytes]:
        raise ValueError("a signed message is malformed")
    text, public, signature = fields
    try:
        _verify(public, text, signature)
        content = json.loads(text)
        if not isinstance(content, dict) or content.pop("kind", None) != kind or _text(kind, content) != text:
            raise ValueError("it is of another kind")
    except Exception as error:
        # cryptography has errors of its own, and JSON may be nested too deep.
        reason = error if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"a signed message is malformed: {reason}") from error
    return peer_id_of(public), content


def public_of(key: Ed25519PrivateKey) -> bytes:
    """Its public key (32 bytes, RFC 8032)."""
    return key.public_key().public_bytes_raw()


@functools.lru_cache(maxsize=IDS_KEPT_MAX)
def peer_id_of(public: bytes) -> str:
    """The peer id that libp2p makes of a public Ed25519 key: the key itself, in base 58.

    Raises:
        ValueError: it is not such a key.
    """
    if len(public) != PUBLIC_BYTES:
        raise ValueError(f"not a public key of {PUBLIC_BYTES} bytes")
    return base58.b58encode(ID_BEGINNING + public).decode()


def as_text(data: bytes) -> str:
    """A signed message as it stands in JSON: base 64."""
    return base64.b64encode(data).decode()


def from_text(text: str) -> bytes:
    """The inverse of `as_text`.

    Raises:
        ValueError: it is no base 64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("a signed message is malformed") from error


def _verify(public: bytes, text: bytes, signature: bytes) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except InvalidSignature as error:
        raise ValueError("the signature is wrong") from error


def _text(kind: str, content: dict[str, Any]) -> bytes:
    return json.dumps({**content, "kind": kind}, sort_keys=True, separators=(",", ":")).encode()
