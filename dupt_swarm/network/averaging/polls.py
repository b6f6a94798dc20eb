"""Collecting the votes of a group: members tell theirs to a few who can be called, and hear the others'.

Everybody who can be called collects. Each member asks the first few, in an order that nobody chooses, and
turns to the next one when one is silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from dupt_swarm.fields import Digest
from dupt_swarm.network.averaging.exchange import RoundContext
from dupt_swarm.network.averaging.pledge import NO_STATE, Proof, Subject, Vote
from dupt_swarm.network.averaging.roll import LastGroups, Roll
from dupt_swarm.network.members.attendance import Electorate
from dupt_swarm.network.p2p.rpc import CallError, Callers, Message, blamed_on_caller, rpc
from dupt_swarm.node.messages import Candidate
from dupt_swarm.replica.log_entry import MEMBERS_MAX, Signed
from dupt_swarm.replica.signed import as_text, from_text
from dupt_swarm.replica.state import ReplicaState

COLLECTORS = 3  # are asked at once
ANSWER_SECONDS = 1.0  # until then an answer may wait for another vote
RETRY_SECONDS = 0.2
LOOK_SECONDS = 0.5  # who is there may change while nobody votes

logger = logging.getLogger(__name__)


class VoteMessage(Message):
    """A member's vote, and the ids of those that it knows."""

    elements_max: ClassVar[int] = 2 * MEMBERS_MAX + 8

    roll: Annotated[str, Field(pattern="^[0-9a-f]{2,80}$")]
    vote: Signed
    known: Annotated[tuple[Digest, ...], Field(max_length=2 * MEMBERS_MAX)] = ()


class VotesMessage(Message):
    """Votes that the member did not know."""

    elements_max: ClassVar[int] = 2 * MEMBERS_MAX + 8

    votes: Annotated[tuple[Signed, ...], Field(max_length=2 * MEMBERS_MAX)] = ()


Contradiction = tuple[Vote, Vote]
"""Two votes of one peer for two states."""


class BallotBox:
    """The votes of one group, as they come in.

    Attributes:
        subject: what they are about.
        votes: by voter, the first one of each.
        contradictions: by voter, what proves that it lies.
    """

    def __init__(self, subject: Subject, members: Collection[str]) -> None:
        self.subject, self.members = subject, frozenset(members)
        self.votes: dict[str, Vote] = {}
        self.contradictions: dict[str, Contradiction] = {}

    def add(self, vote: Vote) -> None:
        """Take one.

        Raises:
            ValueError: it is about something else, or of nobody in the group.
        """
        if vote.subject != self.subject or vote.maker not in self.members:
            raise ValueError("a vote of another group")
        first = self.votes.setdefault(vote.maker, vote)
        if first.digest != vote.digest:
            self.contradictions.setdefault(vote.maker, (first, vote))

    @property
    def all(self) -> dict[str, Vote]:
        """By their ids, with those that contradict others."""
        lies = [vote for pair in self.contradictions.values() for vote in pair]
        return {vote.id: vote for vote in (*self.votes.values(), *lies)}

    def certificate(self, after: str, electorate: Electorate) -> tuple[Vote, ...]:
        """The votes for ``after``, if they are a quorum, sorted by voter; those of who lies do not count."""
        found = {
            voter: vote
            for voter, vote in self.votes.items()
            if vote.digest == after and voter not in self.contradictions
        }
        if not electorate.is_quorum(found, self.members):
            return ()
        return tuple(vote for _, vote in sorted(found.items()))

    def is_lost(self, after: str, electorate: Electorate) -> bool:
        """Whether ``after`` will not get a quorum, whoever still votes for it.

        Nobody waits for those who abstain; unless somebody rejects it, so that all see whether enough do.
        """
        possible = {after, NO_STATE} if self.rejects(electorate) else {after}
        against = {voter for voter, vote in self.votes.items() if vote.digest not in possible}
        return not electorate.is_quorum(self.members - against - self.contradictions.keys(), self.members)

    def others(self, after: str, electorate: Electorate) -> tuple[str, ...]:
        """Those whose vote counts, and is neither for ``after`` nor for the state before."""
        counted = electorate.of(self.members) - self.contradictions.keys()
        known = (after, self.subject.before)
        return tuple(who for who, vote in self.votes.items() if who in counted and vote.digest not in known)

    def rejects(self, electorate: Electorate) -> bool:
        """Whether somebody whose vote counts wants the swarm to stay at the state before."""
        voters = electorate.of(self.members) - self.contradictions.keys()
        return any(vote.digest == self.subject.before for who, vote in self.votes.items() if who in voters)


