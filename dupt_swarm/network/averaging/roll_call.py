"""Finding the group of a round: those who have come to one coordinator, which signs the roll of them.

Who coordinates follows from the state and from who is at it, so nobody applies for it, and each round it is
another one. All ask it, again and again, until it names those who have come. When it dies, stalls or lies,
they turn to the next one. Nobody has to be able to call a member: members only ask.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import Field

from dupt_swarm.fields import Count, Digest, PeerId
from dupt_swarm.network.averaging.exchange import RoundContext
from dupt_swarm.network.averaging.gathering import LEAST_MEMBERS, Gathering, loop_time
from dupt_swarm.network.averaging.roll import Roll, Statement
from dupt_swarm.network.host import background
from dupt_swarm.network.members.attendance import Electorate
from dupt_swarm.network.p2p.rpc import CallError, Callers, Message, Refusal, blamed_on_caller, rpc
from dupt_swarm.node.view import Peer
from dupt_swarm.replica.draw import drawn
from dupt_swarm.replica.log_entry import MEMBERS_MAX, Signed
from dupt_swarm.replica.signed import as_text, from_text

ASKED_MAX = 8
ANSWER_SECONDS = 0.5  # an answer may take

logger = logging.getLogger(__name__)


class StateMessage(Message):
    """A state at which a member looks for its group."""

    round: Count
    state: Digest


class CoordinatorMessage(Message):
    """Whom the member asks for the roll; empty: nobody."""

    coordinator: PeerId | Literal[""] = ""


State = tuple[int, str]
"""A round's number, from 0, and the digest of the state that it began with."""


class Coordinators:
    """Tells others whom this peer asks, and asks them.

    Attributes:
        asked: who may coordinate a round, and its state; nobody: this peer does, or looks for no group.
    """

    def __init__(self, context: RoundContext) -> None:
        self._p2p = context.p2p
        self.asked: tuple[str, State] = ("", (-1, ""))

    async def open(self) -> None:
        """Begin to tell."""
        await self._p2p.serve(self)

    @rpc(StateMessage, CoordinatorMessage, longest=(256, 256), seconds=ANSWER_SECONDS, urgent=True)
    async def rpc_coordinator(self, request: StateMessage, caller: str) -> CoordinatorMessage:
        """Whom this peer asks for the roll of a state."""
        del caller
        coordinator, state = self.asked
        return CoordinatorMessage(coordinator=coordinator if state == (request.round, request.state) else "")

    async def of_most(self, members: Sequence[str], state: State) -> str:
        """Whom most of some of these ask for the roll of ``state``; empty: nobody."""
        asked = random.sample(members, min(ASKED_MAX, len(members)))
        named = Counter(await asyncio.gather(*(self._of(each, state) for each in asked)))
        return next((each for each, count in named.items() if 2 * count > len(asked)), "")

    async def _of(self, member: str, state: State) -> str:
        """Whom this one asks; empty: nobody, or it does not say."""
        message = StateMessage(round=state[0], state=state[1])
        try:
            return (await self._p2p.call(member, Coordinators.rpc_coordinator, message)).coordinator
        except CallError as error:
            logger.debug("%s does not say whom it asks: %s", member, error)
            return ""


# Members that are late, or ahead, may ask about other states than ours.
GATHERINGS_MAX = 8
ENDED_KEPT = 8
RETRY_SECONDS = 0.1
ROLL_BYTES_MAX = 1 << 20  # with 256 statements
# Of one coordinator that was in a group with us: a connection may break, or be made just now. Of all others
# one is enough, as a record may name the address of a bystander.
FAILURES_MAX = 3
# Of `matchmaking_seconds`: a coordinator may wait for the last members since it has come itself, which may be
# as long after the first one.
STALL_RATIO = 2.0
SILENCE_SECONDS_MIN = 1.0  # a call takes its time on a busy machine


class JoinMessage(Message):
    """What a member brings."""

    statement: Signed


class RollMessage(Message):
    """The roll, and the statements on it; both empty: not yet."""

    elements_max: ClassVar[int] = MEMBERS_MAX + 8

    roll: Signed = ""
    statements: Annotated[tuple[Signed, ...], Field(max_length=MEMBERS_MAX)] = ()

    @classmethod
    def of(cls, roll: Roll | None) -> RollMessage:
        """The message of ``roll``."""
        if roll is None:
            return cls()
        return cls(roll=as_text(roll.data), statements=tuple(as_text(each.data) for each in roll.statements))


