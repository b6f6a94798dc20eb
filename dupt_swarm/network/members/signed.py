"""Messages that a peer signs with its identity, so that others may pass them on."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

import msgpack
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.network.members.identity import peer_id_of_key, public_key
from dupt_swarm.network.p2p.plain import unpack

# 256 members' statements by their digests; the longest is a roll.
SIGNED_BYTES_MAX = 24_000


def sign(key: RSAPrivateKey, kind: str, content: dict[str, Any]) -> bytes:
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
        if not public_key(public).verify(text, signature):
            raise ValueError("the signature is wrong")
        content = json.loads(text)
        if not isinstance(content, dict) or content.pop("kind", None) != kind or _text(kind, content) != text:
            raise ValueError("it is of another kind")
    except Exception as error:
        # cryptography has errors of its own, and JSON may be nested too deep.
        raise ValueError(f"a signed message is malformed: {error!r}") from error
    return peer_id_of_key(public), content


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


def _text(kind: str, content: dict[str, Any]) -> bytes:
    return json.dumps({**content, "kind": kind}, sort_keys=True, separators=(",", ":")).encode()
