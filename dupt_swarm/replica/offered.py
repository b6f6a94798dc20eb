"""Files of a swarm's offer: the list of its shards, the shards, and what is held out of them."""

from __future__ import annotations

from dupt_swarm.replica.blob import Blob, Index

OFFERED = "offered-1"  # kind of blob
HEADER = {"kind": OFFERED}


def offered_blob(data: bytes) -> Blob:
    """The blob that the bytes of such a file are; its digest is the file's name."""
    return Blob.build(HEADER, [data])


def check_offered(index: Index, most: int) -> None:
    """Refuse what is none, before it is fetched.

    Raises:
        ValueError: it is something else, or of more than ``most`` bytes.
    """
    if index.header != HEADER or len(index.sizes) != 1:
        raise ValueError("it is no file of an offer")
    if index.sizes[0] > most:
        raise ValueError(f"it has {index.sizes[0]:,} bytes, and not {most:,} at most")
