"""Membership: publishes our own record, and watches everybody else's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hivemind.utils import get_dht_time

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.attendance import Attendance, Claim, Distrust
from dupt_swarm.network.members.gossip import Gossip
from dupt_swarm.network.members.records import Records
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.limits import Admission
from dupt_swarm.network.task_group import wait_at_most
from dupt_swarm.node.reasons import REFUSED_MESSAGES, in_order
from dupt_swarm.node.record import EXPOSED_MAX, PeerRecord, RecordUpdate
from dupt_swarm.node.view import Peer, View
from dupt_swarm.replica.electorate import Electorate

PUBLISH_SECONDS = 2.0
REFRESH_SECONDS = 0.3  # who asks more often is refused: see `rpc_records` and `limits`
WATCH_SECONDS = 1.0
# With many peers a view is large: make one less often, so that watching stays cheap.
# But invented peers must not make everybody's view old.
WATCH_SECONDS_PER_PEER, WATCH_SECONDS_MAX = 0.02, 5.0
WATCH_SECONDS_MIN = 0.2  # between two, where what others do should be acted on at once
LEAVE_SECONDS = 2.0
COMING_ROUNDS = 2  # whoever is farther behind is not waited for

logger = logging.getLogger(__name__)


class Membership:
    """Keeps this peer's record fresh, and a view of everybody's.

    Attributes:
        view: everybody's as they were read last.
        living: all whose records are fresh, whatever is thought of them.
        records: those that this peer knows, as they were signed.
        gossip: how they spread.
        attendance: which of them come to rounds.
        exposed: ids of those that have signed what contradicts itself, as they were found out.
        electorate: of the state that this peer is at; whoever makes another one current sets it.
    """

    def __init__(
        self,
        manifest: Manifest,
        p2p: GuardedP2P,
        key: Ed25519PrivateKey,
        met: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        """``met`` gives ids of peers that this one has dealt with elsewhere."""
        self.view = View(get_dht_time(), ())
        self._manifest, self._p2p, self._key = manifest, p2p, key
        self._admission: Admission = p2p.admission
        self.attendance = Attendance(p2p.refused)
        self.exposed: dict[str, None] = {}
        self.electorate = Electorate()
        self.peer_id = str(p2p.peer_id)
        self._record: PeerRecord | None = None
        self._changed, self._heard = asyncio.Event(), asyncio.Event()
        self.records = Records(manifest, self._admission, lambda: self.mates, p2p.refused)
        self.gossip = Gossip(
            p2p,
            self.records,
            met=lambda: (*met(), *self.mates),
            trusted=lambda: self._trusted,
            on_change=self._heard.set,
        )
        self._buried: dict[str, float] = {}  # when nobody listened any more where they were
        self.living: tuple[Peer, ...] = ()
        self._distrust = Distrust()
        self._may_ask = 0.0  # at this time of the event loop

    def update(self, update: RecordUpdate, *, now: bool = False) -> None:
        """Change the own record, at first all of it; ``now``: others should learn of it at once."""
        own = RecordUpdate(time=get_dht_time(), credential=self._admission.credential)
        given = (self._record or RecordUpdate()) | update | own
        self._record = PeerRecord.model_validate(given.given)
        if now:
            self._changed.set()

    def bury(self, peer_id: str) -> None:
        """Nobody listens where this peer was: it is not there until it publishes a newer record."""
        now = get_dht_time()
        # Clocks may differ by as much as a record lives.
        oldest = now - 2 * self._manifest.limits.record_seconds
        self._buried = {peer: at for peer, at in self._buried.items() if at > oldest} | {peer_id: now}

    def distrust(self, view: View, claim: Claim) -> None:
        """The state is another than those say who claimed in ``view`` to hold it.

        They are left out of the view for a while; see `Distrust`.
        """
        for peer in view.peers:
            if _claim_of(peer) == claim:
                self._distrust.failed(peer.peer_id, claim)

    async def publish(self, *, urgent: bool = True) -> None:
        """Tell others the own record, if there is one; ``urgent``: they pass it on."""
        if self._record is None:
            return
        said = {
            "time": get_dht_time(),
            "refused": in_order(self._p2p.refused, REFUSED_MESSAGES),
            "exposed": tuple(self.exposed)[-EXPOSED_MAX:],
        }
        self._record = self._record.model_copy(update=said)
        record = self.records.publish(self._key, self._record)
        if urgent:
            self._heard.set()
        await self.gossip.tell(record, urgent=urgent)

    async def publish_forever(self) -> None:
        """Publish regularly, and at once after an important change."""
        urgent = True
        while True:
            self._changed.clear()
            with contextlib.suppress(Exception):  # the network may be away for a while
                await self.publish(urgent=urgent)
            await wait_at_most(self._changed, PUBLISH_SECONDS)
            urgent = self._changed.is_set()

    async def watch_forever(self, on_view: Callable[[View], None]) -> None:
        """Look regularly, and when others do what matters at once; hand each view to ``on_view``."""
        while True:
            self._heard.clear()
            with contextlib.suppress(Exception):
                # A listener may call the network, which may be away for a while.
                on_view(self.look())
            await asyncio.sleep(WATCH_SECONDS_MIN)
            seconds = WATCH_SECONDS + WATCH_SECONDS_PER_PEER * len(self.view.peers)
            await wait_at_most(self._heard, min(seconds, WATCH_SECONDS_MAX) - WATCH_SECONDS_MIN)

    async def refresh(self) -> View:
        """Ask a few others, and look; a little later, if they were asked just now."""
        now = asyncio.get_running_loop().time()
        self._may_ask = max(now, self._may_ask + REFRESH_SECONDS)
        await asyncio.sleep(self._may_ask - now)
        await self.gossip.pull()
        return self.look()

    def look(self) -> View:
        """The view, made of the records that are known now."""
        self.records.forget_expired()
        peers = [
            Peer(each.peer_id, each.record)
            for each in self.records
            if not self._admission.objection(each.peer_id)  # else it was revoked meanwhile
        ]
        self._p2p.limits.members = frozenset(peer.peer_id for peer in peers)
        self._p2p.limits.trusted = self._trusted
        self.living = tuple(sorted(filter(self._lives, peers), key=lambda p: p.peer_id))
        alive = tuple(filter(self._is_believed, self.living))
        self.view = View(get_dht_time(), alive, dict(self.records.refused), self.electorate.members)
        return self.view

    def here(self, state: str) -> frozenset[str]:
        """Ids of the other oracles that work on the round after ``state``, and are waited for."""
        return frozenset(filter(self.attendance.expects, self.present(state)))

    def present(self, state: str) -> frozenset[str]:
        """Ids of the other oracles at work at ``state``."""
        companions = (peer.peer_id for peer in self.view.companions(state, self.peer_id))
        return frozenset(companions).difference(self.exposed)

    @property
    def coming(self) -> frozenset[str]:
        """Ids of the other oracles at work on earlier rounds, who come to our state if they are not slow."""
        record = self._record
        if record is None:
            return frozenset()
        behind = [
            peer.peer_id
            for peer in self.view.stragglers(record.swarm_tokens, [self.peer_id])
            if peer.record.round >= record.round - COMING_ROUNDS
        ]
        return frozenset(filter(self.attendance.expects, behind)).difference(self.exposed)

    @property
    def gone(self) -> frozenset[str]:
        """Ids of the electorate that are no more, or are admitted no more: they left without a word."""
        known = filter(None, map(self.records.of, self.electorate.members))
        return frozenset(
            each.peer_id
            for each in known
            if self._admission.objection(each.peer_id) or self._is_gone(each.peer_id, each.record)
        )

    @property
    def unable(self) -> frozenset[str]:
        """Ids of the electorate that cannot be called, as far as they tell, or that nobody should ask."""
        members = self.electorate.members
        return frozenset(peer for peer in members if peer in self.exposed or self._is_client(peer))

    @property
    def voters(self) -> frozenset[str]:
        """Ids of those who decide, or would again after one round that counts."""
        return self.electorate.former

    @property
    def is_at_work(self) -> bool:
        """Whether this peer is an oracle at work."""
        return self._record is not None and self._record.role == "oracle" and self._record.at_work

    @property
    def mates(self) -> Collection[str]:
        """Peers that were in a group with this one."""
        return self.attendance.mates

    @property
    def _trusted(self) -> frozenset[str]:
        return self.voters.union(self.mates)

    def expose(self, peer_id: str) -> None:
        """It has signed what contradicts itself: it is left out from now on.

        Should it be this peer, nothing that it does by itself helps: it trains on alone.
        """
        if peer_id == self.peer_id:
            logger.error(
                "this peer's identity has signed what contradicts itself, so that others leave it out "
                "for good; let no two peers have one identity, and remove it to come as a newcomer"
            )
            return
        if peer_id not in self.exposed:
            self.exposed[peer_id] = None
            self._p2p.refused["contradiction"] += 1

    def admits(self, peer_id: str) -> bool:
        """Whether what this peer says of a round is listened to, and what it brings may count."""
        known = peer_id in self.electorate or self.attendance.expects(peer_id)
        return known and peer_id not in self.exposed

    async def holders(self, digest: str, otherwise: Sequence[str] = ()) -> Sequence[str]:
        """The peers that hold state ``digest`` now; ``otherwise`` if neither records nor peers know."""
        return self.look().holders(digest) or (await self.refresh()).holders(digest) or otherwise

    async def leave(self) -> None:
        """Announce that this peer leaves."""
        if self._record is not None:
            self.update(RecordUpdate(state="stopping"))
            with contextlib.suppress(Exception):  # there may be nobody left to tell
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self.publish()

    def _lives(self, peer: Peer) -> bool:
        record = peer.record
        if peer.peer_id == self.peer_id:
            return record.state != "stopping"
        fresh = get_dht_time() - record.time < self._manifest.limits.record_seconds
        return fresh and not self._is_gone(peer.peer_id, record)

    def _is_gone(self, peer_id: str, record: PeerRecord) -> bool:
        """Whether it says that it goes, or nobody listens where it was."""
        return record.state == "stopping" or record.time <= self._buried.get(peer_id, 0.0)

    def _is_client(self, peer_id: str) -> bool:
        record = self._record if peer_id == self.peer_id else self.view.record(peer_id)
        return record is not None and record.reach == "client"

    def _is_believed(self, peer: Peer) -> bool:
        return peer.peer_id == self.peer_id or not self._distrust.applies(peer.peer_id, _claim_of(peer))


def _claim_of(peer: Peer) -> Claim:
    return peer.record.state_digest, peer.record.swarm_tokens