class Companions(Protocol):
    """What records tell of the oracles."""

    @property
    def at(self) -> State:
        """Where this peer is."""

    @property
    def electorate(self) -> Electorate:
        """Whose votes on the round count."""

    @property
    def mates(self) -> Collection[str]:
        """Peers that were in a group with this one."""

    def expected_at(self, state: str) -> Iterable[Peer]:
        """The others that work on the round after ``state`` now, and may be waited for."""

    def passed_over_at(self, state: str) -> Collection[str]:
        """Ids of the others that say so, and are not waited for; but none that has contradicted itself."""

    def admits(self, peer_id: str) -> bool:
        """Whether this peer may be in a group."""

    def can_be_called(self, peer_id: str) -> bool:
        """Whether others can call this peer, as far as is known."""


class RollCall:
    """Finds groups, and coordinates those that fall to this peer."""

    def __init__(self, context: RoundContext, companions: Companions) -> None:
        self._context, self._companions, self._coordinators = context, companions, Coordinators(context)
        self._me, self._manifest = context.me, context.manifest
        self._patience = context.manifest.rounds.matchmaking_seconds
        self._silence = max(self._patience / 2, SILENCE_SECONDS_MIN)
        self._gatherings: dict[State, Gathering] = {}
        self._searched: State = (-1, "")
        self._unfit: set[str] = set()  # who did not coordinate there
        self._had_turn: set[str] = set()  # who did: for nothing, if we look for a group there again
        self._ended: deque[State] = deque(maxlen=ENDED_KEPT)

    async def open(self) -> None:
        """Begin to coordinate."""
        if self._context.callable:
            await self._context.p2p.serve(self, self._companions.admits)
            await self._coordinators.open()

    def ended(self, state: State) -> None:
        """The round that began with ``state`` has ended here: nobody is to end it again."""
        self._ended.append(state)

    # Members are those who may be in a group: nobody who came too often and brought nothing.
    @rpc(JoinMessage, RollMessage, longest=(4096, ROLL_BYTES_MAX), callers=Callers.MEMBERS, urgent=True)
    async def rpc_join(self, request: JoinMessage, caller: str) -> RollMessage:
        """The roll, once it is called; a refusal for who brings nothing that this round could use."""
        with blamed_on_caller():
            statement = self._read(request.statement)
            if statement.maker != caller:
                raise ValueError("a member brings the statement of another")
            state, (round, digest) = _state_of(statement), self._companions.at
            if state[1] == digest and state[0] != round:
                raise ValueError("a round that did not begin with this state")
        gathering = self._gathering(state)
        on_roll = gathering.roll is not None and statement in gathering.roll.statements
        if state in self._ended and not on_roll:
            raise CallError(Refusal.NOT_HELD, "this round has ended")
        return RollMessage.of(await gathering.answer(statement))

    async def assemble(self, statement: Statement, companions: Collection[str]) -> Roll | None:
        """The roll with ``statement`` on it; None: nobody else has come in time.

        ``companions`` are the ids of the other live oracles at this state, for whom a coordinator waits.
        """
        state = _state_of(statement)
        if state != self._searched:
            self._searched, self._unfit, self._had_turn = state, set(), set()
        search, gathering = Search(companions, self._unfit), self._gathering(state)
        me = {self._me} if self._context.callable else set()
        try:
            while search.seconds < self._manifest.rounds.searching_seconds:
                search.note(self._present(state))
                candidates = await self._candidates(search) | me
                # Strangers coordinate only where there is nobody else: a coordinator can waste a round.
                voters = candidates & self._companions.electorate.voters or candidates
                order = drawn(voters - self._had_turn or voters, state[1])
                if not order:
                    break
                coordinator = order[0]
                self._coordinators.asked = (coordinator if coordinator != self._me else "", state)
                async with background(self._look_for_the_others(state, search, voters - {self._me})):
                    if coordinator == self._me:
                        gathering.awaited = search.awaited | {self._me}
                        roll = await gathering.answer(statement)
                    else:
                        gathering.leave(self._me)
                        roll = await self._ask(coordinator, statement, search)
                if roll is not None:
                    self._had_turn.add(coordinator)
                    return roll
            # One who was late, or out of reach for a moment, has another chance.
            self._unfit, self._had_turn = set(), set()
            return None
        finally:
            self._coordinators.asked = ("", state)
            gathering.leave(self._me)

    async def _candidates(self, search: Search) -> set[str]:
        """Those connected, or in a group with us before: a record may name the address of a bystander."""
        met = {str(each.peer_id) for each in await self._context.p2p.list_peers()} | {*self._companions.mates}
        return {each for each in search.candidates & met if self._companions.can_be_called(each)}

    async def _look_for_the_others(self, state: State, search: Search, others: set[str]) -> None:
        """They may be with one whom only we pass over."""
        passed_over = set(self._companions.passed_over_at(state[1]))
        passed_over &= self._companions.electorate.voters or passed_over
        if passed_over:
            found = await self._coordinators.of_most(sorted(others - passed_over), state)
            search.preferred = found if found in passed_over else search.preferred

    async def _ask(self, coordinator: str, statement: Statement, search: Search) -> Roll | None:
        """The roll that the coordinator has called, if it has; if it does not do its duty, we give it up."""
        asked, waited = loop_time(), search.waited_for(coordinator)
        try:
            roll = await self._call(coordinator, statement)
            if roll is not None:
                _check_roll(roll, coordinator, statement)
                return roll
            if waited > STALL_RATIO * self._patience:
                raise ValueError("it has not called the roll in time")
        except (ValueError, CallError) as error:
            if isinstance(error, CallError) and error.refusal not in (Refusal.NO_ANSWER, Refusal.NONSENSE):
                logger.info("%s cannot be asked for the roll: %s", coordinator, error)
                search.failed(coordinator, FAILURES_MAX if coordinator in self._companions.mates else 1)
            else:
                logger.warning("%s does not coordinate: %s", coordinator, error)
                search.give_up(coordinator)
        await asyncio.sleep(asked + RETRY_SECONDS - loop_time())
        return None

    async def _call(self, coordinator: str, statement: Statement) -> Roll | None:
        message = JoinMessage(statement=as_text(statement.data))
        reply = await self._context.p2p.call(coordinator, RollCall.rpc_join, message, self._silence)
        return await asyncio.to_thread(self._read_roll, reply)  # it has many signatures

    def _present(self, state: State) -> set[str]:
        return {each.peer_id for each in self._companions.expected_at(state[1])}

    def _gathering(self, state: State) -> Gathering:
        """Of those at this state; strangers who invent states push out none that anybody is at."""

        def call(statements: Sequence[Statement]) -> Roll:
            return Roll.call(self._me, self._context.key, statements)

        if state not in self._gatherings:
            self._gatherings[state] = Gathering(
                self._me,
                call,
                lambda: self._present(state),
                lambda: self._companions.electorate,
                self._companions.admits,
                self._manifest.rounds,
            )
            others = [each for each in self._gatherings if each != state]
            if len(others) >= GATHERINGS_MAX:
                del self._gatherings[min(others, key=self._worth)]
        return self._gatherings[state]

    def _worth(self, state: State) -> tuple[bool, int]:
        """How much it matters that the gathering of this state stays."""
        return state in (self._companions.at, self._searched), len(self._present(state))

    def _read(self, text: str) -> Statement:
        statement = Statement.read(from_text(text), self._manifest.swarm_id)
        limit = self._manifest.weight_limit(statement.claim.round)
        if statement.claim.tokens > limit:
            raise ValueError(f"a member has the weight {statement.claim.tokens}; the most is {limit:g}")
        return statement

    def _read_roll(self, message: RollMessage) -> Roll | None:
        if not message.roll:
            return None
        statements = [self._read(each) for each in message.statements]
        return Roll.read(from_text(message.roll), statements)


