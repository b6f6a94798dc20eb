"""The handshake with a swarm: who is there, the manifest that they share, and the tokenizer."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dupt_swarm.errors import DuptError, ManifestError, NodeError, UnreachableError
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.tables import TOKENIZER_BYTES_MAX
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.p2p.rpc import CallError
from dupt_swarm.network.reach.starting import start_daemon
from dupt_swarm.network.states.download import always
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.network.states.store import BYTES_PER_SECOND_MIN
from dupt_swarm.node.addresses import Address
from dupt_swarm.replica.blob import Assembly
from dupt_swarm.settings import NodeSettings

Value = TypeVar("Value")

TOKENIZER_SECONDS = 60.0  # and the time for its bytes at the slowest acceptable rate

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Handshake:
    """The initial peers' answers: hellos by peer id of those who share a manifest, and that manifest."""

    hellos: dict[str, Hello]
    manifest: Manifest

    @property
    def peer_ids(self) -> list[str]:
        """The peers that answered."""
        return list(self.hellos)

    @property
    def state_digest(self) -> str:
        """The state that most of them hold; empty if nobody answered."""
        return next(iter(_most_frequent(hello.state_digest for hello in self.hellos.values())), "")

    def share(self, addresses: Iterable[str]) -> list[str]:
        """Those of ``addresses`` at which one of them is."""
        return [address for address in addresses if Address.of_peer(address).peer_id in self.hellos]


async def discover(run_dir: Path, initial_peers: tuple[str, ...], swarm_id: str) -> Handshake:
    """Ask ``initial_peers`` who they are, from a daemon (with its sockets in ``run_dir``) just for that.

    Raises:
        DuptError: as in `introduce`, or the daemon does not start.
    """
    settings = NodeSettings("observer", initial_peers=initial_peers, swarm_id=swarm_id)
    p2p = await start_daemon(settings, run_dir)
    try:
        reached = await connect(p2p, initial_peers)
        return await introduce(Exchange(p2p), settings, reached)
    finally:
        await p2p.shutdown()


async def introduce(exchange: Exchange, settings: NodeSettings, addresses: Sequence[str]) -> Handshake:
    """Ask the peers at ``addresses`` (none for the first peer) who they are.

    A peer with another manifest is left out, and the log says so. The manifest that counts is ours, if we
    have one, that of the swarm expected, or else that of more than half of the peers that answered.

    Raises:
        UnreachableError: none is a peer of a swarm.
        ManifestError: all differ from ours or from the swarm expected, or nothing says which to believe.
    """
    hellos = await _greet(exchange, addresses)
    offers = {peer_id: Manifest.from_bytes(hello.manifest.encode()) for peer_id, hello in hellos.items()}
    manifest = Manifest.from_bytes(settings.manifest) if settings.manifest else _shared(offers, settings)
    differences = {peer_id: manifest.difference(offer) for peer_id, offer in offers.items()}
    if differences and all(differences.values()):
        peer_id, difference = next(iter(differences.items()))
        raise ManifestError(
            f"swarm {offers[peer_id].swarm_id} has another manifest than {manifest.swarm_id}: {difference}; "
            f"take their run.toml to join theirs, or leave their addresses out to start a swarm of your own",
            setting="initial_peers",
        )
    if settings.swarm_id and settings.swarm_id != manifest.swarm_id:
        raise ManifestError(
            f"the peers are in swarm {manifest.swarm_id}, not in {settings.swarm_id}; "
            f"check the swarm's id and the addresses",
            setting=("swarm_id", "initial_peers"),
        )
    for peer_id, difference in differences.items():
        if difference:
            swarm_id = offers[peer_id].swarm_id
            logger.warning("%s is left out: it is in swarm %s (%s)", peer_id, swarm_id, difference)
    agreed = {peer_id: hello for peer_id, hello in hellos.items() if not differences[peer_id]}
    return Handshake(agreed, manifest)


