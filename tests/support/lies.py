"""Proofs against peers that contradict themselves, made by whoever has their keys."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.replica.link import BROUGHT_MAX, Acceptance, Brought, Choice, Promise, Proposal
from dupt_swarm.replica.proof import Proof
from tests.support.signed_records import fresh_keys, id_of
from tests.support.words import said

STATE, AFTER = "ab" * 32, "1" * 64


def keys_by_id(count: int) -> dict[str, Ed25519PrivateKey]:
    """Of so many peers, in the order of their ids."""
    return dict(sorted((id_of(key), key) for key in fresh_keys(count)))


def proposed_twice(swarm_id: str, key: Ed25519PrivateKey) -> Proof:
    """Two choices in one ballot."""
    maker = id_of(key)
    choices = [Choice((Brought(maker, "3" * 64, tokens),)) for tokens in (10, 11)]
    return Proof.of(*(said(swarm_id, key, Proposal(maker, STATE, 2, each)) for each in choices))


def denied(swarm_id: str, key: Ed25519PrivateKey) -> Proof:
    """An acceptance, and then a promise that knows nothing of it."""
    maker = id_of(key)
    words = (Acceptance(maker, STATE, 2, "4" * 64, AFTER), Promise(maker, STATE, 3))
    return Proof.of(*(said(swarm_id, key, word) for word in words))


def longest(swarm_id: str, key: Ed25519PrivateKey) -> Proof:
    """Two proposals of as many contributions as there may be, where hundreds have left."""
    maker = id_of(key)
    brought = tuple(Brought(maker, f"{number:064x}", (1 << 62) - 1) for number in range(BROUGHT_MAX))
    choices = [Choice(brought, (maker,) * left) for left in (512, 511)]
    return Proof.of(*(said(swarm_id, key, Proposal(maker, STATE, 2, each)) for each in choices))
