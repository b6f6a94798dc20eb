"""What the organiser revokes, and the file that keeps it."""

import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.organiser.revocations import (
    BYTES_MAX,
    IDS_MAX,
    STATEMENT_BYTES,
    add,
    digest,
    load,
    pack,
    revoke,
    unpack,
)

KEY = Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw()
ONE, TWO = b"1" * 8, b"2" * 8


def test_statements_add_up_in_any_order() -> None:
    """Two that know the same have the same digest, however they came to know it."""
    one, two = revoke([ONE], KEY, "swarm"), revoke([TWO], KEY, "swarm")
    assert unpack(pack(one | two), PUBLIC, "swarm") == one | two == revoke([TWO, ONE], KEY, "swarm")
    assert digest(one | two) == digest(two | one)
    assert len({digest(each) for each in ({}, one, two, one | two)}) == 4


def test_a_statement_is_the_organisers_and_one_swarms() -> None:
    """Another key's, another swarm's and a changed one are refused; nothing at all revokes nothing."""
    packed = pack(revoke([ONE], KEY, "swarm"))
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    for data, public, swarm in (
        (packed, other, "swarm"),
        (packed, PUBLIC, "another"),
        (packed[:-8] + TWO, PUBLIC, "swarm"),
        (packed + bytes(STATEMENT_BYTES), PUBLIC, "swarm"),
    ):
        with pytest.raises(ValueError, match="signature is wrong"):
            unpack(data, public, swarm)
    with pytest.raises(ValueError, match="not a list of revocations"):
        unpack(packed + b"x", PUBLIC, "swarm")
    assert unpack(b"", PUBLIC, "swarm") == {}


def test_what_is_known_is_not_verified_again() -> None:
    """Who repeats a statement, or forges one of a revoked invitation, costs and changes nothing."""
    known = revoke([ONE], KEY, "swarm")
    forged = bytes(STATEMENT_BYTES - len(ONE)) + ONE
    assert unpack(pack(known) + forged, PUBLIC, "swarm", known) == {}


def test_there_are_only_so_many(tmp_path: Path) -> None:
    """More than a message has room for cannot be revoked, and what is longer is not even looked at."""
    ids = [number.to_bytes(8, "big") for number in range(IDS_MAX + 1)]
    full = revoke(ids[:-1], KEY, "swarm")
    assert unpack(pack(full), PUBLIC, "swarm") == full
    with pytest.raises(ValueError, match="too long"):
        unpack(bytes(BYTES_MAX + STATEMENT_BYTES), PUBLIC, "swarm")
    path = tmp_path / "revoked"
    add(path, full, PUBLIC, "swarm")
    with pytest.raises(ValueError, match="more than 1024 invitations cannot be revoked"):
        add(path, revoke(ids[-1:], KEY, "swarm"), PUBLIC, "swarm")
    assert load(path, PUBLIC, "swarm") == full
    path.write_text(path.read_text() + pack(revoke(ids[-1:], KEY, "swarm")).hex())
    with pytest.raises(ValueError, match="more than 1024 invitations cannot be revoked"):
        load(path, PUBLIC, "swarm")


def test_a_file_keeps_all_that_was_ever_added(tmp_path: Path) -> None:
    """No file is an empty one; a damaged one is refused with the line and the remedy, and stays."""
    path = tmp_path / "revoked"
    one, two = revoke([ONE], KEY, "swarm"), revoke([TWO], KEY, "swarm")
    assert load(path, PUBLIC, "swarm") == {}
    assert add(path, one, PUBLIC, "swarm") == one
    assert add(path, two, PUBLIC, "swarm") == load(path, PUBLIC, "swarm") == one | two
    damaged = path.read_text() + "not hexadecimal\n"
    path.write_text(damaged)
    for attempt in (lambda: load(path, PUBLIC, "swarm"), lambda: add(path, one, PUBLIC, "swarm")):
        with pytest.raises(
            ValueError, match=r"revoked: line 3 revokes nothing in this swarm .* remove that line"
        ):
            attempt()
    assert path.read_text() == damaged
    path.write_text((bytes(STATEMENT_BYTES - len(ONE)) + ONE).hex())
    with pytest.raises(ValueError, match="line 1 revokes nothing"):
        load(path, PUBLIC, "swarm", one)


def test_a_peer_that_adds_at_the_same_time_loses_nothing(tmp_path: Path) -> None:
    """`dupt-peer revoke` and a bootstrap write the same file."""
    path = tmp_path / "revoked"
    ids = [bytes([number]) * 8 for number in range(24)]

    def add_each(own: list[bytes]) -> None:
        for each in own:
            add(path, revoke([each], KEY, "swarm"), PUBLIC, "swarm")

    threads = [threading.Thread(target=add_each, args=(ids[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(load(path, PUBLIC, "swarm")) == ids


@pytest.mark.usefixtures("without_locks")
def test_a_disk_without_locks_stops_nobody(tmp_path: Path) -> None:
    """The organiser revokes there too."""
    one = revoke([ONE], KEY, "swarm")
    assert add(tmp_path / "revoked", one, PUBLIC, "swarm") == load(tmp_path / "revoked", PUBLIC, "swarm")