def _check_roll(roll: Roll, coordinator: str, mine: Statement) -> None:
    if roll.coordinator != coordinator:
        raise ValueError("a roll that somebody else has called")
    if mine not in roll.statements:
        raise ValueError("a roll without us")
    if len(roll.statements) < LEAST_MEMBERS or not any(each.callable for each in roll.statements):
        raise ValueError("a roll that nobody can end a round with")


def _state_of(statement: Statement) -> State:
    return statement.claim.round, statement.claim.state


class Search:
    """One search for a group: whom the member waits for, whom it may ask, and who did not coordinate.

    Attributes:
        preferred: whom most others ask for the roll, if that is one for whom this member would not wait.
    """

    def __init__(self, companions: Collection[str], unfit: set[str]) -> None:
        """``unfit``: peers that did not coordinate in a search before; others come to it."""
        self._companions, self._seen, self._unfit = set(companions), set[str](), unfit
        self.preferred = ""
        self._failures: Counter[str] = Counter()
        self._asked: dict[str, float] = {}
        self._began = loop_time()

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return loop_time() - self._began

    @property
    def awaited(self) -> set[str]:
        """Those who should come: who does not do what a coordinator does is neither asked nor awaited."""
        return self._companions - self._unfit

    @property
    def candidates(self) -> set[str]:
        """Those who may coordinate."""
        return (self._companions | {self.preferred}) - self._unfit

    def note(self, present: Iterable[str]) -> None:
        """These are at the state now; who was and is no longer has left it."""
        seen = set(present)
        self._companions = (self._companions - (self._seen - seen)) | seen
        self._seen = seen

    def waited_for(self, coordinator: str) -> float:
        """Seconds since this one was asked first."""
        return loop_time() - self._asked.setdefault(coordinator, loop_time())

    def failed(self, coordinator: str, tolerated: int) -> None:
        """It could not be asked; so many times are too many."""
        self._failures[coordinator] += 1
        if self._failures[coordinator] >= tolerated:
            self.give_up(coordinator)

    def give_up(self, coordinator: str) -> None:
        """It dies, stalls or lies."""
        self._unfit.add(coordinator)
