"""Which invitations count no longer: the organiser signs one statement for each, and they only add up.

A statement is a signature and the id of an invitation. Whoever learns of one keeps it, so neither a lost file
nor a second machine of the organiser's takes anything back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.disk.locks import lock_file
from dupt_swarm.errors import FileError
from dupt_swarm.organiser.invitation import ID_BYTES
from dupt_swarm.organiser.signed import SIGNATURE_BYTES, read, sign

IDS_MAX = 1024
STATEMENT_BYTES = SIGNATURE_BYTES + ID_BYTES
BYTES_MAX = IDS_MAX * STATEMENT_BYTES

Revocations = Mapping[bytes, bytes]
"""The organiser's signed statements, by the ids of the invitations that they revoke."""


def revoke(ids: Iterable[bytes], organiser: Ed25519PrivateKey, swarm_id: str) -> dict[bytes, bytes]:
    """A statement for each of these invitations to the swarm."""
    return {each: sign(organiser, _kind(swarm_id), each) for each in ids}


def pack(revocations: Revocations) -> bytes:
    """All statements, as `unpack` reads them."""
    return b"".join(revocations[each] for each in sorted(revocations))


def digest(revocations: Revocations) -> bytes:
    """The same for all who know the same, 32 bytes."""
    return hashlib.sha256(b"".join(sorted(revocations))).digest()


def split(packed: bytes) -> dict[bytes, bytes]:
    """The statements in ``packed``; nobody has looked at their signatures.

    Raises:
        ValueError: there are too many, or it is something else.
    """
    if len(packed) > BYTES_MAX:
        raise ValueError("a list of revocations is too long")
    if len(packed) % STATEMENT_BYTES:
        raise ValueError("not a list of revocations")
    statements = (packed[at : at + STATEMENT_BYTES] for at in range(0, len(packed), STATEMENT_BYTES))
    return {statement[SIGNATURE_BYTES:]: statement for statement in statements}


def unpack(
    packed: bytes, organiser: bytes, swarm_id: str, known: Revocations | None = None
) -> dict[bytes, bytes]:
    """The statements in ``packed`` that are not ``known`` yet: each costs a verification only once.

    Raises:
        ValueError: the ``organiser`` (a public key) did not sign one for this swarm, or they are malformed.
    """
    found = {each: statement for each, statement in split(packed).items() if each not in (known or {})}
    for statement in found.values():
        read(statement, _kind(swarm_id), organiser)
    return found


def load(path: Path, organiser: bytes, swarm_id: str, known: Revocations | None = None) -> dict[bytes, bytes]:
    """The statements in the file ``path``, one a line in hexadecimal digits; none if there is no file.

    Those that are ``known``, byte for byte, were verified before.

    Raises:
        ValueError: one is not of this swarm's organiser, or the file cannot be read.
    """
    try:
        lines = path.read_bytes().splitlines() if path.exists() else []
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    found: dict[bytes, bytes] = {}
    for number, line in enumerate(lines, 1):
        try:
            packed = bytes.fromhex(line.decode("ascii"))
            same = {
                each: statement
                for each, statement in split(packed).items()
                if (known or {}).get(each) == statement
            }
            found |= same | unpack(packed, organiser, swarm_id, found | same)
        except ValueError as error:
            raise ValueError(
                f"{path}: line {number} revokes nothing in this swarm ({error}); remove that line"
            ) from error
    if len(found) > IDS_MAX:
        raise ValueError(f"{path}: more than {IDS_MAX} invitations cannot be revoked; start another swarm")
    return found


def add(path: Path, revocations: Revocations, organiser: bytes, swarm_id: str) -> dict[bytes, bytes]:
    """Add statements, which are verified, to those in the file ``path``, whoever else does so just now.

    Returns:
        All that it has then.

    Raises:
        ValueError: as of `load`, or they become too many; the file is as before.
        FileError: it cannot be written.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error
    try:
        lock_file(folder, wait=True)
        before = load(path, organiser, swarm_id, revocations)
        after = before | dict(revocations)
        if len(after) > IDS_MAX:
            raise ValueError(f"more than {IDS_MAX} invitations cannot be revoked; start another swarm")
        if after.keys() != before.keys():
            text = "".join(f"{after[each].hex()}\n" for each in sorted(after))
            write_atomically(path, lambda file: file.write_text(text, encoding="ascii"))
        return after
    finally:
        os.close(folder)


def _kind(swarm_id: str) -> str:
    return f"revocation in {swarm_id}"
