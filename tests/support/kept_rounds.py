"""Rounds with really signed links, and what went into them, without a swarm that made them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Acceptance, Brought, Choice, Link, Promise
from dupt_swarm.replica.replay import contribution_form, replay
from dupt_swarm.replica.signed_words import W
from dupt_swarm.replica.state import ReplicaState
from tests.support.contributions import encoded
from tests.support.signed_records import id_of
from tests.support.words import said

NUMEL = 1000
NOTHING = "0" * 64
TOKENS = 10
# Tables of a manifest: the average of exact contributions is added as it is.
EXACT: dict[str, dict[str, Any]] = {
    "encoding": {"contribution": "fp32"},
    "outer": {"optimizer": "nesterov", "momentum": 0.0, "learning_rate": 1.0},
}


def forged(link: Link) -> Link:
    """One of its signatures is wrong by a bit."""
    first, *others = link.acceptances
    signed = first.signed[:-9] + bytes([first.signed[-9] ^ 1]) + first.signed[-8:]
    return replace(link, acceptances=(replace(first, signed=signed), *others))


@dataclass
class Shelf:
    """What a peer gives beside its state."""

    found: dict[str, Blob]

    def get(self, digest: str) -> Blob | None:
        return self.found.get(digest)

    @property
    def blobs(self) -> list[Blob]:
        return list(self.found.values())


@dataclass
class KeptRounds:
    """What the owners of ``keys`` did; the first of them decide.

    The first state is of ones, and of round 1, if none is given.

    Attributes:
        manifest: of the swarm.
        keys: of all who ever sign anything.
        electing: how many of them decide at the first state.
        states: one more than there are links.
        links: of the rounds.
        blobs: of all contributions, by digest.
    """

    manifest: Manifest
    keys: Sequence[Ed25519PrivateKey]
    electing: int
    states: list[ReplicaState] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    blobs: dict[str, Blob] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.states:
            electorate = Electorate().after(self.ids[: self.electing], weak=True)
            self.states.append(ReplicaState(1, 0, ((NUMEL,),), torch.ones(NUMEL), {}, electorate))

    @classmethod
    def from_round_0(
        cls, manifest: Manifest, keys: Sequence[Ed25519PrivateKey], first: ReplicaState | None = None
    ) -> KeptRounds:
        """All of them decide after the first round, a weak one, which leaves the state ``first``."""
        state = first or ReplicaState(0, 0, ((NUMEL,),), torch.ones(NUMEL), {})
        found = cls(manifest, keys, len(keys), [state])
        return found.go_on(1, weak=True)

    def chain(self, rounds: int | None = None) -> Chain:
        """Of the first so many rounds; None: of all."""
        found = Chain(self.states[0].digest, self.states[0].electorate)
        found.follow(self.links[:rounds])
        return found

    @property
    def ids(self) -> list[str]:
        """Peer ids of the keys' owners."""
        return [id_of(key) for key in self.keys]

    def branch(self, rounds: int) -> KeptRounds:
        """The same until so many rounds, to go on differently."""
        states, links = self.states[: rounds + 1], self.links[:rounds]
        return replace(self, states=states, links=links, blobs=dict(self.blobs))

    def values(self, number: int) -> torch.Tensor:
        """A contribution."""
        return torch.full_like(self.states[0].anchor, 0.01 * (1 + number))

    def contribute(self, values: torch.Tensor, number: int = 0) -> Brought:
        """What the owner of that key brings to the next round: these values."""
        state, maker = self.states[-1], self.ids[number]
        claim = Claim(state.round, state.digest, TOKENS, maker)
        blob = contribution_form(self.manifest, len(values)).build(claim, encoded(values, self.manifest))
        self.blobs[blob.digest] = blob
        return Brought(maker, blob.digest, TOKENS)

    def choice(
        self, values: torch.Tensor, by: Collection[int], left: Collection[int] = (), *, weak: bool = False
    ) -> Choice:
        """What these bring, when those have left: each these values."""
        brought = sorted((self.contribute(values, each) for each in by), key=lambda each: each.maker)
        return Choice(tuple(brought), tuple(sorted(self.ids[each] for each in left)), weak)

    def link(self, choice: Choice, after: str, by: Collection[int], left: Collection[int] = ()) -> Link:
        """The next one, to the state ``after``, as these have signed it when those had left."""
        before = self.states[-1].digest
        leaves = [self._signed(each, Promise(self.ids[each], before, 0, leaves=True)) for each in left]
        acceptances = [
            self._signed(each, Acceptance(self.ids[each], before, 0, choice.id, after, weak=choice.weak))
            for each in by
        ]
        return Link(before, 0, choice, after, tuple(leaves), tuple(acceptances))

    def _signed(self, number: int, word: W) -> W:
        return said(self.manifest.swarm_id, self.keys[number], word)

    def end_round(
        self,
        by: Collection[int] | None = None,
        left: Collection[int] = (),
        *,
        weak: bool = False,
        number: int | None = None,
    ) -> Link:
        """An honest round in which these bring and accept: those who decided at first, if none are named.

        ``number``: of the contribution, that of the round if none is given.
        """
        there = range(self.electing) if by is None else by
        values = self.values(len(self.links) if number is None else number)
        choice = self.choice(values, there, left, weak=weak)
        trial = self.link(choice, NOTHING, ())
        state = replay(self.manifest, self.states[-1], trial, self.blobs)
        self.links.append(self.link(choice, state.digest, there, left))
        self.states.append(state)
        return self.links[-1]

    def go_on(self, count: int, by: Collection[int] | None = None, *, weak: bool = False) -> KeptRounds:
        """The same after so many of them. Of ``weak`` ones the first is: then those who bring it decide."""
        for number in range(count):
            self.end_round(by, weak=weak and not number)
        return self
