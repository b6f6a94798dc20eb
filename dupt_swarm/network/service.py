"""What a node does: it joins the swarm, holds the replica state, averages, and serves others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P
from hivemind.utils import get_dht_time

from dupt_swarm.errors import NodeError
from dupt_swarm.network.averaging.averager import SwarmAverager
from dupt_swarm.network.averaging.rounds import Rounds
from dupt_swarm.network.joining.entry import enter_dht, get_first_state, reach
from dupt_swarm.network.joining.handshake import Handshake, discover, get_tokenizer, introduce
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.liveness import FailureDetector
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.members.neighbours import Neighbours
from dupt_swarm.network.members.validator import build_validator
from dupt_swarm.network.p2p.bandwidth import Bandwidth
from dupt_swarm.network.p2p.daemon import daemon_failure
from dupt_swarm.network.reach.reachability import (
    Started,
    open_up,
    own_addresses,
    start_reachable,
    tell_whereabouts,
)
from dupt_swarm.network.states.exchange import Exchange, Hello
from dupt_swarm.network.states.store import StateStore, name_of
from dupt_swarm.network.states.sync import StateSync
from dupt_swarm.node.address_book import AddressBook
from dupt_swarm.node.addresses import keep_ports
from dupt_swarm.node.memory import SharedMemory
from dupt_swarm.node.messages import CatchingUp, Joined, RoundResult, StateName
from dupt_swarm.node.view import View
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.state import Layout, ReplicaState
from dupt_swarm.replica.storage import save_state
from dupt_swarm.settings import NodeSettings
from dupt_swarm.version import VERSION

VIEW_SECONDS = 1.5

logger = logging.getLogger(__name__)


class NodeService:
    """One peer's part in the network; every public coroutine is a command of the parent process."""

    _settings: NodeSettings
    _p2p: P2P
    _started: Started
    _dht: DHTNode
    _member: Membership
    _store: StateStore
    _rounds: Rounds
    _sync: StateSync
    _neighbours: Neighbours

    def __init__(self, run_dir: Path, tell: Callable[[object], None], give_up: Callable[[], None]) -> None:
        """A node that has done nothing yet.

        Args:
            run_dir: for sockets.
            tell: passes each event of `messages` and each `View` to the parent.
            give_up: ends this process, which is of no use any more.
        """
        self._run_dir, self._tell, self._give_up = run_dir, tell, give_up
        self._memory: SharedMemory | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def discover(self, initial_peers: tuple[str, ...], swarm_id: str) -> bytes:
        """The manifest of the swarm that these peers are in, without joining it; raises `DuptError`."""
        introduction = await discover(self._run_dir, initial_peers, swarm_id)
        return introduction.manifest.canonical_bytes()

    async def join(self, settings: NodeSettings, memory: tuple[int, Layout] | None) -> Joined:
        """Start libp2p, enter the swarm, and get from it what this role needs.

        Args:
            settings: of this peer.
            memory: file descriptor and layout of a memory in which a node before left its state.

        Raises:
            DuptError: unreachable, another swarm than expected, no state to be had, …
        """
        # The daemon and the records must have the same key.
        identity = settings.identity_path or self._run_dir / "identity"
        self._settings = settings = replace(settings, identity_path=identity)
        key = load_identity(identity)
        book = AddressBook(settings.address_book)
        self._started = await start_reachable(settings, self._run_dir, book.addresses)
        self._p2p = self._started.p2p
        self._start(self._guard_daemon())
        bandwidth = Bandwidth.of(settings)
        self._exchange = Exchange(self._p2p, bandwidth)
        await self._exchange.start()
        alone = memory is not None or (settings.role == "bootstrap" and settings.checkpoint is not None)
        reached = await reach(self._p2p, settings.initial_peers, book, alone=alone)
        introduction = await introduce(self._exchange, settings, reached)
        self._manifest = introduction.manifest
        # Whom nobody can call must not be asked for records either.
        client_mode = settings.role == "observer" or self._started.reach == "client"
        validate = build_validator(self._manifest, key)
        self._dht = await enter_dht(self._p2p, reached, validate, client_mode=client_mode)
        self._member = Membership(self._manifest, self._dht, key, self._on_view)
        if settings.role == "observer":
            return await self._joined(b"")
        tokenizer = await get_tokenizer(self._exchange, settings, introduction)
        await self._get_ready(introduction, tokenizer, memory, bandwidth)
        self._neighbours = Neighbours(self._p2p, self._dht, settings.initial_peers, book)
        self._serve()
        self._announce(state="starting" if settings.role == "oracle" else "syncing")
        await open_up(self._started, self._member)
        self._start(self._tell_whereabouts())
        self._start(self._neighbours.keep_forever())
        self._start(FailureDetector(self._p2p, self._member).watch_forever())
        self._start(self._member.publish_forever())
        self._start(self._member.watch_forever())
        return await self._joined(tokenizer)

    async def attach(self, fd: int) -> None:
        """Share memory with the trainer from now on; the state is in it when this returns."""
        state = self._store.current
        self._memory = SharedMemory(fd, state.layout, self._store.buffer_names)
        self._memory.store(state)

    async def publish(self, now: bool, fields: dict[str, Any]) -> None:
        """Change fields of the own record; ``now``: tell the others at once."""
        self._member.update(now=now, **fields)

    async def average(self, state: StateName, tokens: int, companions: tuple[str, ...]) -> RoundResult:
        """End the round with the contribution that the trainer has put into the shared memory.

        Args:
            state: the one that the contribution started from.
            tokens: what it stands for.
            companions: ids of the other live oracles of this round; none: this one steps by itself.
        """
        reason = await self._reason_to_wait(state)
        if reason:
            return RoundResult(None, reason, 0, (), 0.0)
        assert self._memory is not None
        self._announce(state="averaging", round_tokens=tokens, now=True)
        after, outcome, seconds = await self._rounds.end(self._memory.contribution, tokens, companions)
        if after is not None:
            self._replace(after)
        left = 0 if after is not None else tokens
        self._announce(state="training", round_tokens=left, now=True, **self._rounds.told)
        name = self._store.name if after is not None else None
        return RoundResult(name, outcome.reason, outcome.tokens, outcome.mates, seconds)

    async def cancel_average(self) -> None:
        """Give up the all-reduce under way, if there is one; an outer step that has begun goes on."""
        self._rounds.cancel()

    async def adopt(self) -> StateName:
        """Make the newer state that was fetched, if it still is newer, the current one; it is in memory."""
        self._adopt()
        return self._store.name

    async def save(self, path: Path) -> StateName:
        """Write the current replica state to ``path``."""
        state = self._store.current
        await asyncio.to_thread(save_state, state, path)
        return name_of(state)

    async def view(self) -> View:
        """Read the records of all peers now.

        Raises:
            NodeError: an observer has lost everybody; the records that it still has are old.
        """
        view = await self._member.refresh()
        if self._settings.role == "observer" and not await self._p2p.list_peers():
            raise NodeError("no peer of the swarm can be reached")
        return view

    async def close(self) -> None:
        """Leave the swarm, and end what was started."""
        for task in self._tasks:
            task.cancel()
        if hasattr(self, "_neighbours"):
            self._neighbours.save()
        if hasattr(self, "_member"):
            await self._member.leave()
            await self._dht.shutdown()
        if hasattr(self, "_p2p"):
            await self._p2p.shutdown()

    async def _get_ready(
        self,
        introduction: Handshake,
        tokenizer: bytes,
        memory: tuple[int, Layout] | None,
        bandwidth: Bandwidth,
    ) -> None:
        """Get the state, and what is needed to end rounds and to follow."""
        settings = self._settings
        self._tokenizer = Blob.build({"kind": "tokenizer"}, [tokenizer])
        self._store = StateStore(self._manifest, self._exchange, self._tell)
        await get_first_state(self._store, self._member, introduction, settings.checkpoint, memory)
        if settings.role == "oracle":
            bandwidth.check(self._manifest, self._store.current.anchor.numel())
        averager = SwarmAverager(self._manifest, self._dht, self._tell, bandwidth)
        await averager.open(self._p2p, self._store.current.anchor.numel())
        self._rounds = Rounds(self._manifest, self._store, self._member, averager)
        self._sync = StateSync(self._store, self._member, self._tell)

    async def _guard_daemon(self) -> None:
        logger.error("the libp2p daemon does not answer (%s)", await daemon_failure(self._p2p))
        self._give_up()

    async def _reason_to_wait(self, state: StateName) -> str:
        """Why no round from ``state`` may be ended now: the trainer should adopt a newer one first."""
        if state != self._store.name:
            # This process was started again, and the one before had come further than it could tell.
            self._tell(CatchingUp(fetching=False, newer=self._store.name))
            return "stale"
        view = self._member.view
        if get_dht_time() - view.time > VIEW_SECONDS:
            # On a busy machine the others may have ended this round without us and we not know it yet.
            view = await self._member.refresh()
        best = view.best
        if best is None or not self._store.is_behind(best, view, self._member.peer_id):
            return ""
        self._on_view(view)
        return "behind"

    def _replace(self, state: ReplicaState) -> None:
        """Make ``state`` the current one, for the trainer and for others."""
        self._store.replace(state)
        if self._memory is not None:
            self._memory.store(state)
        self._serve()

    def _adopt(self) -> None:
        if self._store.newer is not None:
            self._replace(self._store.newer)
            self._announce(now=True)

    def _serve(self) -> None:
        hello = Hello(
            version=VERSION,
            swarm_id=self._manifest.swarm_id,
            manifest=self._manifest.canonical_bytes().decode(),
            tokenizer_blob=self._tokenizer.digest,
            state_digest=self._store.name.digest,
        )
        self._exchange.publish(hello, [self._tokenizer, *self._store.blobs])

    def _announce(self, *, now: bool = False, **fields: Any) -> None:
        """Publish where our state stands, with ``fields``."""
        name, settings = self._store.name, self._settings
        self._member.update(
            now=now,
            role=settings.role,
            name=settings.name[:40],
            device=settings.device[:60],
            version=VERSION,
            round=name.round,
            swarm_tokens=name.swarm_tokens,
            state_digest=name.digest,
            **fields,
        )

    def _on_view(self, view: View) -> None:
        self._neighbours.note(view)
        if not self._rounds.under_way:
            # Who trains or measures adopts a newer state when it is between two steps; others do so at once.
            self._sync.follow(view, self._adopt if self._settings.role == "bootstrap" else lambda: None)
        self._tell(view)
        self._tell(self._p2p.traffic.read())

    async def _tell_whereabouts(self) -> None:
        logger.error("a new daemon is needed: %s", await tell_whereabouts(self._started, self._member))
        self._give_up()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _joined(self, tokenizer: bytes) -> Joined:
        listening = self._settings.role != "observer"
        addresses = await own_addresses(self._p2p) if listening else []
        return Joined(
            peer_id=str(self._p2p.peer_id),
            addresses=tuple(addresses),
            host_maddrs=keep_ports(self._settings.host_maddrs, addresses),
            manifest=self._manifest.canonical_bytes(),
            tokenizer=tokenizer,
            layout=self._store.current.layout if listening else (),
            buffer_names=self._store.buffer_names if listening else (),
            state=self._store.name if listening else None,
        )
