"""Finding the group of a round: hivemind's matchmaking, which takes no stranger's word for anything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgpack
from hivemind.averaging.averager import AveragingMode
from hivemind.averaging.group_info import GroupInfo
from hivemind.averaging.key_manager import GroupKeyManager
from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P, PeerID
from hivemind.proto import averaging_pb2
from hivemind.utils import get_dht_time

from dupt_swarm.network.p2p.guard import RefusedError
from dupt_swarm.network.p2p.hivemind_internals import OpenMatchmaking
from dupt_swarm.network.p2p.ids import is_rsa_id
from dupt_swarm.network.p2p.plain_msgpack import unpack

MEMBER_BYTES_MAX = 2048  # most of it is a signed statement
MEMBER_TYPES = ([int, float], [int, float, bytes])
GROUP_SIZE_MAX = 1024
GROUP_ID_BYTES = 20

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Member:
    """What each member of a group tells the others (hivemind's ``gather``).

    Attributes:
        reduces: whether it reduces a share of the vector; those that nobody can call do not.
        weight: tokens that its contribution stands for.
        statement: what the exchange has to tell besides; empty: nothing.
    """

    reduces: bool
    weight: float
    statement: bytes = b""

    def pack(self) -> bytes:
        """As it travels."""
        mode = AveragingMode.NODE if self.reduces else AveragingMode.CLIENT
        more = [self.statement] if self.statement else []
        return bytes(msgpack.packb([mode.value, float(self.weight), *more]))

    @classmethod
    def unpack(cls, data: bytes, weight_limit: float) -> Member:
        """Read what another peer told.

        Raises:
            ValueError: it is malformed, or its weight is not in (0, ``weight_limit``].
        """
        if len(data) > MEMBER_BYTES_MAX:
            raise ValueError("what a member tells of itself is too long")
        told = unpack(data)
        if not isinstance(told, list) or [type(each) for each in told] not in MEMBER_TYPES:
            raise ValueError("what a member tells of itself is malformed")
        mode, weight, *statement = told
        if mode not in (AveragingMode.NODE.value, AveragingMode.CLIENT.value):
            raise ValueError(f"a member has the unknown mode {mode}")
        if not 0 < weight <= weight_limit:  # not so of NaN either
            raise ValueError(f"a member has the weight {weight}")
        return cls(mode == AveragingMode.NODE.value, weight, *statement)


@dataclass
class GroupRequest:
    """What `Matchmaking` reads of hivemind's `StepControl`, which would need processes of its own."""

    scheduled_time: float
    deadline: float
    data_for_gather: bytes

    def get_timeout(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self.deadline - float(get_dht_time()))


class LocalDHT:
    """The part of `hivemind.DHT` that matchmaking needs, over a DHT node in the same event loop.

    A search for keys that is cancelled leaves tasks of hivemind behind that nobody ends: it goes on
    instead, although nobody waits for it any more.
    """

    def __init__(self, node: DHTNode) -> None:
        self._node = node
        self._searches: set[asyncio.Task[Any]] = set()
        self.peer_id: PeerID = node.peer_id
        self.client_mode: bool = node.protocol.client_mode

    async def get(self, key: str, *, latest: bool, return_future: bool) -> Any:
        """As of `hivemind.DHT`."""
        del return_future  # callers await the result either way
        return await self._to_its_end(self._node.get(key, latest=latest))

    async def store(self, *, return_future: bool, **record: Any) -> bool:
        """As of `hivemind.DHT`."""
        del return_future
        return bool(await self._to_its_end(self._node.store(**record)))

    async def _to_its_end(self, search: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.create_task(search)
        self._searches.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._searches.discard(task)
        if not task.cancelled():
            task.exception()  # maybe nobody waits for it


class RoundKeys(GroupKeyManager):  # type: ignore[misc]
    """Group keys that name the round, and do not wander after each group as hivemind's do."""

    async def update_key_on_group_assembled(self, group_info: GroupInfo) -> None:
        """Nothing to do."""
        del group_info


class RoundMatchmaking(OpenMatchmaking):
    """`Matchmaking` in which whoever sends nonsense is left out, and the search goes on.

    Attributes:
        weight_limit: of one contribution to the round that a group is sought for; 0: of none so far.
    """

    def __init__(
        self,
        p2p: P2P,
        schema_hash: bytes,
        dht: LocalDHT,
        *,
        prefix: str,
        check: Callable[[Member, str], None] = lambda *_: None,
        **kwargs: Any,
    ) -> None:
        """``check`` raises ValueError for a member that must not be in a group; all else is as inherited."""
        super().__init__(p2p, schema_hash, dht, prefix=prefix, **kwargs)
        self.group_key_manager = RoundKeys(dht, prefix, "", None)
        self.weight_limit = 0.0
        self._check = check

    def objection(self, request: Any, context: Any) -> Any:
        """The message that turns a follower away; None if it may follow."""
        if request.group_key != self.group_key_manager.current_key:
            return super().objection(request, context)  # for another round, which may have another limit
        try:
            self._check(Member.unpack(request.gather, self.weight_limit), str(context.remote_id))
        except ValueError as error:
            logger.warning("%s was refused as a follower: %s", context.remote_id, repr(error))
            return averaging_pb2.MessageFromLeader(code=averaging_pb2.PROTOCOL_VIOLATION)
        return super().objection(request, context)

    async def ask_to_lead(self, leader: PeerID) -> GroupInfo | None:
        """The group that ``leader`` makes with us; None if there is none."""
        try:
            return await super().ask_to_lead(leader)
        except Exception as error:
            # Upstream expects errors of libp2p only, and with any other one ends the search.
            logger.warning("%s was refused as a leader: %s", leader, repr(error))
            return None

    async def follower_assemble_group(self, leader: PeerID, msg: Any) -> GroupInfo:
        """The group that the leader announces.

        Raises:
            RefusedError: no honest leader would announce it.
        """
        try:
            if len(msg.group_id) != GROUP_ID_BYTES:
                raise ValueError("its id has another length")
            self._check_group(leader, list(msg.ordered_peer_ids), list(msg.gathered))
        except ValueError as error:
            raise RefusedError(f"{leader} announced an impossible group: {error}") from error
        return await super().follower_assemble_group(leader, msg)

    def _check_group(self, leader: PeerID, peer_ids: list[bytes], told: list[bytes]) -> None:
        if not len(peer_ids) == len(set(peer_ids)) == len(told) <= GROUP_SIZE_MAX:
            raise ValueError("a peer is missing or there twice, or there are too many")
        if not all(map(is_rsa_id, peer_ids)):
            raise ValueError("a malformed peer id")
        by_id = dict(zip(peer_ids, told, strict=True))
        if by_id.get(self.peer_id.to_bytes()) != self.step_control.data_for_gather:
            raise ValueError("we are not in it as what we are")
        if leader.to_bytes() not in by_id:
            raise ValueError("the leader is not in it")
        members = [Member.unpack(data, self.weight_limit) for data in told]
        for peer_id, member in zip(peer_ids, members, strict=True):
            self._check(member, str(PeerID(peer_id)))
        if not any(member.reduces for member in members):
            raise ValueError("nobody reduces")
