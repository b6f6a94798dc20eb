"""The private names of hivemind that we use or override, in the open under names of our own.

`tests/network/p2p/test_hivemind_internals.py` lists them, with what we rely on, and pins upstream's text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.datastructures import StreamInfo
from hivemind.p2p.p2p_daemon_bindings.utils import raise_if_failed, read_pbmsg_safe, write_pbmsg
from hivemind.proto import p2pd_pb2


def local_p2p_type(base: type[P2P], run_dir: Path, flags: dict[str, Any]) -> type[P2P]:
    """``base`` with its sockets in ``run_dir`` and these ``flags`` for ``p2pd``, which upstream fixes."""
    overrides = {
        "_UNIX_SOCKET_PREFIX": f"/unix{run_dir}/",
        "_make_process_args": staticmethod(partial(P2P._make_process_args, **flags)),
    }
    return type("LocalP2P", (base,), overrides)


def expect_death(p2p: P2P) -> None:
    """When its daemon dies, the connection to it ends without a complaint: `daemon_failure` tells of it."""
    for task in (p2p._client.control._read_task, p2p._client.control._write_task):
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


class PendingCalls(dict[Any, asyncio.Future[Any]]):
    """Calls that wait for an answer; one that was cancelled a moment ago is none of them."""

    def __contains__(self, call_id: object) -> bool:
        answer = self.get(call_id)
        return answer is not None and not answer.done()


class HandlerTasks(dict[Any, asyncio.Task[None]]):
    """Calls of others that are being answered; upstream keeps those for ever that are cancelled."""

    def __setitem__(self, call_id: Any, task: asyncio.Task[None]) -> None:
        super().__setitem__(call_id, task)
        task.add_done_callback(lambda _: self.pop(call_id, None))


def expect_cancelled_calls(p2p: P2P) -> None:
    """An answer may come in the very moment in which its call is cancelled, and callers may cancel theirs.

    Upstream's reader would end with an error that nobody sees: from then on this node heard nothing, neither
    answers nor calls, and went on alone.
    """
    control = p2p._client.control
    control._pending_calls = PendingCalls(control._pending_calls)
    control._handler_tasks = HandlerTasks(control._handler_tasks)


def is_cut_off(p2p: P2P) -> bool:
    """Whether nobody reads any more what the daemon says, or writes to it."""
    control = p2p._client.control
    return bool(control._read_task.done() or control._write_task.done())


def memory_of(p2p: P2P) -> int:
    """Bytes that the daemon has in memory; 0 if it is gone."""
    try:
        return int(psutil.Process(p2p._child.pid).memory_info().rss)
    except psutil.Error:
        return 0


async def connect_to(p2p: P2P, peer_id: PeerID, routes: Sequence[Any]) -> None:
    """Let the daemon dial ``peer_id`` at the multiaddrs ``routes``."""
    await p2p._client.connect(peer_id, routes)


async def add_raw_handler(p2p: P2P, name: str, handler: Callable[[bytes, PeerID], Awaitable[bytes]]) -> None:
    """Answer calls of ``name``, which are no streams; upstream parses them before anybody measures."""
    await p2p._client.add_unary_handler(name, handler)


async def call_raw_handler(p2p: P2P, peer_id: PeerID, name: str, data: bytes) -> bytes:
    """Call a method of ``peer_id``, and return its answer unparsed, likewise."""
    reply: bytes = await p2p._client.call_unary_handler(peer_id, name, data)
    return reply


async def open_stream(
    p2p: P2P, peer_id: PeerID, protocol: str
) -> tuple[StreamInfo, asyncio.StreamReader, asyncio.StreamWriter]:
    """A stream to ``peer_id``; upstream's leaves its socket open where this fails."""
    reader, writer = await p2p._client.control.daemon_connector.open_connection()
    try:
        opening = p2pd_pb2.StreamOpenRequest(peer=peer_id.to_bytes(), proto=[protocol])
        await write_pbmsg(writer, p2pd_pb2.Request(type=p2pd_pb2.Request.STREAM_OPEN, streamOpen=opening))
        response = p2pd_pb2.Response()
        await read_pbmsg_safe(reader, response)
        raise_if_failed(response)
        return StreamInfo.from_protobuf(response.streamInfo), reader, writer
    except BaseException:
        writer.close()
        raise
