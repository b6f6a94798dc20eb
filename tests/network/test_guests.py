"""Who may come, as one peer has seen it."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.network.admission import Guests
from dupt_swarm.organiser.invitation import Token
from dupt_swarm.organiser.revocations import IDS_MAX, load, pack, revoke
from tests.support.clock import Clock

KEY = Ed25519PrivateKey.generate()
SWARM = "swarm-0123456789ab"


@pytest.fixture
def clock() -> Clock:
    return Clock(1e9)


@pytest.fixture
def guests(clock: Clock) -> Guests:
    return Guests(KEY.public_key().public_bytes_raw(), SWARM, clock)


def token_of(uses: int = 2, seconds: float = 1e9, swarm_id: str = SWARM) -> Token:
    return Token.new(KEY, swarm_id, uses, seconds)


def test_a_peer_that_shows_a_credential_is_admitted(guests: Guests) -> None:
    """Before that it is not; whoever is keeps it without showing it again."""
    assert guests.objection("a") == guests.admit("a", "") == "no credential was shown"
    assert guests.admit("a", token_of().credential("a")) == ""
    assert guests.objection("a") == guests.admit("a", "") == ""


def test_an_invitation_admits_so_many_peers(guests: Guests) -> None:
    """The first come; one that comes again is no other, and another invitation counts for itself."""
    token = token_of(uses=2)
    for peer_id in ("a", "b", "a", "b"):
        assert guests.admit(peer_id, token.credential(peer_id)) == ""
    assert guests.admit("c", token.credential("c")) == "the invitation has admitted 2 peers already"
    assert guests.objection("c") == "no credential was shown"
    assert guests.admit("c", token_of().credential("c")) == ""


def test_an_invitation_ends(guests: Guests, clock: Clock) -> None:
    """Who came by it is cut off when it expires, and comes in again by another."""
    token = token_of(seconds=60)
    clock.now = token.invitation.expires - 1
    assert guests.admit("a", token.credential("a")) == ""
    clock.now += 1
    assert guests.objection("a") == "the invitation has expired"
    assert guests.admit("b", token.credential("b")) == "the invitation has expired"
    assert guests.admit("a", token_of().credential("a")) == guests.objection("a") == ""


def test_what_is_revoked_counts_no_longer(guests: Guests) -> None:
    """Who came by it is cut off at once, whoever comes by it is refused, and others stay."""
    token, other = token_of(), token_of()
    for peer_id, each in (("a", token), ("b", other)):
        assert guests.admit(peer_id, each.credential(peer_id)) == ""
    assert guests.revoke(pack(revoke([token.invitation.id], KEY, SWARM)))
    assert guests.objection("a") == "the invitation has been revoked"
    assert guests.admit("a", token.credential("a")) == "the invitation has been revoked"
    assert guests.admit("c", token.credential("c")) == "the invitation has been revoked"
    assert guests.objection("b") == ""


def test_nothing_is_ever_taken_back(guests: Guests) -> None:
    """The organiser's machines revoke without knowing of each other, or without the file of earlier times."""
    one, two = token_of(), token_of()
    statements = [pack(revoke([each.invitation.id], KEY, SWARM)) for each in (one, two)]
    assert [guests.revoke(each) for each in (*statements, *statements, b"")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    for each in (one, two):
        assert guests.admit("a", each.credential("a")) == "the invitation has been revoked"


def test_a_file_and_a_peer_learn_from_each_other(guests: Guests, tmp_path: Path) -> None:
    """A file that came from another machine is followed, and gets what it lacks."""
    path, mine, theirs = tmp_path / "revoked", revoke([b"1" * 8], KEY, SWARM), revoke([b"2" * 8], KEY, SWARM)
    guests.revoke(pack(mine))
    path.write_text(pack(theirs).hex())
    assert guests.sync(path)
    assert not guests.sync(path)
    assert guests.revoked == load(path, KEY.public_key().public_bytes_raw(), SWARM) == mine | theirs


def test_so_many_are_followed_and_no_more(guests: Guests) -> None:
    """Two lists that are each short enough may be too long together; what counts already goes on to count."""
    ids = [number.to_bytes(8, "big") for number in range(IDS_MAX + 2)]
    guests.revoke(pack(revoke(ids[: IDS_MAX - 1], KEY, SWARM)))
    assert guests.revoke(pack(revoke(ids[IDS_MAX - 1 :], KEY, SWARM)))
    assert list(guests.revoked) == ids[:IDS_MAX]
    assert not guests.revoke(pack(revoke(ids[IDS_MAX:], KEY, SWARM)))


def test_what_is_not_valid_changes_nothing(guests: Guests) -> None:
    """A credential of another swarm, of another peer, or none at all admits nobody."""
    token = token_of()
    assert "is to other-1" in guests.admit("a", token_of(swarm_id="other-1").credential("a"))
    assert guests.admit("a", token.credential("b")) == "the credential is another peer's"
    assert guests.admit("a", "nonsense") != ""
    assert guests.admit("a", "x" * 401) == "the credential is too long"
    with pytest.raises(ValueError, match="signature is wrong"):
        guests.revoke(bytes(72))
    assert guests.objection("a") == "no credential was shown"
