"""What every exchange takes and gives: an offer to a group, and what becomes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.pledge import Proof
from dupt_swarm.network.averaging.roll import Roll, Statement
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.node.reasons import Failure
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.log_entry import Input
from dupt_swarm.replica.next_state import Take
from dupt_swarm.replica.voters import Voters


@dataclass(frozen=True)
class Evidence:
    """What the log keeps of a round, so that it can be computed again.

    Attributes:
        inputs: what went into the average, in the order of the arithmetic.
        members: peer ids of the group.
        blobs: of the inputs, by digest.
    """

    inputs: tuple[Input, ...]
    members: tuple[str, ...]
    blobs: Mapping[str, Blob]


@dataclass(frozen=True)
class ExchangeOutcome:
    """How one round's exchange has ended here; the average itself was given away part by part.

    Attributes:
        tokens: tokens that went into it; of a failed round, those that should have.
        mates: ids of the other peers of the group.
        reason: why it failed; None if it did not.
        lost: peers that did not do their share.
        included: whether the own contribution is in it.
        contributors: ids of the peers whose contributions are in it.
        roll: of the group; None: there was nobody else.
        evidence: for the log; None if the round failed.
    """

    tokens: int = 0
    mates: tuple[str, ...] = ()
    reason: Failure | None = None
    lost: tuple[str, ...] = ()
    included: bool = True
    contributors: tuple[str, ...] = ()
    roll: Roll | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True)
class Offer:
    """A contribution, ready for a group.

    Attributes:
        contribution: encoded.
        tokens: that it stands for.
        round: rounds completed before the one that ends.
        state: digest of the replica state that it started from.
        voters: of that state.
        take: gets the average, part by part as it arrives, in threads; of a failed round some parts, or none.
    """

    contribution: bytes | memoryview
    tokens: int
    round: int
    state: str
    voters: Voters
    take: Take


@dataclass(frozen=True)
class RoundContext:
    """What a peer ends its rounds with.

    Attributes:
        manifest: of the swarm.
        p2p: the daemon.
        key: the peer's identity.
        numel: values of the vector that is averaged.
        blobs: serves and fetches blobs; None: there are none.
        callable: whether others can call this peer.
    """

    manifest: Manifest
    p2p: GuardedP2P
    key: RSAPrivateKey
    numel: int
    blobs: Exchange | None = None
    callable: bool = True

    @property
    def me(self) -> str:
        """The own peer id."""
        return str(self.p2p.peer_id)

    def sign_statement(self, claim: Claim, digest: str = "") -> Statement:
        """Our statement of a contribution; ``digest`` is that of its blob, if it is one."""
        return Statement.make(self.manifest.swarm_id, claim, digest, self.key, callable=self.callable)


class RoundExchange(Protocol):
    """How contributions become an average; `rounds.exchange` of the manifest names one.

    Attributes:
        rejected: contributions left out here, by reason.
    """

    rejected: Counter[str]

    async def open(self) -> None:
        """Begin to serve other members."""

    async def prepare(self, offer: Offer) -> Statement:
        """Make a contribution ready, before the group is looked for; what we state of it there."""

    async def alone(self, offer: Offer, statement: Statement) -> ExchangeOutcome:
        """The average of a round in which there is nobody else: the same arithmetic as in a group."""

    async def average(self, roll: Roll, offer: Offer) -> ExchangeOutcome:
        """Average in a group, we being on its roll with what was prepared."""

    async def compare(self, roll: Roll, others: Collection[str]) -> Sequence[Proof]:
        """Find out why these members of the group have computed another state than we have.

        Returns:
            Against each peer that has brought it about; nothing, if that cannot be proved. It raises nothing,
            and takes two seconds at most.
        """
