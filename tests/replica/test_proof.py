"""Proof that a peer contradicts itself: what is one, and what is none."""

from collections.abc import Iterator
from dataclasses import replace

import msgpack
import pytest

from dupt_swarm.replica.link import (
    BROUGHT_MAX,
    Acceptance,
    Accepted,
    Brought,
    Choice,
    Promise,
    Proposal,
    Word,
)
from dupt_swarm.replica.proof import PROOF_BYTES_MAX, Proof
from dupt_swarm.replica.signed_words import KINDS, Words
from tests.support.signed_records import fresh_keys, id_of

SWARM, STATE, AFTER, OTHER = "swarm-1", "ab" * 32, "1" * 64, "2" * 64
KEYS = fresh_keys(2)
ME, YOU = (id_of(key) for key in KEYS)
CHOICE, CHANGED = Choice((Brought(ME, "3" * 64, 10),)), Choice((Brought(ME, "3" * 64, 11),))
WEAK = replace(CHANGED, weak=True)
ACCEPTED = Accepted(2, CHOICE.id, AFTER)
ACCEPTANCE = Acceptance(ME, STATE, 2, CHOICE.id, AFTER)
LEAVE = Promise(ME, STATE, 2, accepted=ACCEPTED, leaves=True)

CONTRADICTIONS: dict[str, tuple[Word, Word]] = {
    "two proposals": (Proposal(ME, STATE, 2, CHOICE), Proposal(ME, STATE, 2, CHANGED)),
    "two choices accepted": (ACCEPTANCE, replace(ACCEPTANCE, choice=CHANGED.id)),
    "two states accepted": (ACCEPTANCE, replace(ACCEPTANCE, after=OTHER)),
    "denied": (Promise(ME, STATE, 3), ACCEPTANCE),
    "an earlier one named": (Promise(ME, STATE, 3, accepted=replace(ACCEPTED, ballot=1)), ACCEPTANCE),
    "another one named": (Promise(ME, STATE, 3, accepted=replace(ACCEPTED, after=OTHER)), ACCEPTANCE),
    "refused": (Promise(ME, STATE, 1, refused=(CHOICE.id,)), ACCEPTANCE),
    "accepted after leaving": (LEAVE, replace(ACCEPTANCE, ballot=3)),
    "denied in leaving": (replace(LEAVE, accepted=None), ACCEPTANCE),
    "promised after leaving": (LEAVE, Promise(ME, STATE, 3, accepted=ACCEPTED)),
}
HONEST: dict[str, tuple[Word, Word]] = {
    "the same twice": (ACCEPTANCE, ACCEPTANCE),
    "proposals of two ballots": (Proposal(ME, STATE, 2, CHOICE), Proposal(ME, STATE, 3, CHANGED)),
    "proposals of a remnant": (Proposal(ME, STATE, 2, CHOICE), Proposal(ME, STATE, 2, WEAK)),
    "acceptances in two ballots": (ACCEPTANCE, Acceptance(ME, STATE, 3, CHANGED.id, OTHER)),
    "accepted as a remnant too": (ACCEPTANCE, replace(ACCEPTANCE, after=OTHER, weak=True)),
    "accepted later": (Promise(ME, STATE, 2), ACCEPTANCE),
    "named": (Promise(ME, STATE, 3, accepted=ACCEPTED), ACCEPTANCE),
    "a later one named": (Promise(ME, STATE, 5, accepted=Accepted(4, CHANGED.id, OTHER)), ACCEPTANCE),
    "another choice refused": (Promise(ME, STATE, 2, refused=(CHANGED.id,)), ACCEPTANCE),
    "left after it": (LEAVE, ACCEPTANCE),
    "left twice": (LEAVE, replace(LEAVE, ballot=3)),
    "promised before leaving": (LEAVE, Promise(ME, STATE, 1)),
    "a proposal of a remnant, and accepted": (Proposal(ME, STATE, 2, WEAK), ACCEPTANCE),
    "a proposal and its acceptance": (Proposal(ME, STATE, 2, CHOICE), ACCEPTANCE),
    "of two states": (ACCEPTANCE, Acceptance(ME, OTHER, 2, CHANGED.id, OTHER)),
    "of two peers": (ACCEPTANCE, Acceptance(YOU, STATE, 2, CHANGED.id, OTHER)),
}


