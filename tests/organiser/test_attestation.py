"""What the organiser says of a swarm's state."""

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.organiser.attestation import TEXT_CHARS_MAX, VOTERS_MAX, Attestation
from dupt_swarm.organiser.signed import sign

KEY = Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw()
SAID = Attestation("swarm-0", 7, "a" * 64, ("Qma", "Qmb"))


def test_it_is_read_back() -> None:
    """By whoever knows the organiser's public key and the swarm."""
    assert Attestation.read(SAID.signed(KEY), PUBLIC, "swarm-0") == SAID


def test_of_another_organiser_or_swarm() -> None:
    """It says nothing here."""
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    with pytest.raises(ValueError, match="signature"):
        Attestation.read(SAID.signed(KEY), other, "swarm-0")
    with pytest.raises(ValueError, match="another swarm"):
        Attestation.read(SAID.signed(KEY), PUBLIC, "swarm-1")


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        "swarm-0",
        ["swarm-0", 7],
        ["swarm-0", -1, "a" * 64],
        ["swarm-0", 1 << 62, "a" * 64],
        ["swarm-0", "7", "a" * 64],
        ["swarm-0", 7, "x" * 64],
        ["swarm-0", 7, "a" * 64, "not an id"],
        ["swarm-0", 7, "a" * 64, 1],
        ["swarm-0", 7, "a" * 64, *["Qma"] * (VOTERS_MAX + 1)],
    ],
)
def test_what_is_none_is_refused(content: object) -> None:
    """Even if the organiser has signed it."""
    text = base64.b64encode(sign(KEY, "attestation", json.dumps(content).encode())).decode()
    with pytest.raises(ValueError, match="attestation"):
        Attestation.read(text, PUBLIC, "swarm-0")


@pytest.mark.parametrize("text", ["", "?", "AAAA", "A" * (TEXT_CHARS_MAX + 4)])
def test_nonsense_is_refused(text: str) -> None:
    """A stranger may put anything into its hello."""
    with pytest.raises(ValueError, match=r"."):
        Attestation.read(text, PUBLIC, "swarm-0")
