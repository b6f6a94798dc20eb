"""What a node tells its trainer, asked or unasked; plain data, pickled over a private pipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dupt_swarm.manifest.layout import Layout
from dupt_swarm.node.reasons import Failure, Fate
from dupt_swarm.node.view import View


@dataclass(frozen=True)
class Joined:
    """The node is in the swarm, and unless it is an observer's it holds a replica state.

    Attributes:
        peer_id: of this peer.
        addresses: multiaddrs at which others can reach it.
        host_maddrs: where it listens, with the ports that were free: a node started again takes them.
        manifest: canonical bytes.
        tokenizer: tokenizer.json.
        layout: shapes of the parameters.
        state: where the replica state stands.
        beginning: on whose word it is the first one here.
    """

    peer_id: str
    addresses: tuple[str, ...]
    host_maddrs: tuple[str, ...]
    manifest: bytes
    tokenizer: bytes = b""
    layout: Layout = ()
    state: StateName | None = None
    beginning: str = ""


@dataclass(frozen=True)
class StateName:
    """Identifies a replica state.

    Attributes:
        round: rounds completed.
        swarm_tokens: tokens that all rounds so far stand for.
        digest: of the state.
        place: number of its anchor among the vectors of the shared memory; None: not told.
    """

    round: int
    swarm_tokens: int
    digest: str
    place: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Lost:
    """What a branch has learnt that is left for another one.

    Attributes:
        tokens: those that the contributions of this peer stand for in it, from where the two part.
        both: those of contributions that the other branch has as well: the two parted within a round.
        since: those after the last such contribution, which may be brought again.
        origin: a file with the anchor from which they were learnt; None: it was not kept.
    """

    tokens: int
    both: int
    since: int
    origin: Path | None


@dataclass(frozen=True)
class Adopted:
    """A newer state is the node's current one, if there was one.

    Attributes:
        state: the current one.
        counted: tokens of the contributions that led to it from the trainer's state, by maker, or if that is
            of another branch, from where the two part; None: that is not known.
        lost: what the trainer's state has and the current one has not, if that is of another branch.
    """

    state: StateName
    counted: Mapping[str, int] | None = None
    lost: Lost | None = None


@dataclass(frozen=True)
class Pulled:
    """A replica state was fetched, and written to disk.

    Attributes:
        tokenizer: tokenizer.json.
        state: which one it is.
        view: the peers at that time.
    """

    tokenizer: bytes
    state: StateName
    view: View


Verdict = Literal["equal", "differs", "no longer held"]


@dataclass(frozen=True)
class AuditedRound:
    """A past round, computed again.

    Attributes:
        round: of the state that follows.
        state_digest: of that state, as the swarm claims it.
        verdict: whether the computation leads there, if it could be made.
        reason: why it differs, or could not be made; empty otherwise.
        contributions: how many went into it; 1 where the log has the average.
    """

    round: int
    state_digest: str
    verdict: Verdict
    reason: str
    contributions: int


@dataclass(frozen=True)
class GroupFormed:
    """Told by the node unasked: the group of a round is there, and the exchange begins.

    Attributes:
        tokens: tokens that all contributions of the group stand for.
        mates: ids of the other peers of the group.
    """

    tokens: int
    mates: tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """Told by the node unasked: a state that the round under way leads to, which the trainer is to judge.

    Attributes:
        digest: of the state.
        place: number of its anchor among the vectors of the shared memory.
    """

    digest: str
    place: int


@dataclass(frozen=True)
class RoundResult:
    """How the end of a round went.

    Attributes:
        state: the new state, now in the shared anchor; None if the round failed.
        reason: why it failed; None if it did not.
        tokens: tokens that went into the average, or that should have if the round failed.
        mates: ids of the peers that averaged with this one.
        seconds: how long finding the group, the exchange and the outer step took.
        own: tokens that the own contribution stands for in it, if it is in it.
    """

    state: StateName | None
    reason: Failure | None
    tokens: int
    mates: tuple[str, ...]
    seconds: float
    own: int = 0

    @property
    def tried(self) -> bool:
        """Whether the round was tried at all; see `Fate.NOT_TRIED`."""
        return self.reason is None or self.reason.fate is not Fate.NOT_TRIED


@dataclass(frozen=True)
class Traffic:
    """Told by the node unasked: bytes of messages exchanged with other peers since its start.

    Attributes:
        received: bytes, without the overhead of libp2p and below.
        sent: likewise.
        refused: what of others' messages was refused, by reason; see `REFUSED_MESSAGES`.
    """

    received: int
    sent: int
    refused: Mapping[str, int] = field(default_factory=dict)


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


@dataclass(frozen=True)
class Downloading:
    """Told by the node unasked, several times a second: how far the download of a state is.

    Attributes:
        bytes_done: bytes that are here; those that were held already count too.
        bytes_total: bytes of the state.
        bytes_per_second: received over the last seconds.
        donors: how many peers give at the moment.
    """

    bytes_done: int
    bytes_total: int
    bytes_per_second: float
    donors: int


@dataclass(frozen=True)
class LedgerPlace:
    """Told by the node unasked: what this peer has given ever, by the chain of rounds.

    Attributes:
        tokens: behind its contributions that counted.
        place: among all who have given something, from 1; None: it is not among them.
        contributors: how many these are.
        whole: whether all rounds are known, and not only those since this peer came.
    """

    tokens: int
    place: int | None
    contributors: int
    whole: bool


@dataclass(frozen=True)
class OfferedName:
    """A file of the swarm's offer: its digest, and how many bytes it has at most."""

    digest: str
    most: int


@dataclass(frozen=True)
class OfferedMissing:
    """Told by the node unasked: nobody gave a file of the swarm's offer; it will be tried again."""

    reason: str


@dataclass(frozen=True)
class LogLine:
    """Told by the node unasked: a line of its log."""

    text: str


@dataclass(frozen=True)
class Answer:
    """What the peer at an address answered in the preflight.

    Attributes:
        problem: why it said nothing, or empty; then the rest is empty too.
        version: of its program.
        manifest: its canonical bytes.
        ahead_seconds: how far its clock is ahead of ours at least; None: it did not tell the time.
    """

    problem: str
    version: str = ""
    manifest: bytes = b""
    ahead_seconds: float | None = None


@dataclass(frozen=True)
class Checkup:
    """The result of the preflight.

    Attributes:
        ports: why each address to listen on cannot be used, or an empty string.
        problem: why libp2p's daemon does not start, or empty.
        answers: what each initial peer said, by its address.
        dialled: why a peer that was asked to call us back could not at each TCP port, or an empty
            string if it could; nothing at all if no peer does that.
        rejection: why the swarm does not admit this peer, or empty; None: it wants no invitation.
    """

    ports: dict[str, str]
    problem: str
    answers: dict[str, Answer]
    dialled: dict[str, str]
    rejection: str | None = None
