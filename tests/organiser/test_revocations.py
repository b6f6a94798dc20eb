"""The list of revoked invitations."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.organiser.revocations import IDS_MAX, Revocations, load, save

KEY = Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw()
ONE, TWO = b"1" * 8, b"2" * 8


def test_a_list_grows() -> None:
    """Each list has all before it, and a higher counter."""
    first = Revocations().revoke([ONE], KEY, "swarm")
    second = first.revoke([TWO], KEY, "swarm")
    assert (first.counter, first.ids) == (1, frozenset({ONE}))
    assert (second.counter, second.ids) == (2, frozenset({ONE, TWO}))
    assert Revocations.read(second.signed, PUBLIC, "swarm") == second


def test_a_list_is_the_organisers_and_one_swarms() -> None:
    """Another key's, another swarm's and a changed one are refused; nothing at all is the empty list."""
    signed = Revocations().revoke([ONE], KEY, "swarm").signed
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    for data, public, swarm in (
        (signed, other, "swarm"),
        (signed, PUBLIC, "another"),
        (signed + TWO, PUBLIC, "swarm"),
        (b"x", PUBLIC, "swarm"),
    ):
        with pytest.raises(ValueError, match="signature is wrong"):
            Revocations.read(data, public, swarm)
    assert Revocations.read(b"", PUBLIC, "swarm") == Revocations()


def test_a_list_has_an_end() -> None:
    """More than a message has room for cannot be revoked, and what is longer is not even verified."""
    ids = [number.to_bytes(8, "big") for number in range(IDS_MAX + 1)]
    full = Revocations().revoke(ids[:-1], KEY, "swarm")
    assert Revocations.read(full.signed, PUBLIC, "swarm") == full
    with pytest.raises(ValueError, match="cannot be revoked"):
        full.revoke(ids[-1:], KEY, "swarm")
    with pytest.raises(ValueError, match="too long"):
        Revocations.read(full.signed + b"x", PUBLIC, "swarm")


def test_a_list_is_kept_in_a_file(tmp_path: Path) -> None:
    """It is read back as it was; no file is the empty list, and a damaged one is refused."""
    path = tmp_path / "revoked"
    assert load(path, PUBLIC, "swarm") == Revocations()
    revoked = Revocations().revoke([ONE], KEY, "swarm")
    save(path, revoked)
    assert load(path, PUBLIC, "swarm") == revoked
    path.write_text("not hexadecimal")
    with pytest.raises(ValueError, match="hexadecimal"):
        load(path, PUBLIC, "swarm")
