"""Somebody who wishes a swarm ill, and tries all that a stranger can, again and again, until SIGTERM or
until the swarm has gone.

Arguments: manifest (a file), addresses of the peers. Each turn it comes with a fresh id; prints a JSON line
after it. What it sends is plain hivemind's and libp2p's; of the swarm it knows what anybody can read.
"""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgpack
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hivemind.p2p import P2P, P2PHandlerError

from dupt_swarm.discovery import observe
from dupt_swarm.errors import NodeError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.gossip import Gossip, Request
from dupt_swarm.settings import NodeSettings
from tests.support.signed_records import fresh_key, tell_record
from tests.support.stranger import call_raw, nested_extensions, peer_id_in, store_at, stranger_beside

KEYS, STREAMS, CALLS = 6, 40, 100
LATER = 1 << 50
CLAIM = {"round": LATER, "swarm_tokens": LATER, "state_digest": "cd" * 32}

Attack = Callable[[P2P, str], Awaitable[object]]


class Besieger:
    """Attacks one swarm."""

    def __init__(self, manifest: Manifest, addresses: list[str]) -> None:
        self.manifest, self.addresses = manifest, addresses
        self.liars, self.phantoms = ([fresh_key() for _ in range(KEYS)] for _ in range(2))
        self.digest = "ab" * 32
        self.attacks: tuple[Attack, ...] = (
            *(self.nest, self.lengthen, self.announce, self.claim, self.haunt, self.talk_nonsense),
            *(self.keep_open, self.flood),
        )

    async def turn(self) -> None:
        """All attacks, on all peers at once."""
        async with stranger_beside(*self.addresses) as p2p:
            for attack in self.attacks:
                await asyncio.gather(*(self._try(attack, p2p, address) for address in self.addresses))

    async def _try(self, attack: Attack, p2p: P2P, address: str) -> None:
        with contextlib.suppress(Exception):  # it is refused in many ways
            await attack(p2p, address)  # (cancelled calls would end hivemind's reader)

    async def nest(self, p2p: P2P, address: str) -> None:
        """Extension types within extension types, which end hivemind's reader."""
        await store_at(p2p, address, "x", nested_extensions(), msgpack.packb(True))

    async def lengthen(self, p2p: P2P, address: str) -> None:
        """The beginning of an owner tag, for regular expressions to search in."""
        await store_at(p2p, address, "x", msgpack.packb(b"[owner:" * 18_800), msgpack.packb(True))

    async def announce(self, p2p: P2P, address: str) -> None:
        """A message of 2^40 bytes."""
        _, _, writer = await p2p.call_binary_stream_handler(peer_id_in(address), "Exchange.rpc_chunks")
        writer.write(P2P.MESSAGE_MARKER + (1 << 40).to_bytes(P2P.HEADER_LEN, P2P.BYTEORDER))
        with contextlib.closing(writer):
            for _ in range(64):
                writer.write(bytes(1 << 20))
                await writer.drain()

    async def flood(self, p2p: P2P, address: str) -> None:
        """More questions than anybody may ask."""
        question = Request(b"", {}).pack()
        for _ in range(CALLS):
            with contextlib.suppress(P2PHandlerError):
                await call_raw(p2p, address, Gossip.rpc_records.name, question)

    async def keep_open(self, p2p: P2P, address: str) -> None:
        """Streams on which nothing comes."""
        with contextlib.ExitStack() as stack:
            for _ in range(STREAMS):
                _, _, writer = await p2p.call_binary_stream_handler(
                    peer_id_in(address), "Exchange.rpc_chunks"
                )
                stack.enter_context(contextlib.closing(writer))
            await asyncio.sleep(1.0)

    async def talk_nonsense(self, p2p: P2P, address: str) -> None:
        """To all that members say to each other."""
        names = (
            "Deciding.rpc_report",
            "Exchange.rpc_links",
            "Accusing.rpc_proofs",
            "Gossip.rpc_records",
            "Gossip.rpc_tell",
        )
        for name in names:
            for nonsense in (b"\x93" * 1000, b'{"roll": ' * 500, b""):
                with contextlib.suppress(Exception):
                    await call_raw(p2p, address, name, nonsense)

    async def claim(self, p2p: P2P, address: str) -> None:
        """A state of 2^50 tokens."""
        await self._store(p2p, address, self.liars, **CLAIM)

    async def haunt(self, p2p: P2P, address: str) -> None:
        """Oracles that are said to be at the swarm's state, with all tokens of its round, and never come."""
        await self._store(p2p, address, self.phantoms, state_digest=self.digest, round_tokens=LATER)

    async def _store(self, p2p: P2P, address: str, keys: list[Ed25519PrivateKey], **fields: object) -> None:
        for key in keys:
            await tell_record(p2p, address, self.manifest, key, **fields)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    file, *addresses = sys.argv[1:]
    manifest = Manifest.from_bytes(Path(file).read_bytes())
    besieger = Besieger(manifest, addresses)
    node, _ = observe(addresses, NodeSettings("observer", swarm_id=manifest.swarm_id))
    with node, contextlib.suppress(NodeError):  # it ends when nobody of the swarm is left
        while True:
            records = [peer.record for peer in node.refresh().oracles if peer.record.round < LATER]
            newest = max(records, key=lambda record: record.round, default=None)
            besieger.digest = newest.state_digest if newest else besieger.digest
            asyncio.run(besieger.turn())
            print(json.dumps({"event": "turn"}), flush=True)


if __name__ == "__main__":
    main()
