"""Finds the group of a round, and averages in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from dupt_swarm.network.averaging.exchange import ExchangeOutcome, Offer, RoundContext, RoundExchange
from dupt_swarm.network.averaging.polls import PollResult, Polls
from dupt_swarm.network.averaging.proof import Proof
from dupt_swarm.network.averaging.reduce.reduce import Reduce
from dupt_swarm.network.averaging.roll import Roll
from dupt_swarm.network.averaging.roll_call import Companions, RollCall
from dupt_swarm.network.averaging.share import Share
from dupt_swarm.network.averaging.statement import Statement
from dupt_swarm.node.messages import GroupFormed
from dupt_swarm.node.reasons import Failure

EXCHANGES: dict[str, Callable[[RoundContext], RoundExchange]] = {"reduce": Reduce, "share": Share}


class SwarmAverager:
    """Ends rounds with others.

    Attributes:
        searching: whether it is looking for the group of a round now.
    """

    def __init__(
        self,
        context: RoundContext,
        companions: Companions,
        tell: Callable[[GroupFormed], None] = lambda _: None,
        expose: Callable[[Sequence[Proof]], None] = lambda _: None,
    ) -> None:
        """``tell`` is called when a group is there, before anything is sent; for ``expose`` see `Polls`."""
        self._me, self._tell, self._expose = context.me, tell, expose
        self._limits = context.p2p.limits
        self._exchange = EXCHANGES[context.manifest.rounds.exchange](context)
        self._companions, self._rolls = companions, RollCall(context, companions)
        self._polls = Polls(context, lambda: companions.electorate, expose)
        self.searching = False

    @property
    def rejected(self) -> Counter[str]:
        """Contributions left out here, by reason."""
        return self._exchange.rejected

    async def open(self) -> None:
        """Begin to answer other peers."""
        await self._exchange.open()
        await self._rolls.open()
        await self._polls.open()

    async def average(self, offer: Offer, companions: Collection[str]) -> ExchangeOutcome:
        """Meet the peers of this round, which started from an equal state, and average with them.

        Args:
            offer: our contribution; no bytes: it was not finite.
            companions: ids of the other live oracles at this state: the group is there as soon as all have
                come, and at the end of the matchmaking time with those who have. None: there is nobody else.
        """
        if not offer.contribution:
            return ExchangeOutcome(reason=Failure.NOT_FINITE)
        statement = await self._exchange.prepare(offer)
        if not companions:
            average = await self._average_alone(offer, statement)
        else:
            roll = await self._assemble(statement, companions)
            if roll is None:
                return ExchangeOutcome(reason=Failure.NO_GROUP)
            average = await self._average_in(roll, offer)
        return average

    async def certify(
        self, offer: Offer, average: ExchangeOutcome, after: str, *, accepted: bool = True
    ) -> PollResult:
        """Vote for the state ``after``, which follows from ``average``, or against it if not ``accepted``.

        Without a quorum the round did not happen; if others come to another state, who has brought that about
        is exposed, where it can be proved.
        """
        if average.roll is None:
            result = PollResult(self._polls.alone(offer.round, offer.state, after))
        else:
            result = await self._polls.certify(average.roll, after, accepted=accepted)
        if result.votes:
            self._rolls.ended((offer.round, offer.state))
        elif average.roll is not None and result.others:
            self._expose(await self._exchange.compare(average.roll, result.others))
        return result

    async def _average_alone(self, offer: Offer, statement: Statement) -> ExchangeOutcome:
        if not self._companions.electorate.is_quorum([self._me], [self._me]):
            return ExchangeOutcome(reason=Failure.NO_QUORUM)
        return await self._exchange.alone(offer, statement)

    async def _assemble(self, statement: Statement, companions: Collection[str]) -> Roll | None:
        self.searching = True
        try:
            return await self._rolls.assemble(statement, companions)
        finally:
            self.searching = False

    async def _average_in(self, roll: Roll, offer: Offer) -> ExchangeOutcome:
        self._limits.mates = frozenset(roll.members)
        self._polls.begin(roll)
        self._tell(GroupFormed(roll.tokens, roll.mates_of(self._me)))
        average = await self._exchange.average(roll, offer)
        if average.reason:
            await self._polls.abstain(roll)
        return average

    async def abstain(self, average: ExchangeOutcome) -> None:
        """Tell that no state follows from ``average``."""
        if average.roll is not None:
            await self._polls.abstain(average.roll)
