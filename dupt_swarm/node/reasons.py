"""Why rounds fail, nodes end, and contributions or records are refused: words for logs, records, metrics.

Records carry the counts as arrays in this order, which takes a quarter of the bytes that names would:
new reasons go to the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, StrEnum
from typing import Self


class Fate(Enum):
    """What becomes of a contribution whose round has failed."""

    KEPT = "the contribution is kept"
    MADE_ANEW = "the contribution is made anew"
    GIVEN_UP = "the progress is given up"
    NOT_TRIED = "a newer state comes first"  # which the node knows of, so the round was not even tried


class Failure(StrEnum):
    """Why a round has failed for a peer.

    Attributes:
        fate: what becomes of the peer's contribution.
    """

    fate: Fate

    def __new__(cls, word: str, fate: Fate = Fate.KEPT) -> Self:
        """``word`` is the one of logs, records and metrics."""
        member = str.__new__(cls, word)
        member._value_, member.fate = word, fate
        return member

    OTHER = "other"  # for a reason that this version does not know
    TIMEOUT = "timeout"  # the exchange took too long, or a newer state came first
    PEER_LOST = "peer_lost"  # decided, but something that the next state takes did not come here
    NETWORK = "network"  # libp2p or the daemon failed
    NOT_FINITE = "not_finite", Fate.GIVEN_UP  # the own contribution is not finite
    OUTER_OVERFLOW = "outer_overflow", Fate.GIVEN_UP  # the outer step would not have been finite
    CANCELLED = "cancelled"  # the peer was told to stop
    NODE_LOST = "node_lost"  # the node process ended in it
    LEFT_OUT = "left_out"  # it ended without the own contribution, which counts in the next one
    # This peer has refused the state that was proposed, as it is worse on text that it holds out, say, and
    # its ballot has failed.
    REJECTED = "rejected", Fate.MADE_ANEW
    STALE = "stale", Fate.NOT_TRIED  # the node is at another state than the trainer
    BEHIND = "behind", Fate.NOT_TRIED  # the others are at a newer state


FAILURES = tuple(failure for failure in Failure if failure.fate is not Fate.NOT_TRIED)
REJECTIONS = (
    "other",
    "shape",  # fewer or more values than expected
    "too_many",  # more parts than expected
    "weight",  # not in the range that the manifest allows
    "not_finite",
    "norm",  # far larger than the others'
    "zeros",  # nothing but zeros
)
REFUSALS = (
    "signature",  # of the record; missing, wrong or not the owner's
    "size",
    "content",  # not a plausible record
    "time",  # from the future, or for longer than records live
    "invitation",  # of a peer that the swarm does not admit
)
REFUSED_MESSAGES = (
    "size",  # longer than any honest one
    "form",  # malformed
    "place",  # of a peer that stands elsewhere in the DHT than its id says
    "rate",  # too many calls or bytes of one peer
    "open",  # too many calls or streams of one peer at once
    "strangers",  # either of both, of all peers together whose records are not known
    "full",  # one more record than there are places for
    "slow",  # a call, or a stream, that took too long
    "absent",  # a live oracle that a round did not wait for, as it did not come to those before
    "dial",  # an address in a record that was not dialled, as they are too many
    "contradiction",  # a peer that has signed what contradicts itself, and is left out
    "invitation",  # of a peer that has shown no valid credential, where a swarm admits by invitation
)
ENDINGS = {"exited": "ended", "silent": "fell silent"}  # why a node process is replaced, and in plain words
COUNT_MAX = (1 << 32) - 1


def in_order(counts: Mapping[str, int], reasons: Sequence[str]) -> tuple[int, ...]:
    """``counts`` by reason as an array; empty if all are zero. Unlisted reasons are under `other`."""
    unlisted = sum(count for reason, count in counts.items() if reason not in reasons)
    array = [min(counts.get(reason, 0), COUNT_MAX) for reason in reasons]
    array[0] = min(array[0] + unlisted, COUNT_MAX)
    return tuple(array) if any(array) else ()


def by_reason(array: tuple[int, ...], reasons: Sequence[str]) -> dict[str, int]:
    """The inverse of `in_order`; reasons that the array is too short for are zero."""
    return {reason: array[place] if place < len(array) else 0 for place, reason in enumerate(reasons)}