@dataclass(frozen=True)
class PollResult:
    """What a group has voted for.

    Attributes:
        votes: for the state that we have computed, if they are a quorum.
        rejected: whether it has none because members want the swarm to stay at the state before.
        others: if it has none, ids of those who have voted for yet another state, or none.
    """

    votes: tuple[Vote, ...] = ()
    rejected: bool = False
    others: tuple[str, ...] = ()


class Polls:
    """Collects votes, and asks others for theirs."""

    def __init__(
        self,
        context: RoundContext,
        electorate: Callable[[], Electorate],
        expose: Callable[[Sequence[Proof]], None] = lambda _: None,
    ) -> None:
        """Begin.

        Args:
            context: to vote with.
            electorate: asked again and again, as who is there may change.
            expose: gets the proof against each peer that votes for two states, once.
        """
        self._p2p = context.p2p
        self._context, self._electorate, self._expose = context, electorate, expose
        self._boxes = LastGroups[BallotBox]()
        self._news = asyncio.Event()  # set once, at the next vote; another one takes its place then

    async def open(self) -> None:
        """Begin to collect."""
        if self._context.callable:
            await self._p2p.serve(self, self._boxes.has_member)

    def begin(self, roll: Roll) -> None:
        """Take the votes of its members from now on, who may have computed the state before we have."""
        subject = Subject(self._context.manifest.swarm_id, roll.id, roll.claim.round, roll.claim.state)
        self._boxes.keep(roll.id, BallotBox(subject, roll.members))

    async def certify(self, roll: Roll, after: str, *, accepted: bool = True) -> PollResult:
        """Vote for the state ``after``, or for staying at the state before if it is not ``accepted``.

        It is taken with a quorum's votes, whatever ours was. Waits until there are as many, or never will be,
        or the time is over.
        """
        box = self._boxes[roll.id]
        mine = self._cast(box, after if accepted else box.subject.before)
        waiting: asyncio.Queue[str] = asyncio.Queue()
        for each in self._collectors(roll):
            waiting.put_nowait(each)
        asking = [asyncio.create_task(self._ask_on(box, mine, waiting)) for _ in range(COLLECTORS)]
        try:
            async with asyncio.timeout(self._context.manifest.rounds.voting_seconds):
                while not (votes := box.certificate(after, self._electorate())):
                    if box.is_lost(after, self._electorate()):
                        logger.warning("round %d: the others vote for another state", box.subject.round + 1)
                        others = box.others(after, self._electorate())
                        return PollResult(rejected=box.rejects(self._electorate()), others=others)
                    await self._vote(LOOK_SECONDS)
                return PollResult(votes)
        except TimeoutError:
            return PollResult(others=box.others(after, self._electorate()))
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def abstain(self, roll: Roll) -> None:
        """Tell that we have computed no state, so that nobody who has waits for our vote."""
        box = self._boxes[roll.id]
        mine = self._cast(box, NO_STATE)
        told = [self._ask(each, box, mine) for each in self._collectors(roll)[:COLLECTORS]]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await asyncio.gather(*told, return_exceptions=True)

    def alone(self, round: int, before: str, after: str) -> tuple[Vote, ...]:
        """The own vote, if nobody else who is there has one."""
        subject = Subject(self._context.manifest.swarm_id, "", round, before)
        box = BallotBox(subject, [self._context.me])
        box.add(Vote.sign(subject, after, self._context.me, self._context.key))
        return box.certificate(after, self._electorate())

    @rpc(VoteMessage, VotesMessage, longest=(80_000, 800_000), callers=Callers.MEMBERS, urgent=True)
    async def rpc_vote(self, request: VoteMessage, caller: str) -> VotesMessage:
        """The votes that a member of one of our groups does not know, as soon as there is one."""
        box = self._boxes.asked_of(request.roll, caller)
        with blamed_on_caller():
            vote = Vote.read(from_text(request.vote))
            self._take(box, [vote])
        known = {*request.known, vote.id}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                while box.all.keys() <= known:
                    await self._news.wait()
        votes = [as_text(vote.data) for vote_id, vote in box.all.items() if vote_id not in known]
        return VotesMessage(votes=tuple(votes))

    def _cast(self, box: BallotBox, digest: str) -> Vote:
        """Our vote, which is in the box from now on."""
        vote = Vote.sign(box.subject, digest, self._context.me, self._context.key)
        self._take(box, [vote])
        return vote

    def _collectors(self, roll: Roll) -> list[str]:
        """Whom to ask for votes, one after the other."""
        callable = {each.maker for each in roll.statements if each.callable}
        voters = callable & self._electorate().voters  # strangers may keep what they hear to themselves
        return [each.maker for each in roll.drawn if each.maker in (voters or callable) - {self._context.me}]

    async def _ask_on(self, box: BallotBox, mine: Vote, waiting: asyncio.Queue[str]) -> None:
        """Ask one peer as long as it answers, then the next one, until cancelled."""
        while True:
            peer = await waiting.get()
            try:
                while await self._ask(peer, box, mine):
                    pass
            except (CallError, ValueError) as error:  # it may have no box yet
                logger.debug("%s tells no votes: %s", peer, error)
            waiting.put_nowait(peer)
            await asyncio.sleep(RETRY_SECONDS)

    async def _ask(self, peer: str, box: BallotBox, mine: Vote) -> bool:
        """Tell a peer our vote, and hear others; whether there was something new."""
        message = VoteMessage(roll=box.subject.roll, vote=as_text(mine.data), known=tuple(sorted(box.all)))
        votes = (await self._p2p.call(peer, Polls.rpc_vote, message)).votes
        known = {vote.data for vote in box.all.values()}
        new = [data for data in map(from_text, votes) if data not in known]
        return self._take(box, await asyncio.to_thread(lambda: list(map(Vote.read, new))))

    def _take(self, box: BallotBox, votes: Sequence[Vote]) -> bool:
        """Put them into the box; whether it did not have one of them."""
        exposed, before = set(box.contradictions), len(box.all)
        for vote in votes:
            box.add(vote)
        if liars := box.contradictions.keys() - exposed:
            self._expose([Proof.of(*box.contradictions[liar]) for liar in liars])
        if len(box.all) == before:
            return False
        self._news.set()
        self._news = asyncio.Event()
        return True

    async def _vote(self, seconds: float) -> None:
        """Until somebody has voted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()


# The trainer looks between two micro-batches. Whoever cannot look in time votes for what it has computed.
JUDGE_SECONDS = 10.0
PART_OF_VOTING = 0.5


class Judgement:
    """Asks the trainer, and waits for its answer."""

    def __init__(
        self, tell: Callable[[Candidate], None], place: Callable[[Tensor], int], voting_seconds: float
    ) -> None:
        """Begin.

        Args:
            tell: passes a candidate to the trainer.
            place: where in the shared memory a vector lies.
            voting_seconds: for which the others wait for votes.
        """
        self._tell, self._place = tell, place
        self._seconds = min(JUDGE_SECONDS, PART_OF_VOTING * voting_seconds)
        self._waiting: tuple[str, asyncio.Future[bool]] | None = None

    async def accepts(self, state: ReplicaState) -> bool:
        """Whether to vote for ``state``."""
        answer = asyncio.get_running_loop().create_future()
        self._waiting = state.digest, answer
        self._tell(Candidate(state.digest, self._place(state.anchor)))
        try:
            async with asyncio.timeout(self._seconds):
                accepted = bool(await answer)
        except TimeoutError:
            logger.info("round %d: the trainer did not look at it in time", state.round)
            return True
        finally:
            self._waiting = None
        if not accepted:
            logger.warning("round %d does harm to our held-out text: we vote against it", state.round)
        return accepted

    def hear(self, digest: str, *, accepted: bool) -> None:
        """The trainer's answer; one that comes too late is of no use."""
        if self._waiting is not None and self._waiting[0] == digest and not self._waiting[1].done():
            self._waiting[1].set_result(accepted)
