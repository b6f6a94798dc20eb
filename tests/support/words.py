"""Words of members of an electorate: without signatures, or with one by `said`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import (
    Acceptance,
    Accepted,
    Brought,
    Choice,
    Link,
    Promise,
    Proposal,
    coordinator_of,
)
from dupt_swarm.replica.signed_words import W, Words

STATE = "ab" * 32
FIVE = Electorate().after("abcde", weak=True)


def said(swarm_id: str, key: Ed25519PrivateKey, word: W) -> W:
    """``word`` with the signature of its maker, the owner of ``key``."""
    return replace(word, signed=Words(swarm_id).sign(key, word))


def brought(maker: str, tokens: int = 10) -> Brought:
    """A contribution of ``maker``."""
    return Brought(maker, f"{maker}{tokens}", tokens)


def promise(
    maker: str, ballot: int = 0, accepted: Accepted | None = None, *, leaves: bool = False
) -> Promise:
    """One that brings a contribution, or a leave."""
    return Promise(maker, STATE, ballot, None if leaves else brought(maker), accepted, leaves=leaves)


def choice(makers: Collection[str], left: str = "", *, weak: bool = False) -> Choice:
    """What these bring."""
    return Choice(tuple(map(brought, sorted(makers))), tuple(sorted(left)), weak)


def proposal(
    promises: Iterable[Promise], chosen: Choice, ballot: int = 0, basis: Proposal | None = None
) -> Proposal:
    """Of the ballot's coordinator among five."""
    return Proposal(coordinator_of(FIVE, STATE, ballot), STATE, ballot, chosen, tuple(promises), basis)


def acceptance(maker: str, chosen: Choice, ballot: int = 0, after: str = "cd" * 32) -> Acceptance:
    """Of what was proposed in a ballot."""
    return Acceptance(maker, STATE, ballot, chosen.id, after, weak=chosen.weak)


def link(makers: str, chosen: Choice, ballot: int = 0, after: str = "cd" * 32, left: str = "") -> Link:
    """What these have accepted."""
    leaves = tuple(promise(each, ballot, leaves=True) for each in left)
    acceptances = tuple(acceptance(each, chosen, ballot, after) for each in makers)
    return Link(STATE, ballot, chosen, after, leaves, acceptances)
