"""What the trainer and its node say to one another; plain data, pickled over a private pipe."""

from __future__ import annotations

from dataclasses import dataclass

from dupt_swarm.replica.state import Layout


@dataclass(frozen=True)
class Joined:
    """The node is in the swarm and holds a replica state.

    Attributes:
        peer_id: of this peer.
        addresses: multiaddrs at which others can reach it.
        manifest: canonical bytes.
        tokenizer: tokenizer.json.
        layout: shapes of the parameters; empty for an observer, which holds no state.
        state: where the replica state stands.
    """

    peer_id: str
    addresses: tuple[str, ...]
    manifest: bytes
    tokenizer: bytes
    layout: Layout
    state: StateName | None


@dataclass(frozen=True)
class StateName:
    """Which replica state it is."""

    round: int
    tokens_total: int
    digest: str


@dataclass(frozen=True)
class RoundResult:
    """How the end of a round went.

    Attributes:
        state: the new state, now in the shared anchor; None if the round failed.
        reason: why it failed, one word for the metrics, or empty.
        tokens: tokens that went into the average, or that should have if the round failed.
        mates: ids of the peers that averaged with this one.
        seconds: how long matchmaking, all-reduce and outer step took.
    """

    state: StateName | None
    reason: str
    tokens: int
    mates: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Traffic:
    """Told by the node unasked: bytes of messages exchanged with other peers since its start.

    Attributes:
        received: bytes, without the overhead of libp2p and below.
        sent: likewise.
    """

    received: int
    sent: int


@dataclass(frozen=True)
class FetchFailed:
    """Told by the node unasked: nobody could give a newer state; it will be tried again."""


@dataclass(frozen=True)
class CatchingUp:
    """Told by the node unasked: where it stands with fetching a newer state.

    Attributes:
        fetching: a download is under way.
        newer: a state that is there for the trainer to adopt.
    """

    fetching: bool
    newer: StateName | None
