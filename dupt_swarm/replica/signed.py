"""Messages that a peer signs with its identity: others may pass them on, and anybody may check them."""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import json
from typing import Any, Protocol

import base58
import msgpack
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)

from dupt_swarm.replica.plain import unpack

# A proposal of 256 contributions, by maker, digest and tokens, where 512 have left.
SIGNED_BYTES_MAX = 80_000
# How each key of 2048 bits with the exponent 65537 begins in OpenSSH's format, and how long all are.
KEY_BEGINNINGS, KEY_BYTES = (
    tuple(b"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ" + last for last in (b"C", b"D")),
    380,
)
# Each record that is read needs one, which takes as long as the rest of it.
IDS_KEPT_MAX = 4096
# libp2p's protobuf message of a key: its type is RSA, 294 bytes of DER follow. And its multihash: SHA-256.
RSA_BEGINNING, SHA256_BEGINNING = bytes.fromhex("080012a602"), bytes.fromhex("1220")


class Key(Protocol):
    """An identity, as hivemind has it."""

    def sign(self, data: bytes) -> bytes:
        """Base 64 of a signature that `read_signed` checks."""

    def get_public_key(self) -> Any:
        """Its ``to_bytes()`` is OpenSSH's format."""


def sign(key: Key, kind: str, content: dict[str, Any]) -> bytes:
    """``content`` (plain JSON) as a message of ``kind`` that only the owner of ``key`` can have made."""
    text = _text(kind, content)
    return bytes(msgpack.packb([text, key.get_public_key().to_bytes(), key.sign(text)]))


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
        _verify(public_key(public), text, signature)
        content = json.loads(text)
        if not isinstance(content, dict) or content.pop("kind", None) != kind or _text(kind, content) != text:
            raise ValueError("it is of another kind")
    except Exception as error:
        # cryptography has errors of its own, and JSON may be nested too deep.
        reason = error if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"a signed message is malformed: {reason}") from error
    return peer_id_of_key(public), content


@functools.lru_cache(maxsize=IDS_KEPT_MAX)
def public_key(openssh: bytes) -> RSAPublicKey:
    """An RSA key of 2048 bits in OpenSSH's format: a longer one, or one with another exponent, takes longer.

    Raises:
        ValueError: it is not such a key.
    """
    if len(openssh) != KEY_BYTES or not openssh.startswith(KEY_BEGINNINGS):
        raise ValueError("not a public key of 2048 bits")
    key = load_ssh_public_key(openssh)
    assert isinstance(key, RSAPublicKey)
    if key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) != openssh:
        # a comment after the key would give one peer many tags
        raise ValueError("not a public key in canonical form")
    return key


@functools.lru_cache(maxsize=IDS_KEPT_MAX)
def peer_id_of_key(openssh: bytes) -> str:
    """The peer id that libp2p makes of an RSA key in OpenSSH's format.

    Raises:
        ValueError: it is not such a key.
    """
    der = public_key(openssh).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    digest = hashlib.sha256(RSA_BEGINNING + der).digest()
    return base58.b58encode(SHA256_BEGINNING + digest).decode()


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


def _verify(key: RSAPublicKey, text: bytes, signature: bytes) -> None:
    padding = PSS(MGF1(SHA256()), PSS.MAX_LENGTH)
    try:
        key.verify(base64.b64decode(signature), text, padding, SHA256())
    except (InvalidSignature, ValueError) as error:  # or it is no base 64
        raise ValueError("the signature is wrong") from error


def _text(kind: str, content: dict[str, Any]) -> bytes:
    return json.dumps({**content, "kind": kind}, sort_keys=True, separators=(",", ":")).encode()
