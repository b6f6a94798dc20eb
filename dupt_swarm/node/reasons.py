"""Why rounds fail and contributions or records are refused: one word each, for logs, records and metrics.

Records carry the counts as arrays in this order, which takes a quarter of the bytes that names would:
new reasons go to the end.
"""

from __future__ import annotations

from collections.abc import Mapping

FAILURES = (
    "other",
    "no_group",  # no group was found in time
    "timeout",  # the all-reduce took too long
    "peer_lost",  # a share of the average did not arrive
    "network",  # libp2p or the daemon failed
    "not_finite",  # the own contribution is not finite
    "outer_overflow",  # the outer step would not have been finite
    "cancelled",  # the peer was told to stop
    "node_lost",  # the node process ended in it
    "left_out",  # it ended without the own contribution, which counts in the next one
    "no_quorum",  # not more than half of the voters who are there have signed for the state that follows
    "rejected",  # for too many of them, the state that follows is worse on text that they hold out
)
REJECTIONS = (
    "other",
    "shape",  # fewer or more values than expected
    "too_many",  # more parts than expected
    "weight",  # not in the range that the manifest allows
    "not_finite",
    "norm",  # far larger than the others'
    "zeros",  # nothing but zeros
    "probation",  # of a newcomer, where there are more of them than voters
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
    "implausible",  # of a reducer, which no average can be: the next rounds go without it
)
COUNT_MAX = (1 << 32) - 1


def in_order(counts: Mapping[str, int], reasons: tuple[str, ...]) -> tuple[int, ...]:
    """``counts`` by reason as an array; empty if all are zero. Unlisted reasons are under `other`."""
    unlisted = sum(count for reason, count in counts.items() if reason not in reasons)
    array = [min(counts.get(reason, 0), COUNT_MAX) for reason in reasons]
    array[0] = min(array[0] + unlisted, COUNT_MAX)
    return tuple(array) if any(array) else ()


def by_reason(array: tuple[int, ...], reasons: tuple[str, ...]) -> dict[str, int]:
    """The inverse of `in_order`; reasons that the array is too short for are zero."""
    return {reason: array[place] if place < len(array) else 0 for place, reason in enumerate(reasons)}
