"""Invitations: the organiser signs one, a token hands it out, and a peer makes a credential of it.

A *token* is a bearer token: a fresh private key, and the organiser's signature over its public half, the
swarm, how many peers it admits and until when. A *credential* is the same without the private key, and with
a signature of that key over the peer's id: it is shown to everybody, and of no use to anybody else.
"""

from __future__ import annotations

import base64
import re
import struct
import time
from dataclasses import dataclass
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.errors import AdmissionError
from dupt_swarm.manifest import Manifest
from dupt_swarm.organiser.signed import SIGNATURE_BYTES, read, sign

USES_MAX = 10_000  # each peer remembers who came by an invitation
ID_BYTES = 8
KEY_BYTES = 32
TOKEN_MARK = "dupt-"  # a token never begins like an option, and is easily found where it leaked
TEXT_CHARS_MAX = 400  # of a credential; with the longest swarm id it has 300
_FIXED = struct.Struct(f">{KEY_BYTES}sIQ")
_SWARM_ID = re.compile(rb"[A-Za-z0-9-]{1,64}")
_ID = re.compile(f"[0-9a-f]{{{2 * ID_BYTES}}}")


@dataclass(frozen=True)
class Invitation:
    """What the organiser signs.

    Attributes:
        key: the public half of the token's key, 32 bytes.
        uses: how many peers it admits.
        expires: until when, seconds since the epoch; who came by it is cut off then.
        swarm_id: to which swarm.
    """

    key: bytes
    uses: int
    expires: int
    swarm_id: str

    @property
    def id(self) -> bytes:
        """Names it where it is revoked, 8 bytes; nothing that has to be kept secret."""
        return self.key[:ID_BYTES]

    def signed(self, organiser: Ed25519PrivateKey) -> bytes:
        """It with the organiser's signature."""
        content = _FIXED.pack(self.key, self.uses, self.expires) + self.swarm_id.encode()
        return sign(organiser, "invitation", content)

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Read what was signed.

        Raises:
            ValueError: it is malformed.
        """
        fixed, swarm_id = content[: _FIXED.size], content[_FIXED.size :]
        if len(fixed) < _FIXED.size or not _SWARM_ID.fullmatch(swarm_id):
            raise ValueError("this is not an invitation")
        key, uses, expires = _FIXED.unpack(fixed)
        if not 0 < uses <= USES_MAX:
            raise ValueError("this is not an invitation")
        return cls(key, uses, expires, swarm_id.decode())

    def objection(self, swarm_id: str, now: float) -> str:
        """Why it does not admit to this swarm now; empty if it does."""
        if self.swarm_id != swarm_id:
            return f"the invitation is to {self.swarm_id}, not to {swarm_id}"
        return "the invitation has expired" if now >= self.expires else ""


@dataclass(frozen=True)
class Token:
    """An invitation to be handed on, and to be kept secret.

    Attributes:
        key: whoever has it may come by the invitation.
        signed: the invitation with the organiser's signature, not yet checked.
    """

    key: Ed25519PrivateKey
    signed: bytes

    @classmethod
    def new(cls, organiser: Ed25519PrivateKey, swarm_id: str, uses: int, seconds: float) -> Self:
        """A fresh one, valid for so many ``seconds`` from now."""
        key = Ed25519PrivateKey.generate()
        public = key.public_key().public_bytes_raw()
        return cls(key, Invitation(public, uses, int(time.time() + seconds), swarm_id).signed(organiser))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one from its text.

        Raises:
            ValueError: it is none.
        """
        text = text.strip()
        if not text.startswith(TOKEN_MARK):
            raise ValueError(f"this is not a token: they begin with {TOKEN_MARK}")
        data = _decoded(text.removeprefix(TOKEN_MARK))
        if len(data) <= KEY_BYTES:
            raise ValueError("this is not a token: most of it is missing")
        token = cls(Ed25519PrivateKey.from_private_bytes(data[:KEY_BYTES]), data[KEY_BYTES:])
        if token.invitation.key != token.key.public_key().public_bytes_raw():
            raise ValueError("this is not a token: it is damaged")
        return token

    @property
    def invitation(self) -> Invitation:
        """What it says, whoever signed it.

        Raises:
            ValueError: it is malformed.
        """
        return Invitation.parse(self.signed[SIGNATURE_BYTES:])

    def check(self, organiser: bytes, swarm_id: str) -> None:
        """Raises ValueError: it does not admit to this swarm of this organiser (a public key) now."""
        if problem := self.invitation.objection(swarm_id, time.time()):
            raise ValueError(problem)
        _read_invitation(self.signed, organiser)

    def credential(self, peer_id: str) -> str:
        """What the peer with this id shows to others, as text."""
        proof = sign(self.key, "credential", peer_id.encode())[:SIGNATURE_BYTES]
        return _encoded(proof + self.signed)

    def __str__(self) -> str:
        """URL-safe text."""
        return TOKEN_MARK + _encoded(self.key.private_bytes_raw() + self.signed)


def read_credential(text: str, organiser: bytes, peer_id: str) -> Invitation:
    """The invitation by which the peer with this id comes; whether it is valid still is another matter.

    Raises:
        ValueError: the organiser (a public key) did not sign it, or it is another peer's.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise ValueError("the credential is too long")
    data = _decoded(text)
    proof, signed = data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:]
    invitation = _read_invitation(signed, organiser)
    try:
        read(proof + peer_id.encode(), "credential", invitation.key)
    except ValueError as error:
        raise ValueError("the credential is another peer's") from error
    return invitation


def check_invited(manifest: Manifest, token: str) -> None:
    """See that whoever has ``token`` (empty: none) may join the swarm of ``manifest``, as far as that tells.

    Raises:
        AdmissionError: it may not.
    """
    if manifest.admission.kind == "open":
        return
    if not token:
        raise AdmissionError(
            "this swarm admits by invitation: ask its organiser for one, and join with it",
            setting="invitation",
        )
    try:
        Token.parse(token).check(bytes.fromhex(manifest.admission.organiser), manifest.swarm_id)
    except ValueError as error:
        raise AdmissionError(
            f"this swarm admits by invitation, and {error}; ask its organiser for another one",
            setting="invitation",
        ) from error


def id_in(text: str) -> bytes:
    """The id of the invitation that an id (16 hexadecimal digits), a token or a credential names.

    Raises:
        ValueError: it is none of them.
    """
    if _ID.fullmatch(text):
        return bytes.fromhex(text)
    if text.startswith(TOKEN_MARK):
        return Token.parse(text).invitation.id
    return Invitation.parse(_decoded(text)[2 * SIGNATURE_BYTES :]).id


def _read_invitation(signed: bytes, organiser: bytes) -> Invitation:
    try:
        return Invitation.parse(read(signed, "invitation", organiser))
    except ValueError as error:
        raise ValueError("the invitation is not of the swarm's organiser") from error


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError("this is neither a token nor a credential") from error
