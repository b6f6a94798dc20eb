"""What the trainer tells its node to do: one class per command, which names the type of its reply.

`Node` sends them, `network.service.NodeService.execute` carries them out, and mypy holds both to the
reply type: `Link.submit` returns a future of it, and `Command.reply` accepts nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from dupt_swarm.manifest.layout import Layout
from dupt_swarm.node.messages import (
    Adopted,
    AuditedRound,
    Checkup,
    Joined,
    OfferedName,
    Pulled,
    RoundResult,
    StateName,
)
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.node.view import View
from dupt_swarm.replica.ledger import Ledger
from dupt_swarm.settings import NodeSettings

DOWNLOAD_SECONDS = 4 * 3600.0  # the node itself bounds the download of a state

Reply = TypeVar("Reply")


class Command(Generic[Reply]):
    """Something to do, answered by a `Reply` or a `DuptError`.

    Attributes:
        seconds: how long the answer may take.
    """

    seconds: ClassVar[float] = 30.0

    def reply(self, reply: Reply) -> Reply:
        """``reply`` itself: who answers a command passes it through here, so that its type is checked."""
        return reply


@dataclass(frozen=True)
class LogTo(Command[None]):
    """Append what the node and its daemon print to ``path``."""

    path: Path


@dataclass(frozen=True)
class Check(Command[Checkup]):
    """Look around as a peer with these settings would, without joining."""

    seconds = 120.0
    settings: NodeSettings


@dataclass(frozen=True)
class Discover(Command[bytes]):
    """Ask these peers for the canonical manifest of their swarm (``swarm_id``, if not empty)."""

    seconds = 120.0
    initial_peers: tuple[str, ...]
    swarm_id: str


@dataclass(frozen=True)
class Predecessor:
    """A node process that has ended, and left a replica state in the shared memory.

    Attributes:
        layout: shapes of the parameters.
        ending: why it ended, for the log.
    """

    layout: Layout
    ending: str


@dataclass(frozen=True)
class Join(Command[Joined]):
    """Become a member of the swarm; comes once.

    Attributes:
        settings: of this peer.
        memory_fd: the file that trainer and node share; the state is in it from the reply on.
        predecessor: the node process that this one replaces, if it does.
    """

    seconds = DOWNLOAD_SECONDS
    settings: NodeSettings
    memory_fd: int
    predecessor: Predecessor | None = None


@dataclass(frozen=True)
class Publish(Command[None]):
    """Change the own `PeerRecord`; ``now``: the others should learn of it at once."""

    update: RecordUpdate
    now: bool = False


@dataclass(frozen=True)
class EndRound(Command[RoundResult]):
    """End the round with the contribution that the trainer has put into the shared memory.

    Attributes:
        state: the one that the contribution started from.
        size: bytes of it; 0: it was not finite, and there is nothing to be sent.
        tokens: what it stands for.
        judged: whether the trainer judges the state that a group comes to, before this peer accepts it.
    """

    state: StateName
    size: int
    tokens: int
    judged: bool = False


@dataclass(frozen=True)
class Judge(Command[None]):
    """Whether this peer should accept the `Candidate` with this digest."""

    digest: str
    accepted: bool


@dataclass(frozen=True)
class CancelRound(Command[None]):
    """Give up the round that is being ended, if there is one."""


@dataclass(frozen=True)
class Adopt(Command[Adopted]):
    """Make the newer state that was fetched the current one, if it still is newer; it is in memory.

    ``state`` is the trainer's: the node may be ahead of it by more than this.
    """

    state: StateName


@dataclass(frozen=True)
class ReadVoters(Command[tuple[StateName, tuple[str, ...]]]):
    """Which state is the current one, and the ids of those who decide what follows, sorted."""


@dataclass(frozen=True)
class Attest(Command[None]):
    """Pass on ``attestation``, what the organiser says of the swarm's state; see `organiser.attestation`."""

    attestation: str


@dataclass(frozen=True)
class WantOffered(Command[None]):
    """Have these files of the swarm's offer soon, the first one first, and fetch no others any more."""

    files: tuple[OfferedName, ...]


@dataclass(frozen=True)
class Save(Command[StateName]):
    """Write the current replica state to ``path``."""

    seconds = 300.0
    path: Path


@dataclass(frozen=True)
class Pull(Command[Pulled]):
    """Fetch a replica state and the chain that leads to it, without taking part; for observers.

    Attributes:
        path: of the file for the state.
        chain: of the file for the links; there will be none if nobody tells them.
        round: the state after so many rounds; None: the newest that the swarm agrees on.
    """

    seconds = DOWNLOAD_SECONDS
    path: Path
    chain: Path
    round: int | None


@dataclass(frozen=True)
class Audit(Command[tuple[AuditedRound, ...]]):
    """Compute past rounds again without taking part; for observers. Answered with the oldest round first.

    Attributes:
        rounds: the last so many; None: all that the peers keep.
    """

    seconds = DOWNLOAD_SECONDS
    rounds: int | None


@dataclass(frozen=True)
class ReadLedger(Command[Ledger]):
    """Read who has given what, from the links of all rounds, fetched and verified; for observers."""

    seconds = DOWNLOAD_SECONDS


@dataclass(frozen=True)
class ReadView(Command[View]):
    """Read the records of all peers now."""


@dataclass(frozen=True)
class Close(Command[None]):
    """Leave the swarm and end; there is no reply."""
