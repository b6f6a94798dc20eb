"""Invitations, tokens and credentials."""

import re

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.errors import AdmissionError
from dupt_swarm.manifest import Manifest
from dupt_swarm.organiser.invitation import (
    TEXT_CHARS_MAX,
    USES_MAX,
    Invitation,
    Token,
    check_invited,
    id_in,
    read_credential,
)
from dupt_swarm.organiser.signed import SIGNATURE_BYTES
from tests.support.tiny import tiny_manifest

KEY = Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw()
MANIFEST = tiny_manifest(admission={"kind": "invite", "organiser": PUBLIC.hex()})
SWARM = MANIFEST.swarm_id
PEER, OTHER = "QmPeer", "QmOther"


def token_of(
    key: Ed25519PrivateKey = KEY, swarm_id: str = SWARM, uses: int = 3, seconds: float = 1e6
) -> Token:
    return Token.new(key, swarm_id, uses, seconds)


def test_a_token_is_url_safe_text_that_comes_back() -> None:
    """It is one word, begins unlike an option, and means the same after it was read."""
    token = token_of()
    text = str(token)
    assert re.fullmatch(r"dupt-[A-Za-z0-9_-]+", text)
    again = Token.parse(f"  {text}\n")
    assert str(again) == text
    assert again.invitation == token.invitation
    assert (again.invitation.uses, again.invitation.swarm_id) == (3, SWARM)


def test_a_credential_is_one_peers() -> None:
    """It proves the invitation for the peer that made it, and for no other; it has no private key in it."""
    token = token_of()
    credential = token.credential(PEER)
    assert read_credential(credential, PUBLIC, PEER) == token.invitation
    with pytest.raises(ValueError, match="another peer's"):
        read_credential(credential, PUBLIC, OTHER)
    assert str(token).removeprefix("dupt-")[:40] not in credential


def test_the_longest_credential_has_room_in_a_record() -> None:
    """A swarm's id has 53 characters at most, and then a credential has 300."""
    credential = token_of(swarm_id=f"{'n' * 40}-{'0' * 12}").credential(PEER)
    assert len(credential) == 300 <= TEXT_CHARS_MAX


def test_only_the_organiser_invites() -> None:
    """What another key signed is refused, as a token and as a credential."""
    forged = token_of(Ed25519PrivateKey.generate())
    with pytest.raises(ValueError, match="not of the swarm's organiser"):
        forged.check(PUBLIC, SWARM)
    with pytest.raises(ValueError, match="not of the swarm's organiser"):
        read_credential(forged.credential(PEER), PUBLIC, PEER)


def test_nobody_extends_an_invitation() -> None:
    """Uses and expiry are signed: whoever changes them has none."""
    token = token_of(uses=1)
    more = Invitation(token.invitation.key, 1000, token.invitation.expires, SWARM)
    changed = token.signed[:SIGNATURE_BYTES] + more.signed(KEY)[SIGNATURE_BYTES:]
    with pytest.raises(ValueError, match="not of the swarm's organiser"):
        Token(token.key, changed).check(PUBLIC, SWARM)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "ask its organiser for one"),
        ("nonsense", "not a token"),
        ("dupt-", "not a token: most of it is missing"),
        ("dupt-bad0", "not a token: most of it is missing"),
        ("dupt-!!", "neither a token"),
        (str(token_of())[:-8], "is to test-"),
        (str(Token(Ed25519PrivateKey.generate(), token_of().signed)), "not a token: it is damaged"),
        (str(token_of(seconds=-1)), "expired"),
        (str(token_of(swarm_id="other-0123456789ab")), "is to other-0123456789ab, not to"),
        (str(token_of(Ed25519PrivateKey.generate())), "not of the swarm's organiser"),
    ],
    ids=[
        "none",
        "nonsense",
        "empty",
        "short",
        "characters",
        "cut",
        "damaged",
        "expired",
        "another swarm",
        "forged",
    ],
)
def test_a_peer_that_is_not_invited_is_told_why(text: str, complaint: str) -> None:
    """Without a token that counts nobody joins; the error has the reason, the remedy and exit code 12."""
    with pytest.raises(AdmissionError, match=f"admits by invitation.*(?:{complaint})") as caught:
        check_invited(MANIFEST, text)
    assert (caught.value.exit_code, caught.value.settings) == (12, ("invitation",))


def test_a_peer_that_is_invited_may_join() -> None:
    """A token that counts passes, and an open swarm asks for none."""
    check_invited(MANIFEST, str(token_of()))
    check_invited(tiny_manifest(), "")


def test_an_invitation_is_named_by_its_id_its_token_or_a_credential() -> None:
    """All three mean the same when it is revoked."""
    token = token_of()
    named = {id_in(text) for text in (token.invitation.id.hex(), str(token), token.credential(PEER))}
    assert named == {token.invitation.id}
    for text in ("", "0123", "dupt-x", "z" * 16):
        with pytest.raises(ValueError):
            id_in(text)


@pytest.mark.parametrize(
    ("uses", "swarm_id"),
    [(0, SWARM), (USES_MAX + 1, SWARM), (1, "\x1b[2J"), (1, "")],
    ids=["none", "many", "no text", "no swarm"],  # SWARM differs in each process
)
def test_what_an_invitation_says_is_bounded(uses: int, swarm_id: str) -> None:
    """Each peer remembers who came, and is told to which swarm: even the organiser cannot sign anything."""
    content = Invitation(bytes(32), uses, 1, swarm_id).signed(KEY)[SIGNATURE_BYTES:]
    with pytest.raises(ValueError, match="not an invitation"):
        Invitation.parse(content)


def test_an_invitation_needs_an_organiser() -> None:
    """A manifest that admits by invitation and names no organiser is refused with its remedy."""
    with pytest.raises(ValueError, match="needs an organiser"):
        tiny_manifest(admission={"kind": "invite"})
    with pytest.raises(ValueError, match="64 lower-case hexadecimal digits"):
        tiny_manifest(admission={"organiser": "me"})
    assert Manifest.parse(MANIFEST.to_toml()) == MANIFEST
