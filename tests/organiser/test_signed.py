"""Content that the organiser signs."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.organiser.signed import SIGNATURE_BYTES, read, sign

KEY = Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw()


def test_content_comes_back() -> None:
    """What was signed is read by whoever knows the public key and the kind; it is 64 bytes longer."""
    signed = sign(KEY, "attestation", b"a state")
    assert read(signed, "attestation", PUBLIC) == b"a state"
    assert len(signed) == SIGNATURE_BYTES + len(b"a state")


def test_a_signature_counts_for_its_kind_only() -> None:
    """An invitation cannot be shown as an attestation, nor one kind's end be moved into the content."""
    signed = sign(KEY, "invitation", b"x")
    with pytest.raises(ValueError, match="signature is wrong"):
        read(signed, "attestation", PUBLIC)
    with pytest.raises(ValueError, match="signature is wrong"):
        read(signed[:SIGNATURE_BYTES] + b"tion\0x", "invita", PUBLIC)


@pytest.mark.parametrize("place", [0, SIGNATURE_BYTES - 1, SIGNATURE_BYTES, -1])
def test_every_bit_counts(place: int) -> None:
    """A change in the signature or in the content is noticed."""
    changed = bytearray(sign(KEY, "invitation", b"content"))
    changed[place] ^= 1
    with pytest.raises(ValueError, match="signature is wrong"):
        read(bytes(changed), "invitation", PUBLIC)


def test_another_key_and_too_little() -> None:
    """What somebody else signed, and what is too short to be signed at all, is refused."""
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    for data, public in ((sign(KEY, "invitation", b"x"), other), (b"", PUBLIC), (b"x" * 63, PUBLIC)):
        with pytest.raises(ValueError, match="signature is wrong"):
            read(data, "invitation", public)
