"""Rounds of averagers, with the average that each gives away part by part put together again."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.exchange import ExchangeOutcome, Offer, RoundContext
from dupt_swarm.network.averaging.roll import Roll
from dupt_swarm.network.averaging.rounds import SwarmAverager
from dupt_swarm.network.members.attendance import Electorate
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.node.view import Peer
from dupt_swarm.replica.voters import Voters
from tests.support.contributions import encoded

DIGEST = "ab" * 32
NOBODY = Voters()


@dataclass(frozen=True)
class Received(ExchangeOutcome):
    """A round's outcome, and its average: fp32 ``[numel]``; None if the round failed."""

    values: Tensor | None = None


class Collected:
    """Takes the parts of an average."""

    def __init__(self) -> None:
        self._parts: dict[int, Tensor] = {}

    def take(self, number: int, part: Tensor) -> None:
        """See `NextState.take`."""
        assert number not in self._parts
        self._parts[number] = part

    @property
    def values(self) -> Tensor:
        """All of them, in order."""
        return torch.cat([self._parts[number] for number in range(len(self._parts))])

    def with_outcome(self, outcome: ExchangeOutcome) -> Received:
        """What a round has brought."""
        return Received(**vars(outcome), values=None if outcome.reason else self.values)


class Anybody:
    """Whom others know of: of nobody; and everybody may come."""

    at = (-1, "")
    mates = ()
    passed_over: Collection[str] = ()
    electorate = Electorate()

    def can_be_called(self, peer_id: str) -> bool:
        """See `Companions`."""
        return bool(peer_id)

    def expected_at(self, state: str) -> tuple[Peer, ...]:
        """See `Companions`."""
        del state
        return ()

    def passed_over_at(self, state: str) -> Collection[str]:
        """See `Companions`."""
        del state
        return self.passed_over

    def admits(self, peer_id: str) -> bool:
        """See `Companions`."""
        return bool(peer_id)


class Averaging:
    """One peer's averager, for vectors that need not be known beforehand.

    Attributes:
        context: of the averager.
        averager: the averager.
    """

    def __init__(self, context: RoundContext, averager_type: type[SwarmAverager] = SwarmAverager) -> None:
        self.context = context
        self.averager = averager_type(context, Anybody())

    @property
    def peer_id(self) -> str:
        """Its peer id."""
        return self.context.me

    async def average(
        self,
        contribution: bytes,
        tokens: int,
        companions: Sequence[str],
        *,
        round: int = 7,
        digest: str = DIGEST,
    ) -> Received:
        """Take part in a round."""
        collected = Collected()
        offer = Offer(contribution, tokens, round, digest, NOBODY, collected.take)
        return collected.with_outcome(await self.averager.average(offer, companions))

    async def average_in(self, roll: Roll, values: Tensor) -> Received:
        """Take part in a group that need not find itself."""
        collected = Collected()
        mine = roll.statements[roll.members.index(self.peer_id)].claim
        offer = Offer(
            encoded(values, self.context.manifest),
            mine.tokens,
            mine.round,
            mine.state,
            NOBODY,
            collected.take,
        )
        return collected.with_outcome(await self.averager._average_in(roll, offer))


async def open_averaging(manifest: Manifest, station: Any, numel: int, **context: Any) -> Averaging:
    """The averager on ``station``, which answers others from now on, and serves what its rounds give out."""
    blobs = Exchange(station.p2p)
    await blobs.start()
    averaging = Averaging(RoundContext(manifest, station.p2p, station.key, numel, blobs, **context))
    await averaging.averager.open()
    return averaging


def start_round(
    members: Sequence[Averaging],
    contributions: Sequence[Tensor],
    tokens: Sequence[int],
    *,
    awaited: Sequence[str] = (),
    **where: Any,
) -> list[asyncio.Task[Received]]:
    """All take part in a round, and wait for one another, and for ``awaited``."""
    ids = {*(each.peer_id for each in members), *awaited}
    return [
        asyncio.create_task(
            each.average(encoded(part, each.context.manifest), count, sorted(ids - {each.peer_id}), **where)
        )
        for each, part, count in zip(members, contributions, tokens, strict=True)
    ]