def _shared(offers: Mapping[str, Manifest], settings: NodeSettings) -> Manifest:
    """The manifest of the swarm expected, or of most peers.

    Raises:
        ManifestError: they differ, and no side has more than half.
    """
    known = {offer.canonical_bytes(): offer for offer in offers.values()}
    usual = _most_frequent(offer.canonical_bytes() for offer in offers.values())
    expected = [data for data in usual if known[data].swarm_id == settings.swarm_id]
    chosen = known[(expected or usual)[0]]
    same = sum(offer == chosen for offer in offers.values())
    if not expected and not settings.swarm_id and 2 * same <= len(offers):
        sides = "; ".join(f"{peer_id} in {offer.swarm_id}" for peer_id, offer in offers.items())
        raise ManifestError(
            f"the peers are in different swarms: {sides}; say which one to join",
            setting=("swarm_id", "initial_peers"),
        )
    return chosen


async def get_tokenizer(exchange: Exchange, settings: NodeSettings, handshake: Handshake) -> bytes:
    """tokenizer.json: our own copy, or else from the initial peers; checked against the manifest.

    Raises:
        NodeError: it could not be fetched.
        ManifestError: it is not the manifest's.
    """
    if settings.tokenizer:
        return _checked_tokenizer(settings.tokenizer, handshake.manifest)
    problem: DuptError = NodeError("nobody told which it is")
    for digest in _most_frequent(hello.tokenizer_blob for hello in handshake.hellos.values()):
        try:
            return _checked_tokenizer(await _fetch_tokenizer(exchange, digest, handshake), handshake.manifest)
        except ManifestError as error:
            problem = error
        except NodeError as error:
            problem = NodeError(f"the tokenizer could not be fetched ({error}); try again")
    raise problem


async def _fetch_tokenizer(exchange: Exchange, digest: str, handshake: Handshake) -> bytes:
    index = await exchange.fetch_index(digest, handshake.peer_ids)
    size = sum(index.sizes)
    if size > TOKENIZER_BYTES_MAX or len(index.sizes) != 1:
        raise NodeError("the peers offered a malformed tokenizer")
    seconds = TOKENIZER_SECONDS + size / BYTES_PER_SECOND_MIN
    return bytes((await exchange.fetch(Assembly(index), always(handshake.peer_ids), seconds)).sections[0])


def _checked_tokenizer(data: bytes, manifest: Manifest) -> bytes:
    wanted, found = manifest.tokenizer.sha256, hashlib.sha256(data).hexdigest()
    if wanted != found:
        raise ManifestError(
            f"`tokenizer.sha256` is {wanted[:12]}… in the manifest, but the tokenizer has {found[:12]}…; "
            f"use the tokenizer.json that `dupt-peer new` wrote beside it"
        )
    return data


async def _greet(exchange: Exchange, addresses: Sequence[str]) -> dict[str, Hello]:
    """What those at ``addresses`` say who say something sensible; all are asked at once.

    Raises:
        UnreachableError: none does.
        ManifestError: none has a manifest that can be read.
    """

    async def greet(address: str) -> tuple[str, Hello] | Exception:
        peer_id = Address.of_peer(address).peer_id
        try:
            hello = await exchange.hello(peer_id)
            Manifest.from_bytes(hello.manifest.encode())
            return peer_id, hello
        except (CallError, ManifestError) as error:
            # Another program may listen there, a liar, or a peer that has only just started.
            return error

    outcomes = await asyncio.gather(*map(greet, addresses))
    hellos = dict(outcome for outcome in outcomes if not isinstance(outcome, Exception))
    if hellos or not addresses:
        return hellos
    for error in outcomes:
        if isinstance(error, ManifestError):  # of another version, maybe: it says what to do
            raise error
    told = [f"no dupt_swarm peer that is ready ({each})" for each in outcomes]
    raise UnreachableError(dict(zip(addresses, told, strict=True)))


def _most_frequent(values: Iterable[Value]) -> list[Value]:
    """Each once, the most frequent first; of those that are as frequent the one that came first."""
    return [value for value, _ in Counter(values).most_common()]