def signed(word: Word, swarm_id: str = SWARM) -> Word:
    """By its maker."""
    return replace(word, signed=Words(swarm_id).sign(KEYS[(ME, YOU).index(word.maker)], word))


def packed(*fields: object) -> bytes:
    """As a proof travels."""
    return bytes(msgpack.packb(fields))


def kind_of(word: Word) -> str:
    """As it stands in a proof."""
    return KINDS[type(word)][0]


def both(one: Word, other: Word) -> bytes:
    """What claims to be a proof."""
    return packed(kind_of(one), kind_of(other), one.signed, other.signed)


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_two_that_contradict_each_other_are_proof(name: str) -> None:
    """Whoever reads them knows who has signed both, in whatever order they come."""
    one, other = map(signed, CONTRADICTIONS[name])
    for first, second in ((one, other), (other, one)):
        proof = Proof.of(first, second)
        assert Proof.read(proof.data, SWARM) == proof
        assert proof.offender == ME
        assert proof.data == both(first, second)


@pytest.mark.parametrize("name", HONEST)
def test_what_an_honest_peer_signs_is_no_proof(name: str) -> None:
    """Whatever it goes through: a crash, a later ballot, a remnant, its end."""
    one, other = map(signed, HONEST[name])
    for first, second in ((one, other), (other, one)):
        with pytest.raises(ValueError, match="do not contradict"):
            Proof.of(first, second)
        with pytest.raises(ValueError, match="do not contradict"):
            Proof.read(both(first, second), SWARM)


def not_proofs() -> Iterator[tuple[str, bytes]]:
    """What is none, and why."""
    one, other = map(signed, CONTRADICTIONS["two states accepted"])
    kind = "acceptance"
    flipped = other.signed[:-1] + bytes([other.signed[-1] ^ 1])
    touched = one.signed.replace(b'"after":"1', b'"after":"3')
    assert touched != one.signed
    yield r"signature is wrong|malformed", packed(kind, kind, one.signed, flipped)
    yield "signature is wrong", packed(kind, kind, touched, other.signed)
    elsewhere = [signed(each, "swarm-2").signed for each in (one, other)]
    yield "another swarm", packed(kind, kind, *elsewhere)
    yield "another swarm", packed(kind, kind, one.signed, elsewhere[1])
    yield "too long", packed(kind, kind, one.signed, bytes(PROOF_BYTES_MAX))
    yield "message is too long", packed(kind, kind, one.signed, bytes(PROOF_BYTES_MAX - 2000))
    yield "another kind", packed("proposal", "proposal", one.signed, other.signed)
    yield "another kind", packed(kind, "promise", one.signed, other.signed)
    yield "unknown kind", packed("contribution", kind, one.signed, other.signed)
    yield "unknown kind", packed(kind, "", one.signed, other.signed)
    for fields in (
        [kind, one.signed],
        [kind, kind, one.signed],
        [kind, kind, *[one.signed] * 3],
        [kind, kind, one.signed, None],
        [kind, None, one.signed, other.signed],
        [one.signed, other.signed],
        [kind.encode(), kind, one.signed, other.signed],
    ):
        yield "malformed", packed(*fields)
    yield "malformed", packed({"kind": kind})
    for data in (b"", both(one, other)[:-1], both(one, other) + b"\0", b"\x91" * 1000):
        yield "npack", data


def test_what_is_no_proof() -> None:
    """Forged, cut, of another swarm, of another kind, or too long: none."""
    for reason, data in not_proofs():
        with pytest.raises(ValueError, match=reason):
            Proof.read(data, SWARM)


def test_the_longest_one() -> None:
    """Two proposals of as many contributions as there may be, where as many have left as there may be."""
    makers = [ME[:-3] + f"{number:03d}".replace("0", "z") for number in range(512)]
    brought = tuple(Brought(maker, "f" * 64, (1 << 62) - 1) for maker in makers[:BROUGHT_MAX])
    choices = [Choice(brought, tuple(makers[:left])) for left in (512, 511)]
    proof = Proof.of(*(signed(Proposal(ME, STATE, (1 << 62) - 1, choice)) for choice in choices))
    assert len(proof.data) <= PROOF_BYTES_MAX
    assert Proof.read(proof.data, SWARM) == proof
