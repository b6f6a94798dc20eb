"""The handshake with a swarm: who is there, the manifest that they share, and the tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hivemind.p2p import PeerID

from dupt_swarm.errors import ManifestError, NodeError, UnreachableError
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.tables import TOKENIZER_BYTES_MAX
from dupt_swarm.network.p2p.daemon import connect, start_daemon
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.network.states.store import BYTES_PER_SECOND_MIN
from dupt_swarm.node.addresses import Address
from dupt_swarm.replica.blob import Assembly
from dupt_swarm.settings import NodeSettings

TOKENIZER_SECONDS = 60.0  # and the time for its bytes at the slowest acceptable rate


@dataclass(frozen=True)
class Handshake:
    """The initial peers' answers: their hellos by peer id, and the manifest that all share."""

    hellos: dict[str, Hello]
    manifest: Manifest

    @property
    def peer_ids(self) -> list[str]:
        """Who answered."""
        return list(self.hellos)

    @property
    def state_digest(self) -> str:
        """The state that the first of them holds; empty if nobody answered."""
        return next((hello.state_digest for hello in self.hellos.values()), "")


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

    Raises:
        UnreachableError: none is a peer of a swarm.
        ManifestError: they differ among themselves, from ours, or from the swarm expected.
    """
    hellos = await _greet(exchange, addresses)
    offers = [Manifest.from_bytes(hello.manifest.encode()) for hello in hellos.values()]
    manifest = Manifest.from_bytes(settings.manifest) if settings.manifest else offers[0]
    for offer in offers:
        difference = manifest.difference(offer)
        if difference:
            raise ManifestError(
                f"swarm {offer.swarm_id} has another manifest than {manifest.swarm_id}: {difference}; "
                f"remove the state folder's manifest to join theirs, or start a swarm of your own"
            )
    if settings.swarm_id and settings.swarm_id != manifest.swarm_id:
        raise ManifestError(
            f"the peers are in swarm {manifest.swarm_id}, not in {settings.swarm_id}; "
            f"check the swarm's id and the addresses",
            setting=("swarm_id", "initial_peers"),
        )
    return Handshake(hellos, manifest)


async def get_tokenizer(exchange: Exchange, settings: NodeSettings, handshake: Handshake) -> bytes:
    """tokenizer.json: our own copy, or else from the initial peers; checked against the manifest.

    Raises:
        NodeError: it could not be fetched.
        ManifestError: it is not the manifest's.
    """
    data = settings.tokenizer
    if not data:
        peers = [PeerID.from_base58(peer_id) for peer_id in handshake.peer_ids]

        async def donors() -> list[PeerID]:
            return peers

        try:
            digest = next(iter(handshake.hellos.values())).tokenizer_blob
            index = await exchange.fetch_index(digest, peers)
            size = sum(index.sizes)
            if size > TOKENIZER_BYTES_MAX or len(index.sizes) != 1:
                raise NodeError("the peers offered a malformed tokenizer")
            seconds = TOKENIZER_SECONDS + size / BYTES_PER_SECOND_MIN
            data = bytes((await exchange.fetch(Assembly(index), donors, seconds)).sections[0])
        except NodeError as error:
            raise NodeError(f"the tokenizer could not be fetched ({error}); try again") from error
    wanted, found = handshake.manifest.tokenizer.sha256, hashlib.sha256(data).hexdigest()
    if wanted != found:
        raise ManifestError(
            f"`tokenizer.sha256` is {wanted[:12]}… in the manifest, but the tokenizer has {found[:12]}…; "
            f"use the tokenizer.json that `dupt-peer new` wrote beside it"
        )
    return data


async def _greet(exchange: Exchange, addresses: Sequence[str]) -> dict[str, Hello]:
    hellos, reasons = {}, {}
    for address in addresses:
        peer_id = Address.of_peer(address).peer_id
        try:
            hellos[peer_id] = await exchange.hello(PeerID.from_base58(peer_id))
        except Exception as error:
            # Another program may listen there, or a peer that has only just started.
            reasons[address] = f"no dupt_swarm peer that is ready ({str(error) or type(error).__name__})"
    if addresses and not hellos:
        raise UnreachableError(reasons)
    return hellos
