"""Which invitations count no longer: one list, signed by the organiser, with a counter that only grows."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.organiser.invitation import ID_BYTES
from dupt_swarm.organiser.signed import SIGNATURE_BYTES, read, sign

IDS_MAX = 1024
_COUNTER = struct.Struct(">Q")
BYTES_MAX = SIGNATURE_BYTES + _COUNTER.size + IDS_MAX * ID_BYTES


@dataclass(frozen=True)
class Revocations:
    """The list as it is at one time.

    Attributes:
        counter: of two lists the one with the higher counts.
        ids: of the invitations.
        signed: it, as the organiser signed it; empty while nothing has been revoked.
    """

    counter: int = 0
    ids: frozenset[bytes] = frozenset()
    signed: bytes = b""

    @classmethod
    def read(cls, signed: bytes, organiser: bytes, swarm_id: str) -> Self:
        """Read a list that the ``organiser`` (a public key) signed for this swarm; nothing is the empty list.

        Raises:
            ValueError: it did not, or the list is malformed.
        """
        if not signed:
            return cls()
        if len(signed) > BYTES_MAX:
            raise ValueError("a list of revocations is too long")
        content = read(signed, _kind(swarm_id), organiser)
        counter, ids = content[: _COUNTER.size], content[_COUNTER.size :]
        if len(counter) < _COUNTER.size or len(ids) % ID_BYTES:
            raise ValueError("not a list of revocations")
        each = (ids[start : start + ID_BYTES] for start in range(0, len(ids), ID_BYTES))
        return cls(_COUNTER.unpack(counter)[0], frozenset(each), signed)

    def revoke(self, ids: Iterable[bytes], organiser: Ed25519PrivateKey, swarm_id: str) -> Revocations:
        """The next list, with these invitations too.

        Raises:
            ValueError: it would have more than `IDS_MAX`.
        """
        everything = self.ids.union(ids)
        if len(everything) > IDS_MAX:
            raise ValueError(f"more than {IDS_MAX} invitations cannot be revoked")
        content = _COUNTER.pack(self.counter + 1) + b"".join(sorted(everything))
        return Revocations(self.counter + 1, everything, sign(organiser, _kind(swarm_id), content))


def load(path: Path, organiser: bytes, swarm_id: str) -> Revocations:
    """The list in the file ``path``, the empty one if there is none.

    Raises:
        ValueError: it is not of this swarm's organiser, or cannot be read.
    """
    try:
        text = path.read_text(encoding="ascii") if path.exists() else ""
    except OSError as error:
        raise ValueError(f"it cannot be read ({error.strerror})") from error
    return Revocations.read(bytes.fromhex(text), organiser, swarm_id)


def save(path: Path, revocations: Revocations) -> None:
    """Write it to the file ``path``.

    Raises:
        FileError: that cannot be written.
    """
    write_atomically(path, lambda file: file.write_text(f"{revocations.signed.hex()}\n", encoding="ascii"))


def _kind(swarm_id: str) -> str:
    return f"revocations of {swarm_id}"
