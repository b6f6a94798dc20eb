"""How long messages may be, and streams may last, by the method that they belong to."""

from __future__ import annotations

from dataclasses import dataclass

# The largest honest frame of a stream is a chunk of a blob or a part of a vector: 1 MiB and a few bytes.
FRAME_BYTES_MAX = 2 << 20
# The daemon's own limit of a message that is no stream.
UNARY_BYTES_MAX = 4 << 20
CHUNK_BYTES_MAX = (1 << 20) + 64
NAME_BYTES_MAX = 128  # a digest


@dataclass(frozen=True)
class Lengths:
    """Of one method: the most bytes of a request, of each of its replies, and seconds of a whole stream.

    They are known before anything is parsed, and whatever drips just inside the limits of its parts ends too.
    And as how many ``calls`` one counts that is no stream, where its answer takes as long as theirs.
    """

    request: int = FRAME_BYTES_MAX
    reply: int = FRAME_BYTES_MAX
    seconds: float = 3600.0
    calls: int = 1


METHODS = {
    "rpc_ping": Lengths(256, 256),
    "rpc_find": Lengths(512, 32_000),  # 16 keys; 20 neighbours of each
    "rpc_store": Lengths(512, 256),  # refused, however short
    "rpc_join": Lengths(4096, FRAME_BYTES_MAX),
    "rpc_coordinator": Lengths(256, 256),
    # A round averages for 3600 s at most, as a manifest may allow.
    "rpc_aggregate_part": Lengths(FRAME_BYTES_MAX, FRAME_BYTES_MAX, seconds=4500.0),
    "rpc_hello": Lengths(NAME_BYTES_MAX, 1 << 18),
    "rpc_present": Lengths(16_000, 16_000),  # a credential, and whatever has been revoked
    "rpc_index": Lengths(NAME_BYTES_MAX, FRAME_BYTES_MAX + 64),
    "rpc_log": Lengths(NAME_BYTES_MAX, (1 << 20) + 64),
    "rpc_chunks": Lengths(4096, CHUNK_BYTES_MAX, seconds=900.0),  # 64 of them, at 75 KB/s
    "rpc_vote": Lengths(80_000, 800_000),  # 512 digests; 512 votes
    "rpc_receipts": Lengths(32_000, 64_000),  # 256 digests; 16 receipts
    "rpc_agree": Lengths((1 << 19) + 64, (1 << 19) + 64),
    "rpc_records": Lengths(32_000, 1 << 16, calls=50),  # members ask once a second or more rarely
    "rpc_tell": Lengths(4352, 16, calls=5),  # a record, whose signature is checked
    "rpc_proofs": Lengths(80_000, 80_000, calls=10),  # 256 names; 16 proofs, whose signatures are checked
    "rpc_dial_back": Lengths(16_000, 32_000),
}


def lengths_of(handler: str) -> Lengths:
    """Of a handler by its name on the wire, which ends in ``.rpc_…``."""
    return METHODS.get(handler.rpartition(".")[2], Lengths())
