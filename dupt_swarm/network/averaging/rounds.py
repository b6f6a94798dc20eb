"""The end of a round on this node: average, outer step, votes; it returns whatever goes wrong."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import replace

from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.average import Average, Evidence, Offer
from dupt_swarm.network.averaging.averager import SwarmAverager
from dupt_swarm.network.averaging.round_counts import RoundCounts
from dupt_swarm.network.averaging.votes import Vote
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.members.signed import as_text
from dupt_swarm.network.states.round_log import RoundLog
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.node.messages import Traffic
from dupt_swarm.node.record_fields import RoundFields
from dupt_swarm.replica.log_entry import LogEntry
from dupt_swarm.replica.next_state import NextState, Take
from dupt_swarm.replica.state import ReplicaState

# Reasons for which a round fails when the voters do not come together.
WITHOUT_QUORUM = ("no_group", "no_quorum")

Accepts = Callable[[ReplicaState], Awaitable[bool]]

logger = logging.getLogger(__name__)


async def accept(_: ReplicaState) -> bool:
    """Whatever a round leads to."""
    return True


class Rounds:
    """Ends rounds, one at a time, and counts their outcomes.

    Attributes:
        under_way: whether one is being ended now.
    """

    def __init__(
        self,
        manifest: Manifest,
        store: StateStore,
        member: Membership,
        averager: SwarmAverager,
        log: RoundLog,
        traffic: Callable[[], Traffic],
    ) -> None:
        """What ends well goes into ``log``; ``traffic`` reads the bytes exchanged so far."""
        self._manifest, self._store, self._member = manifest, store, member
        self._averager, self._log = averager, log
        self._ending: asyncio.Task[tuple[Average, ReplicaState | None]] | None = None
        self._overtaken = self._cancelled = False
        self._outcomes = RoundCounts(traffic)
        self.under_way = False

    def begin(self) -> None:
        """A round is to be ended: from now on that can be given up."""
        self._cancelled = False

    async def end(
        self,
        contribution: bytes | memoryview,
        tokens: int,
        companions: tuple[str, ...],
        accepts: Accepts = accept,
    ) -> tuple[ReplicaState | None, Average, float]:
        """End the round that began with the store's state.

        Args:
            contribution: encoded; empty: it was not finite, and this round fails.
            tokens: what it stands for.
            companions: ids of the other live oracles; none: this one steps by itself.
            accepts: whether to vote for the state that a group comes to.

        Returns:
            The state that follows (None if the round failed), the average, and how many seconds it took.
        """
        if self._cancelled:
            return None, Average(reason="cancelled"), 0.0
        started, state = time.monotonic(), None
        outcome = Average(reason="network")
        self.under_way, self._overtaken = True, False
        try:
            self._ending = asyncio.create_task(self._end(contribution, tokens, companions, accepts))
            outcome, state = await self._ending
        except asyncio.CancelledError:
            outcome = Average(reason="behind" if self._overtaken else "cancelled")
        except Exception:
            # libp2p's daemon, hivemind, a hostile peer: whatever failed, training goes on.
            logger.exception("the round failed")
        finally:
            self.under_way, self._ending = False, None
        seconds = time.monotonic() - started
        if outcome.reason != "behind":  # else it is a round of the others'
            self._outcomes.note(outcome, state is not None, seconds)
        return state, outcome, seconds

    def cancel(self) -> None:
        """Give up the round that is being ended, if there is one."""
        self._cancelled = True
        if self._ending is not None:
            self._ending.cancel()

    def overtaken(self) -> None:
        """The others have ended this round without us: look no longer for a group, if there is none yet."""
        if self._averager.searching:
            self._overtaken = True
            self.cancel()

    @property
    def told(self) -> RoundFields:
        """What the own record says of the rounds so far."""
        return self._outcomes.fields(self._averager.rejected)

    def _note_attendance(self, expected: set[str], average: Average) -> None:
        """Of an exchange that failed it is not known who brought what, but for those who brought nothing."""
        lost, mates = set(average.lost), set(average.mates)
        came = set[str]() if average.reason else mates - lost
        self._member.attendance.ended((expected - mates) | lost | came, came)

    async def _end(
        self,
        contribution: bytes | memoryview,
        tokens: int,
        companions: tuple[str, ...],
        accepts: Accepts,
    ) -> tuple[Average, ReplicaState | None]:
        following = self._store.following()
        offer = self._offer(contribution, tokens, _unless_gone(following))
        expected = tuple(self._member.expected(companions))
        average, state = await self._averager.average(offer, expected), None
        # A missing peer may be dead: the next rounds do not wait for it until it publishes a new record.
        absent = set(expected).difference(average.mates) if average.mates else set()
        self._member.suspect((*average.lost, *absent))
        outcome = average  # unless what follows fails
        try:
            if not average.reason:
                outcome, state = await self._finish(offer, average, following, accepts)
        finally:
            if average.mates or average.reason == "no_group":
                self._note_attendance(set(expected), average)
        self._member.note_attempt(
            found_quorum=outcome.reason not in WITHOUT_QUORUM, rejected=outcome.reason == "rejected"
        )
        return outcome, state

    async def _finish(
        self, offer: Offer, outcome: Average, following: NextState, accepts: Accepts
    ) -> tuple[Average, ReplicaState | None]:
        """The outer step with a complete average, and the votes on it.

        Nothing but a state with a quorum discards what the trainer did.
        """
        assert outcome.evidence is not None
        try:
            after = following.finish(outcome.tokens, outcome.contributors)
        except OverflowError:
            await self._averager.abstain(outcome)
            return replace(outcome, reason="outer_overflow", evidence=None), None
        # Alone there is nobody who would do harm.
        accepted = outcome.roll is None or await accepts(after)
        result = await self._averager.certify(offer, outcome, after.digest, accepted=accepted)
        if not result.votes:
            reason = "rejected" if result.rejected else "no_quorum"
            return replace(outcome, reason=reason, evidence=None), None
        self._note(outcome.evidence, result.votes, following.before, after)
        return outcome, after

    def _note(
        self, evidence: Evidence, votes: tuple[Vote, ...], before: ReplicaState, after: ReplicaState
    ) -> None:
        entry = LogEntry(
            round=after.round,
            before=before.digest,
            after=after.digest,
            exchange=self._manifest.rounds.exchange,
            members=evidence.members,
            inputs=evidence.inputs,
            votes=tuple(as_text(vote.data) for vote in votes),
        )
        self._log.add(entry, evidence.blobs, before)

    def _offer(self, contribution: bytes | memoryview, tokens: int, take: Take) -> Offer:
        state = self._store.current
        weight = max(1, int(min(tokens, self._manifest.weight_limit(state.round))))
        return Offer(contribution, weight, state.round, state.digest, state.voters, take)


def _unless_gone(following: NextState) -> Take:
    """`following.take`, which does not keep it: a failed exchange may linger in a traceback."""
    method = weakref.WeakMethod(following.take)

    def take(number: int, average: Tensor) -> None:
        if (still_there := method()) is not None:
            still_there(number, average)

    return take
