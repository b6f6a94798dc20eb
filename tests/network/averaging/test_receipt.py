"""What a reducer signs of the averages that it returns."""

import hashlib
import struct
from dataclasses import replace

import pytest

from dupt_swarm.network.averaging.pledge import PLEDGE_BYTES_MAX, Subject
from dupt_swarm.network.averaging.receipt import Receipt, ShareHash
from dupt_swarm.network.averaging.votes import Vote
from tests.support.sharing_groups import STATE, SWARM, member_keys

SUBJECT, SHARE = Subject(SWARM, "ab" * 20, 3, STATE), "1" * 64


@pytest.fixture(scope="module")
def keys():
    """Of two peers."""
    return member_keys(2)


def receipt_of(keys, share: str = SHARE) -> Receipt:
    """The first peer's."""
    peer, key = next(iter(keys.items()))
    return Receipt.sign(SUBJECT, share, peer, key)


def test_it_is_read_as_it_was_signed(keys) -> None:
    """Whoever reads it knows who has signed for what; no two signatures are equal."""
    receipt = receipt_of(keys)
    assert Receipt.read(receipt.data) == receipt
    assert receipt.maker == next(iter(keys))
    assert len(receipt.data) < PLEDGE_BYTES_MAX
    again = receipt_of(keys)
    assert again.data != receipt.data
    assert again.id == receipt.id != receipt_of(keys, "2" * 64).id


def test_others_are_refused(keys) -> None:
    """Forged, of another kind, or too long."""
    data = receipt_of(keys).data
    peer, key = next(iter(keys.items()))
    vote = Vote.sign(SUBJECT, SHARE, peer, key).data
    for other in (data[:-1] + bytes([data[-1] ^ 1]), data.replace(b'"1111', b'"2111'), vote):
        with pytest.raises(ValueError, match="malformed"):
            Receipt.read(other)
    with pytest.raises(ValueError, match="too long"):
        Receipt.read(bytes(PLEDGE_BYTES_MAX + 1))


def test_it_counts_for_one_share(keys) -> None:
    """Of one reducer, in one attempt to end one round, and of the very bytes."""
    first, second = keys
    receipt = receipt_of(keys)
    receipt.check(SUBJECT, SHARE, first)
    for reason, subject, share, reducer in (
        ("reducer", SUBJECT, SHARE, second),
        ("group", replace(SUBJECT, roll="cd" * 20), SHARE, first),
        ("group", replace(SUBJECT, round=4), SHARE, first),
        ("group", replace(SUBJECT, before="b" * 64), SHARE, first),
        ("group", replace(SUBJECT, swarm_id="other-0"), SHARE, first),
        ("averages", SUBJECT, "2" * 64, first),
    ):
        with pytest.raises(ValueError, match=f"a receipt of (an)?other {reason}"):
            receipt.check(subject, share, reducer)


def test_the_hash_of_a_share() -> None:
    """It covers all parts, in order: bytes, and weights as little-endian doubles."""
    returned = ShareHash()
    returned.add(b"one", 1.5)
    returned.add(memoryview(b"two"), 2.0)
    expected = b"one" + struct.pack("<d", 1.5) + b"two" + struct.pack("<d", 2.0)
    assert returned.digest == hashlib.sha256(expected).hexdigest()
