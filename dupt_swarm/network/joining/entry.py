"""How a node joins: it reaches a peer, enters the DHT, and gets its first state."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hivemind.dht.node import DHTNode
from hivemind.dht.routing import DHTID
from hivemind.p2p import P2P

from dupt_swarm.errors import NodeError, UnreachableError
from dupt_swarm.network.joining.handshake import Handshake
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.daemon import answering, dial_all
from dupt_swarm.network.p2p.dht_messages import place_of
from dupt_swarm.network.reach.reachability import Started
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.network.states.store import FalseClaimError, StateStore
from dupt_swarm.node.address_book import AddressBook
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.memory import SharedMemory
from dupt_swarm.node.view import Peer, View
from dupt_swarm.organiser.attestation import Attestation
from dupt_swarm.replica.state import ReplicaState


class Hearsay:
    """Which states the initial peers have told, first in ``hellos`` (by peer id), then in their records.

    They move on while a state is fetched, and not all at the same moment: what each has told before counts
    too.
    """

    def __init__(self, hellos: Mapping[str, Hello]) -> None:
        self._told: OrderedDict[str, set[str]] = OrderedDict()
        self._initial = frozenset(hellos)
        for peer_id, hello in hellos.items():
            self._hear(peer_id, hello.state_digest)

    @property
    def tellers(self) -> frozenset[str]:
        """Ids of those who have told a state at all."""
        return frozenset().union(*self._told.values())

    @property
    def digests(self) -> list[str]:
        """The states that more than half of the tellers have told; what was told last comes first.

        What most have not told is not among them: one of them might serve a state of its own, which cannot be
        told from the swarm's.
        """
        count = len(self.tellers)
        return [digest for digest, by in reversed(self._told.items()) if 2 * len(by) > count]

    def hear(self, peers: Iterable[Peer]) -> None:
        """Note what the initial peers among ``peers`` tell in their records."""
        for peer in peers:
            if peer.peer_id in self._initial:
                self._hear(peer.peer_id, peer.record.state_digest)

    def _hear(self, peer_id: str, digest: str) -> None:
        if digest:
            self._told.setdefault(digest, set()).add(peer_id)
            self._told.move_to_end(digest)


STATE_SECONDS = 60.0
# For so long only peers that the organiser names are believed, where it has named any.
ATTESTED_SECONDS = 15.0
SEARCH_SECONDS = 0.5
NO_MAJORITY = (
    "no state is held by more than half of the initial peers; name more of them, or only those that you trust"
)


async def reach(started: Started, book: AddressBook, *, alone: bool) -> list[str]:
    """The addresses among those known that answer.

    Args:
        started: the own daemon, which has dialled the initial peers. Where there are none, this is the first
            peer, and those it met before are dialled later.
        book: asked when no initial peer answers and ``alone``.
        alone: whether this peer has all that it needs, so that nobody has to answer.

    Raises:
        UnreachableError: nobody answers.
    """
    reached = answering(started.initial)
    if reached or not started.initial:
        return reached
    if not alone:
        raise UnreachableError(started.initial)
    return answering(await dial_all(started.p2p, book.addresses))


async def enter_dht(p2p: P2P, reached: list[str], *, client_mode: bool) -> DHTNode:
    """A DHT node with the peers at ``reached`` as its first neighbours; a client only queries others.

    It is where peers meet: whoever joins comes to know the neighbours of those that it was told of. Nothing
    is stored in it (`p2p.dht_messages`).
    """
    return await DHTNode.create(
        p2p=p2p,
        node_id=DHTID.from_bytes(place_of(p2p.peer_id.to_bytes())),
        # p2pd is already connected to them, maybe over a relay that hivemind would take for the peer.
        initial_peers=[f"/p2p/{Address.of_peer(address).peer_id}" for address in reached] or None,
        client_mode=client_mode,
    )


async def get_first_state(
    store: StateStore,
    member: Membership,
    introduction: Handshake,
    checkpoint: Path | None,
    memory: SharedMemory | None,
) -> str:
    """Give the store its first state; if the swarm has a newer one, that follows later.

    It is what a node before left in ``memory``, or else ``checkpoint``, or else what `find_state` finds.

    Returns:
        On whose word it is that one.

    Raises:
        NodeError: no state is available.
        CheckpointError: the checkpoint is damaged.
    """
    if memory is not None:
        left = await asyncio.to_thread(memory.load)
        if left is not None:
            store.replace(left)
            return "as the node before left it"
    if checkpoint is not None and (memory is None or checkpoint.exists()):  # newer ones may have its place
        await store.load(checkpoint)
        return "from the checkpoint"
    state, word = await find_state(store, member, introduction)
    store.replace(state)
    return word


async def find_state(
    store: StateStore, member: Membership, introduction: Handshake
) -> tuple[ReplicaState, str]:
    """Fetch the state that those have who are believed, until it can be had.

    A peer that knows no voter yet believes those that the organiser names as such, if the initial peers pass
    its word on; or else most of the initial peers; or where none of them tells which state it has, half of
    the oracles at work.

    Returns:
        The state, and on whose word it is that one.

    Raises:
        NodeError: no state is available.
    """
    deadline, problem = time.monotonic() + STATE_SECONDS, "no peer was found"
    patience = time.monotonic() + ATTESTED_SECONDS
    attested, hearsay = newest_attestation(introduction), Hearsay(introduction.hellos)
    while time.monotonic() < deadline:
        view = await member.refresh()
        hearsay.hear(member.living)
        claims = [] if attested is None else _attested_claims(view, attested[0])
        if attested is None or time.monotonic() > patience:
            claims += _claims(view, hearsay)
        if not claims and hearsay.tellers:
            problem = NO_MAJORITY
        for claim in claims:
            try:
                donors = partial(member.holders, claim.digest, introduction.peer_ids)
                return await store.fetch(claim.digest, donors, claim.tokens), claim.word
            except NodeError as error:
                problem = str(error)  # the swarm may have moved on meanwhile: look again
                deadline = max(deadline, store.last_arrival + STATE_SECONDS)
                # It may be that donors are silent, which says nothing of those who have told the truth.
                if isinstance(error, FalseClaimError) and claim.tokens is not None:
                    member.distrust(view, (claim.digest, claim.tokens))
        await asyncio.sleep(SEARCH_SECONDS)
    raise NodeError(f"the swarm's state could not be fetched; try again: {problem}")


def newest_attestation(handshake: Handshake) -> tuple[Attestation, str] | None:
    """What the organiser has said last, of what the initial peers pass on; also as it was signed."""
    found, manifest = [], handshake.manifest
    for hello in handshake.hellos.values():
        text = hello.attestation
        try:
            organiser = bytes.fromhex(manifest.admission.organiser)
            found.append((Attestation.read(text, organiser, manifest.swarm_id), text))
        except ValueError:
            continue  # of nobody, mostly: many peers have none
    return max(found, key=lambda each: each[0].round, default=None)


@dataclass(frozen=True)
class _Claim:
    """A state to try, and on whose word; ``tokens`` None: nobody said how many it has."""

    digest: str
    tokens: int | None
    word: str


def _attested_claims(view: View, attested: Attestation) -> list[_Claim]:
    """The state of more than half of the named voters, then the one that the organiser has named."""
    records = [peer.record for peer in view.peers if peer.peer_id in attested.voters]
    told = Counter((record.state_digest, record.swarm_tokens) for record in records)
    word = "as its organiser attests"
    claims = [_Claim(*state, word) for state, count in told.most_common(1) if 2 * count > len(records)]
    return [*claims, _Claim(attested.digest, None, word)]


def _claims(view: View, hearsay: Hearsay) -> list[_Claim]:
    """What most initial peers have told; while none tells anything, what half of the oracles at work do."""
    if not hearsay.tellers:
        if view.agreed is None:
            return []
        record = view.agreed.record
        return [_Claim(record.state_digest, record.swarm_tokens, "as half of the oracles at work say")]
    word = "as most of the initial peers say" if len(hearsay.tellers) > 1 else "as the initial peer says"
    records = [peer.record for peer in view.peers if peer.peer_id in hearsay.tellers]
    claims = []
    for digest in hearsay.digests:
        tokens = Counter(record.swarm_tokens for record in records if record.state_digest == digest)
        claims += [_Claim(digest, number, word) for number in tokens] or [_Claim(digest, None, word)]
    return claims
