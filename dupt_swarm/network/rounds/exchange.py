"""What every exchange does: how contributions come to the members of a round, and become an average."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from dupt_swarm.network.rounds.round import Roll
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.link import Brought, Choice
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.state import ReplicaState


@dataclass(frozen=True)
class Averaged:
    """What an average was made of.

    Attributes:
        tokens: those that it stands for.
        counted: ids of the peers whose contributions are in it.
        blobs: what it can be computed from again, by digest.
        rejected: how many contributions were left out of it, by reason.
    """

    tokens: int
    counted: tuple[str, ...]
    blobs: Mapping[str, Blob]
    rejected: Counter[str]


class Floor(Protocol):
    """What an exchange sees of the round that it serves."""

    @property
    def before(self) -> ReplicaState:
        """The state that is being left."""

    @property
    def wanted(self) -> Collection[Brought]:
        """Contributions that others bring, and that are not here yet."""

    @property
    def roll(self) -> Roll | None:
        """Those who end the present ballot together; None: that is not known yet."""

    @property
    def proposed(self) -> Choice | None:
        """What was proposed, if anything was."""

    def donors(self, brought: Brought) -> list[str]:
        """Ids of the others who may have it, the likeliest first."""

    def hold(self, digests: Collection[str]) -> None:
        """These contributions are here now, or in an average that is."""

    def give_up(self, roll: Roll) -> None:
        """What these bring cannot be had."""

    async def change(self, seconds: float) -> None:
        """Wait until something has changed, but not for longer."""


class RoundExchange(Protocol):
    """How contributions become an average; `rounds.exchange` of the manifest names one.

    Attributes:
        lasting: whether what was got for one ballot is of use for the next one; see `Stock`.
    """

    lasting: bool

    async def open(self) -> None:
        """Begin to serve other members."""

    async def prepare(self, contribution: bytes | memoryview, claim: Claim) -> Brought:
        """Make a contribution ready, before anybody hears of it.

        Args:
            contribution: encoded, as the manifest has it; it may change afterwards.
            claim: what it is.

        Raises:
            ValueError: it does not have the size that it should.
        """

    async def run(self, floor: Floor) -> None:
        """Get what others bring, until cancelled."""

    async def average(self, following: NextState, choice: Choice) -> Averaged:
        """The average of what was chosen, all of which is here.

        Args:
            following: takes the average, part by part, in threads.
            choice: what was chosen.

        Raises:
            ValueError: none of the contributions is sound.
        """
