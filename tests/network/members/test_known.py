"""Which records a peer knows when there are too many."""

import pytest
from hivemind.utils import get_dht_time

from dupt_swarm.network.members import known
from dupt_swarm.network.members.known import KnownRecords

MATES = {b"mate", b"other mate"}


@pytest.fixture(autouse=True)
def _few(monkeypatch) -> None:
    monkeypatch.setattr(known, "ENTRIES_MAX", 3)


def taken(*subkeys: bytes) -> KnownRecords:
    records = KnownRecords(MATES.__contains__)
    for subkey in subkeys:
        records.take(subkey, b"signed", get_dht_time() + 5)
    return records


def owners(records: KnownRecords) -> list[bytes]:
    return [subkey for subkey, _, _ in records]


def test_who_is_known_stays() -> None:
    """Newcomers find no place while all are taken."""
    records = taken(b"a", b"b", b"c", b"d")
    assert owners(records) == [b"a", b"b", b"c"]
    assert not records.is_news(b"d", get_dht_time() + 5)


def test_mates_come_first() -> None:
    """A mate takes the place of the newest who is none, and nobody takes a mate's."""
    assert owners(taken(b"a", b"mate", b"c", b"other mate", b"d")) == [b"a", b"mate", b"other mate"]


def test_the_newest_counts() -> None:
    """A record that ends later takes the place of the one before, and not the other way round."""
    records, now = taken(), get_dht_time()
    for value, expires in ((b"first", now + 5), (b"last", now + 9), (b"late", now + 7)):
        records.take(b"a", value, expires)
    assert list(records) == [(b"a", b"last", now + 9)]


def test_what_has_expired_is_forgotten(monkeypatch) -> None:
    """Its place is free then; and nobody takes what has expired already."""
    records, later = taken(b"a", b"b", b"c"), get_dht_time() + 6
    monkeypatch.setattr(known, "get_dht_time", lambda: later)
    records.forget_expired()
    records.take(b"d", b"signed", later - 1)
    assert owners(records) == []
