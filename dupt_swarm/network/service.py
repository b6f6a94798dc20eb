"""What a node does: it joins the swarm, holds the replica state, averages, and serves others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.errors import NodeError
from dupt_swarm.network.addresses import split
from dupt_swarm.network.averager import Average, SwarmAverager
from dupt_swarm.network.exchange import Exchange, Hello
from dupt_swarm.network.identity import load_identity
from dupt_swarm.network.introduction import Introduction, get_tokenizer, introduce
from dupt_swarm.network.keeper import StateKeeper, name_of
from dupt_swarm.network.membership import Membership
from dupt_swarm.network.memory import SharedVectors
from dupt_swarm.network.messages import CatchingUp, Joined, RoundResult, StateName
from dupt_swarm.network.reach import tell_addresses, tell_addresses_for_ever
from dupt_swarm.network.records import build_validator
from dupt_swarm.network.transport import connect, start_daemon
from dupt_swarm.network.view import View
from dupt_swarm.replica.aggregation import weight_limit
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import save_state
from dupt_swarm.settings import NodeSettings
from dupt_swarm.version import VERSION

STATE_SECONDS = 60.0
SEARCH_SECONDS = 0.5

logger = logging.getLogger(__name__)


class NodeService:
    """One peer's part in the network; every public coroutine is a command of the parent process."""

    _settings: NodeSettings
    _p2p: P2P
    _dht: DHTNode
    _member: Membership
    _keeper: StateKeeper
    _averager: SwarmAverager

    def __init__(self, run_dir: Path, tell: Callable[[object], None]) -> None:
        """``run_dir`` is for sockets; ``tell`` passes each `View` and `CatchingUp` to the parent."""
        self._run_dir, self._tell = run_dir, tell
        self._vectors: SharedVectors | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_reduce: asyncio.Task[Average] | None = None
        self._averaging = self._fetching = False

    async def discover(self, initial_peers: tuple[str, ...], swarm_id: str) -> bytes:
        """The manifest of the swarm that these peers are in, without joining it.

        Raises:
            DuptError: unreachable, or another swarm than expected.
        """
        settings = NodeSettings("observer", initial_peers=initial_peers, swarm_id=swarm_id)
        p2p = await start_daemon(settings, self._run_dir)
        try:
            reached = await connect(p2p, initial_peers)
            introduction = await introduce(Exchange(p2p), settings, reached)
        finally:
            await p2p.shutdown()
        return introduction.manifest.canonical_bytes()

    async def join(self, settings: NodeSettings) -> Joined:
        """Start libp2p, enter the swarm, and get from it what this role needs.

        Raises:
            DuptError: unreachable, another swarm than expected, no state to be had, …
        """
        # The daemon and the records must have the same key.
        identity = settings.identity_path or self._run_dir / "identity"
        self._settings = settings = replace(settings, identity_path=identity)
        key = load_identity(identity)
        self._p2p = await start_daemon(settings, self._run_dir)
        self._exchange = Exchange(self._p2p)
        await self._exchange.start()
        reached = await connect(self._p2p, settings.initial_peers) if settings.initial_peers else []
        introduction = await introduce(self._exchange, settings, reached)
        self._manifest = introduction.manifest
        await self._enter_dht(reached, key)
        if settings.role == "observer":
            return await self._joined(b"")
        tokenizer = await get_tokenizer(self._exchange, settings, introduction)
        self._tokenizer = Blob.build({"kind": "tokenizer"}, [tokenizer])
        self._keeper = StateKeeper(self._manifest, self._exchange)
        await self._get_state(introduction)
        self._averager = SwarmAverager(self._manifest, self._dht)
        await self._averager.open(self._p2p, self._keeper.current.anchor.numel())
        self._serve()
        self._announce(state="starting" if settings.role == "oracle" else "syncing")
        await tell_addresses(self._p2p, self._member)
        self._start(tell_addresses_for_ever(self._p2p, self._member))
        self._start(self._member.publish_for_ever())
        self._start(self._member.watch_for_ever())
        return await self._joined(tokenizer)

    async def attach(self, fd: int, numel: int) -> None:
        """Share memory with the trainer from now on; the anchor is in it when this returns."""
        self._vectors = SharedVectors(fd, numel)
        self._vectors.anchor.copy_(self._keeper.current.anchor)

    async def publish(self, now: bool, fields: dict[str, Any]) -> None:
        """Change fields of the own record; ``now``: tell the others at once."""
        self._member.update(now=now, **fields)

    async def average(self, tokens: int, group_size: int) -> RoundResult:
        """End the round with the contribution that the trainer has put into the shared memory.

        Args:
            tokens: what it stands for.
            group_size: live oracles of this round; 1: this one is alone and steps by itself.
        """
        started = time.monotonic()
        self._averaging = True
        self._announce(state="averaging", round_tokens=tokens, now=True)
        outcome, left = Average(None, reason="network"), tokens
        try:
            self._all_reduce = asyncio.create_task(self._average(tokens, group_size))
            outcome = await self._all_reduce
            if outcome.values is not None:
                self._replace(await self._keeper.step(outcome.values, outcome.tokens))
                left = 0
        except OverflowError:
            outcome = Average(None, reason="outer_overflow")
        except asyncio.CancelledError:
            outcome = Average(None, reason="cancelled")
        except Exception:
            # libp2p's daemon, hivemind, a hostile peer: whatever happened, the trainer trains on.
            logger.exception("the round failed")
        finally:
            self._averaging = False
            self._announce(state="training", round_tokens=left, now=True)
        state = None if left else self._keeper.name
        seconds = time.monotonic() - started
        return RoundResult(state, outcome.reason, outcome.tokens, outcome.mates, seconds)

    async def cancel_average(self) -> None:
        """Give up the all-reduce under way, if there is one; an outer step that has begun goes on."""
        if self._all_reduce is not None:
            self._all_reduce.cancel()

    async def adopt(self) -> StateName:
        """Make the newer state that was fetched, if it still is newer, the current one; anchor in memory."""
        if self._keeper.newer is not None:
            self._replace(self._keeper.newer)
            self._announce(now=True)
        return self._keeper.name

    async def save(self, path: Path) -> StateName:
        """Write the current replica state to ``path``."""
        state = self._keeper.current
        await asyncio.to_thread(save_state, state, path)
        return name_of(state)

    async def view(self) -> View:
        """Read the records of all peers now."""
        return await self._member.refresh()

    async def close(self) -> None:
        """Leave the swarm, and end what was started."""
        for task in self._tasks:
            task.cancel()
        if hasattr(self, "_member"):
            await self._member.leave()
            await self._dht.shutdown()
        if hasattr(self, "_p2p"):
            await self._p2p.shutdown()

    async def _enter_dht(self, initial_peers: list[str], key: RSAPrivateKey) -> None:
        self._dht = await DHTNode.create(
            p2p=self._p2p,
            # p2pd is connected to them already, maybe over a relay, which hivemind would take for the peer.
            initial_peers=[f"/p2p/{split(address)[1]}" for address in initial_peers] or None,
            client_mode=self._settings.role == "observer",
            record_validator=build_validator(self._manifest, key),
        )
        self._member = Membership(self._manifest, self._dht, key, self._on_view)

    async def _get_state(self, introduction: Introduction) -> None:
        """The saved state if there is one (a newer one follows later), else the swarm's best."""
        if self._settings.checkpoint is not None:
            await self._keeper.load(self._settings.checkpoint)
            return
        deadline, problem = time.monotonic() + STATE_SECONDS, ""
        while time.monotonic() < deadline:
            view = await self._member.refresh()
            if view.best:
                digest = view.best.record.state_digest
            else:
                digest = next(iter(introduction.hellos.values())).state_digest
            try:
                donors = view.holders(digest) or introduction.peer_ids
                self._keeper.replace(await self._keeper.fetch(digest, donors))
                return
            except NodeError as error:
                problem = str(error)  # the swarm may have moved on meanwhile: look again
            await asyncio.sleep(SEARCH_SECONDS)
        raise NodeError(f"the swarm's state could not be fetched; try again: {problem}")

    async def _average(self, tokens: int, group_size: int) -> Average:
        assert self._vectors is not None
        name, weight = self._keeper.name, min(float(tokens), weight_limit(self._manifest))
        outcome = await self._averager.average(
            self._vectors.contribution,
            weight,
            round=name.round,
            digest=name.digest,
            group_size=group_size,
        )
        self._member.suspect(outcome.lost)
        return outcome

    def _replace(self, state: ReplicaState) -> None:
        """Make ``state`` the current one, for the trainer and for others."""
        self._keeper.replace(state)
        if self._vectors is not None:
            self._vectors.anchor.copy_(state.anchor)
        self._serve()

    def _serve(self) -> None:
        hello = Hello(
            version=VERSION,
            swarm_id=self._manifest.swarm_id,
            manifest=self._manifest.canonical_bytes().decode(),
            tokenizer_blob=self._tokenizer.digest,
            state_digest=self._keeper.name.digest,
        )
        self._exchange.publish(hello, [self._tokenizer, *self._keeper.blobs])

    def _announce(self, *, now: bool = False, **fields: Any) -> None:
        """Publish where our state stands, with ``fields``."""
        name, settings = self._keeper.name, self._settings
        self._member.update(
            now=now,
            role=settings.role,
            name=settings.name[:40],
            device=settings.device[:60],
            version=VERSION,
            round=name.round,
            swarm_tokens=name.tokens_total,
            state_digest=name.digest,
            **fields,
        )

    def _on_view(self, view: View) -> None:
        best = view.best
        if not self._averaging and not self._fetching and best is not None and self._keeper.is_behind(best):
            self._fetching = True
            self._tell(CatchingUp(fetching=True, newer=None))
            self._start(self._catch_up(best.record.state_digest, view))
        self._tell(view)

    async def _catch_up(self, digest: str, view: View) -> None:
        """Fetch a newer state; a trainer adopts it between two steps, a bootstrap at once."""
        donors = view.holders(digest)
        try:
            state = await self._keeper.fetch(digest, donors)
            if state.tokens_total < self._keeper.name.tokens_total:
                return  # a round of our own has ended meanwhile
            self._keeper.newer = state
            if self._settings.role == "bootstrap":
                await self.adopt()
        except NodeError as error:
            logger.warning("%s", error)
            self._member.distrust(donors)
        finally:
            self._fetching = False
            newer = self._keeper.newer
            self._tell(CatchingUp(fetching=False, newer=name_of(newer) if newer else None))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _joined(self, tokenizer: bytes) -> Joined:
        listening = self._settings.role != "observer"
        addresses = await self._p2p.get_visible_maddrs(latest=True) if listening else []
        return Joined(
            peer_id=str(self._p2p.peer_id),
            addresses=tuple(str(address) for address in addresses),
            manifest=self._manifest.canonical_bytes(),
            tokenizer=tokenizer,
            layout=self._keeper.current.layout if listening else (),
            state=self._keeper.name if listening else None,
        )
