"""Blobs from peer to peer: each serves what it holds, and fetches by digest from who holds it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import AsyncIterator  # noqa: UP035 (hivemind recognises streams by this one only)

from google.protobuf.wrappers_pb2 import BytesValue, StringValue
from hivemind.p2p import P2P, P2PContext, PeerID, ServicerBase

from dupt_swarm.errors import NodeError
from dupt_swarm.replica.blob import INDEX_BYTES_MAX, Assembly, Blob, Index

SILENCE_SECONDS = 10.0
HELLO_SECONDS = 10.0


@dataclass(frozen=True)
class Hello:
    """What a peer tells anyone who asks: enough to join its swarm. ``manifest`` is canonical JSON.

    ``time`` is its clock when it answers, seconds since the epoch; empty if it does not tell.
    """

    version: str
    swarm_id: str
    manifest: str
    tokenizer_blob: str
    state_digest: str
    time: str = field(default="", compare=False)

    @property
    def clock(self) -> float:
        """``time`` as a number; 0 if it does not tell or tells nonsense."""
        try:
            clock = float(self.time)
        except ValueError:
            return 0.0
        return clock if math.isfinite(clock) else 0.0

    @classmethod
    def parse(cls, data: bytes) -> Hello:
        """Read another peer's hello.

        Raises:
            ValueError: it is not one.
        """
        try:
            tree = json.loads(data)
            hello = cls(**{key: tree[key] for key in cls.__dataclass_fields__ if key in tree})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a hello of a dupt_swarm peer: {error}") from error
        if not all(isinstance(value, str) for value in asdict(hello).values()):
            raise ValueError("not a hello of a dupt_swarm peer")
        return hello


class Exchange(ServicerBase):  # type: ignore[misc]
    """Serves immutable blobs, so that serving never waits for training or the other way round."""

    def __init__(self, p2p: P2P) -> None:
        self._p2p = p2p
        self._hello: Hello | None = None
        self._blobs: dict[str, Blob] = {}

    async def start(self) -> None:
        """Begin to answer other peers."""
        await self.add_p2p_handlers(self._p2p)

    def publish(self, hello: Hello, blobs: Sequence[Blob]) -> None:
        """From now on serve ``blobs`` and nothing else; downloads under way keep theirs."""
        self._hello = hello
        self._blobs = {blob.digest: blob for blob in blobs}

    async def rpc_hello(self, _request: StringValue, _context: P2PContext) -> BytesValue:
        """Who we are; empty while we do not know yet."""
        if self._hello is None:
            return BytesValue()
        return BytesValue(value=json.dumps(asdict(self._hello) | {"time": str(time.time())}).encode())

    async def rpc_index(self, request: StringValue, _context: P2PContext) -> BytesValue:
        """The index of a blob, or nothing if we do not hold it."""
        blob = self._blobs.get(request.value)
        return BytesValue(value=blob.index.data if blob else b"")

    async def rpc_chunks(self, request: BytesValue, _context: P2PContext) -> AsyncIterator[BytesValue]:
        """The chunks asked for, in the order asked for, each once.

        Downloads share the link as they come: a queue would starve its end while others download, and
        a few peers that stop reading would hold it for ever.
        """
        wanted = json.loads(request.value)
        blob = self._blobs.get(wanted["digest"])
        if blob is None:
            return
        for number in dict.fromkeys(wanted["numbers"]):
            yield BytesValue(value=bytes(blob.chunk(number)))

    async def hello(self, peer: PeerID) -> Hello:
        """Ask ``peer`` who it is.

        Raises:
            ValueError: it is no peer of a swarm (yet).
        """
        reply = await asyncio.wait_for(
            self.get_stub(self._p2p, peer).rpc_hello(StringValue()), timeout=HELLO_SECONDS
        )
        return Hello.parse(reply.value)

    async def fetch_index(self, donor: PeerID, digest: str) -> Index:
        """The index of blob ``digest``, checked.

        Raises:
            ValueError: the donor does not hold it, or sent something else.
        """
        stub = self.get_stub(self._p2p, donor)
        reply = await asyncio.wait_for(stub.rpc_index(StringValue(value=digest)), SILENCE_SECONDS)
        if not reply.value or len(reply.value) > INDEX_BYTES_MAX:
            raise ValueError("the donor does not hold this blob any more")
        if hashlib.sha256(reply.value).hexdigest() != digest:
            raise ValueError("the donor sent another blob")
        return Index.parse(reply.value)

    async def fetch(self, index: Index, donors: Sequence[PeerID], seconds: float) -> Blob:
        """The blob of ``index`` from the donors, one after the other until nothing is missing.

        Raises:
            NodeError: no donor could give all of it in time; says why for each.
        """
        assembly, problems = Assembly(index), []
        deadline = time.monotonic() + seconds
        for donor in donors:
            try:
                await asyncio.wait_for(self._fetch_missing(assembly, donor), deadline - time.monotonic())
            except Exception as error:
                # A donor may fail in any way that libp2p knows: the next one goes on where it stopped.
                problems.append(f"{donor}: {str(error) or type(error).__name__}")
            if not assembly.missing:
                return assembly.finish()
        raise NodeError("no peer could give the data; it will be tried again: " + "; ".join(problems))

    async def _fetch_missing(self, assembly: Assembly, donor: PeerID) -> None:
        numbers = sorted(assembly.missing)
        request = json.dumps({"digest": assembly.index.digest, "numbers": numbers}).encode()
        opening = self.get_stub(self._p2p, donor).rpc_chunks(BytesValue(value=request))
        async with contextlib.aclosing(await asyncio.wait_for(opening, SILENCE_SECONDS)) as replies:
            for number in numbers:
                reply = await asyncio.wait_for(anext(replies, None), SILENCE_SECONDS)
                if reply is None:
                    raise ValueError("the donor stopped sending")
                assembly.put(number, reply.value)
