"""Finding the group of a round: those who have come to one coordinator, which signs the roll of them.

Who coordinates follows from the state and from who is at it, so nobody applies for it, and each round it is
another one. All ask it, again and again, until it names those who have come. When it dies, stalls or lies,
they turn to the next one. Nobody has to be able to call a member: members only ask.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Protocol

from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2PContext, PeerID, ServicerBase
from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.network.averaging.average import Means
from dupt_swarm.network.averaging.gathering import LEAST_MEMBERS, Gathering
from dupt_swarm.network.averaging.roll import Roll, RollId
from dupt_swarm.network.averaging.statement import Statement
from dupt_swarm.node.view import Peer
from dupt_swarm.replica.log_entry import MEMBERS_MAX, Signed

# Members that are late, or ahead, may ask about other rounds than ours.
GATHERINGS_MAX = 8
RETRY_SECONDS = 0.1  # a coordinator that answers at once, and nothing
# Longer than a coordinator may wait for the last members.
STALL_RATIO = 1.25
# Then those are left that one asks; in all, a group is sought for so many times `matchmaking_seconds`.
SEARCH_RATIO = 1.5

logger = logging.getLogger(__name__)


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class JoinMessage(_Message):
    """What a member brings, and the last roll of the same state, which came to nothing."""

    statement: Signed
    after: RollId = ""


class RollMessage(_Message):
    """The roll, and the statements on it; both empty: not yet."""

    roll: Signed = ""
    statements: Annotated[list[Signed], Field(max_length=MEMBERS_MAX)] = []

    @classmethod
    def of(cls, roll: Roll | None) -> RollMessage:
        """The message of ``roll``."""
        if roll is None:
            return cls()
        return cls(roll=_text(roll.data), statements=[_text(each.data) for each in roll.statements])


class Companions(Protocol):
    """Who the other oracles are."""

    def expected_at(self, state: str) -> Iterable[Peer]:
        """Those that work on the round after ``state`` now, as records show, and may be waited for."""

    def admits(self, peer_id: str) -> bool:
        """Whether this peer may be in a group."""


class RollCall(ServicerBase):  # type: ignore[misc]
    """Finds groups, and coordinates those that fall to this peer."""

    def __init__(self, means: Means, companions: Companions) -> None:
        self._means, self._companions = means, companions
        self._me, self._manifest = means.me, means.manifest
        self._patience = means.manifest.rounds.matchmaking_seconds
        self._silence = self._patience / 2
        self._gatherings: dict[tuple[int, str], Gathering] = {}
        self._last: Roll | None = None
        self._ended = -1

    async def open(self) -> None:
        """Begin to coordinate."""
        if self._means.callable:
            await self.add_p2p_handlers(self._means.p2p, namespace=self._manifest.swarm_id)

    def ended(self, round: int) -> None:
        """The round after ``round`` has ended here: nobody is to end it again."""
        self._ended = max(self._ended, round)

    async def rpc_join(self, request: BytesValue, context: P2PContext) -> BytesValue:
        """The roll, once it is called; an error for who brings nothing that this round could use."""
        message = JoinMessage.model_validate_json(request.value)
        statement = self._read(message.statement)
        if statement.maker != str(context.remote_id):
            raise ValueError("a member brings the statement of another")
        if not self._companions.admits(statement.maker):
            raise ValueError("you came too often and brought nothing; later you may come again")
        gathering = self._gathering(statement)
        on_roll = gathering.roll is not None and statement in gathering.roll.statements
        if statement.claim.round <= self._ended and not on_roll:
            raise ValueError("this round has ended")
        roll = await gathering.answer(statement, message.after)
        return BytesValue(value=RollMessage.of(roll).model_dump_json().encode())

    async def assemble(self, statement: Statement, companions: Collection[str]) -> Roll | None:
        """The roll with ``statement`` on it; None: nobody else has come in time.

        ``companions`` are the ids of the other live oracles at this state, and are waited for.
        """
        failed = self._last if self._last is not None and _is_about(self._last, statement) else None
        message = JoinMessage(statement=_text(statement.data), after=failed.id if failed else "")
        search, gathering = _Search(companions), self._gathering(statement)
        me = self._me if self._means.callable else ""
        try:
            while search.seconds < SEARCH_RATIO * self._patience:
                search.note(self._companions.expected_at(statement.claim.state))
                coordinator = search.coordinator(me, statement.claim.state)
                if coordinator is None:
                    break
                if coordinator == self._me:
                    gathering.awaited = search.awaited | {self._me}
                    roll = await gathering.answer(statement, message.after)
                else:
                    gathering.leave(self._me)
                    roll = await self._ask(coordinator, statement, message, search)
                if roll is not None:
                    self._last = roll
                    return roll
            return None
        finally:
            gathering.leave(self._me)

    async def _ask(
        self, coordinator: str, statement: Statement, message: JoinMessage, search: _Search
    ) -> Roll | None:
        """The roll that the coordinator has called, if it has; if it does not do its duty, we give it up."""
        asked = _now()
        patience = STALL_RATIO * self._patience - search.waited_for(coordinator)
        try:
            async with asyncio.timeout(self._silence):
                stub = self.get_stub(
                    self._means.p2p, PeerID.from_base58(coordinator), namespace=self._manifest.swarm_id
                )
                reply = await stub.rpc_join(BytesValue(value=message.model_dump_json().encode()))
            roll = self._read_roll(reply.value)
            if roll is not None:
                _check_roll(roll, coordinator, statement, message.after)
                return roll
        except Exception as error:
            # It may fail in any way that libp2p knows, or answer nonsense.
            logger.warning("%s does not coordinate: %r", coordinator, error)
            patience = 0.0
        if patience <= 0:
            search.give_up(coordinator)
        await asyncio.sleep(asked + RETRY_SECONDS - _now())
        return None

    def _gathering(self, statement: Statement) -> Gathering:
        """Of those at this state."""

        def call(statements: Sequence[Statement], after: str) -> Roll:
            return Roll.call(self._me, self._means.key, statements, after)

        state = statement.claim.round, statement.claim.state
        found = self._gatherings.pop(state, None) or Gathering(call, self._patience, self._silence)
        self._gatherings[state] = found  # those that are asked about last go last
        for old in list(self._gatherings)[:-GATHERINGS_MAX]:
            del self._gatherings[old]
        return found

    def _read(self, text: str) -> Statement:
        statement = Statement.read(base64.b64decode(text, validate=True), self._manifest.swarm_id)
        limit = self._manifest.weight_limit(statement.claim.round)
        if statement.claim.tokens > limit:
            raise ValueError(f"a member has the weight {statement.claim.tokens}; the most is {limit:g}")
        return statement

    def _read_roll(self, data: bytes) -> Roll | None:
        message = RollMessage.model_validate_json(data)
        if not message.roll:
            return None
        statements = [self._read(each) for each in message.statements]
        return Roll.read(base64.b64decode(message.roll, validate=True), statements)


class _Search:
    """What one search for a group has come to know."""

    def __init__(self, companions: Collection[str]) -> None:
        self._companions, self._hidden = set(companions), set[str]()
        self._given_up: set[str] = set()
        self._asked: dict[str, float] = {}
        self._began = _now()

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return _now() - self._began

    @property
    def awaited(self) -> set[str]:
        """Those who should come."""
        return self._companions - self._given_up

    def note(self, present: Iterable[Peer]) -> None:
        """These are at the state too; whom nobody can call cannot coordinate."""
        for peer in present:
            self._companions.add(peer.peer_id)
            if peer.record.reach == "client":
                self._hidden.add(peer.peer_id)

    def coordinator(self, me: str, state: str) -> str | None:
        """Who is to call the roll, of those who may and do; None: nobody. ``me`` may, if it is not empty."""

        def drawn(peer_id: str) -> bytes:
            return hashlib.sha256(f"{state} {peer_id}".encode()).digest()

        candidates = (self.awaited - self._hidden) | ({me} if me else set())
        return min(candidates, key=drawn, default=None)

    def waited_for(self, coordinator: str) -> float:
        """Seconds since this one was asked first."""
        return _now() - self._asked.setdefault(coordinator, _now())

    def give_up(self, coordinator: str) -> None:
        """It does not do what a coordinator does: it is neither asked nor awaited any longer."""
        self._given_up.add(coordinator)


def _check_roll(roll: Roll, coordinator: str, mine: Statement, after: str) -> None:
    if roll.coordinator != coordinator:
        raise ValueError("a roll that somebody else has called")
    if mine not in roll.statements:
        raise ValueError("a roll without us")
    if len(roll.statements) < LEAST_MEMBERS or not any(each.callable for each in roll.statements):
        raise ValueError("a roll that nobody can end a round with")
    if roll.id == after:
        raise ValueError("the roll that came to nothing before")


def _is_about(roll: Roll, statement: Statement) -> bool:
    return (roll.claim.round, roll.claim.state) == (statement.claim.round, statement.claim.state)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _now() -> float:
    return asyncio.get_running_loop().time()
