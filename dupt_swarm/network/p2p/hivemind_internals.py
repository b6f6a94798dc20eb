"""Every private name of hivemind that we use or override, in the open under names of our own.

`TABLE` says what each is, where upstream has it, and why we need it. The version is pinned in
pyproject.toml, and a test pins the text of each source here: with another hivemind it fails, and names
what has changed. Then read the upstream lines beside the code here, mend that, and renew the table.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import pkgutil
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives import serialization
from hivemind.averaging import DecentralizedAverager
from hivemind.averaging.allreduce import AllReduceRunner
from hivemind.averaging.group_info import GroupInfo
from hivemind.averaging.matchmaking import Matchmaking
from hivemind.dht.crypto import RSASignatureValidator
from hivemind.p2p import P2P, PeerID, StubBase
from hivemind.p2p.p2p_daemon_bindings.datastructures import StreamInfo
from hivemind.p2p.p2p_daemon_bindings.utils import raise_if_failed, read_pbmsg_safe, write_pbmsg
from hivemind.proto import p2pd_pb2
from hivemind.utils.crypto import RSAPrivateKey, RSAPublicKey

HIVEMIND_VERSION = "1.1.12"


# Each: the private name; the file and line of the upstream text that we rely on, what it is, and the first
# digits of its SHA-256; what it is for.
TABLE = """
P2P._client
    p2p/p2p_daemon.py:83 P2P.create 2e4720e954b7
    the control connection to p2pd; made here
P2P._UNIX_SOCKET_PREFIX
    p2p/p2p_daemon.py:83 P2P.create 2e4720e954b7
    where sockets are put; read here, and set by us to a folder of the run
P2P._make_process_args
    p2p/p2p_daemon.py:682 P2P._make_process_args def6fcf33d0d
    p2pd's command line; overridden with flags that `create` does not offer
ControlClient.connect
    p2p/p2p_daemon_bindings/control.py:332 ControlClient.connect 0be03f1f1d91
    dials a peer; `P2P` has no method for it
ControlClient.stream_open
    p2p/p2p_daemon_bindings/control.py:370 ControlClient.stream_open 002f5d5b8262
    written again, so that a stream that cannot be opened leaves no socket; also for relays' protocol
ControlClient._read_task, ControlClient._write_task
    p2p/p2p_daemon_bindings/control.py:249 ControlClient._ensure_persistent_conn 7a11d5d833d7
    end with an error that nobody fetches when p2pd dies; we fetch it
ControlClient._handler_tasks
    p2p/p2p_daemon_bindings/control.py:214 ControlClient._handle_persistent_request 9c958fd0b80c
    the calls that it answers; those that are cancelled stay in it, so ours drops them
ControlClient._pending_calls
    p2p/p2p_daemon_bindings/control.py:172 ControlClient._read_from_persistent_conn 7388e48bacf6
    the answers that it awaits; the reader dies of one whose call was just cancelled, so ours hides those
P2P.receive_raw_data
    p2p/p2p_daemon.py:376 P2P.receive_raw_data 353ef452baab
    reads a frame with `readexactly(length)`, where `FrameReader` refuses a long one
P2P._add_protobuf_stream_handler
    p2p/p2p_daemon.py:413 P2P._add_protobuf_stream_handler f72a7faa60ec
    hands its reader to `add_binary_stream_handler`, where `GuardedP2P` wraps it
P2P._iterate_protobuf_stream_handler
    p2p/p2p_daemon.py:486 P2P._iterate_protobuf_stream_handler 132d50ef5ecd
    takes its reader from `call_binary_stream_handler`, likewise; closes it only if it was begun
DHTProtocol.rpc_store
    dht/protocol.py:233 DHTProtocol.rpc_store 1be6960bd046
    unpacks whole dictionaries before it validates them, so `check_message` comes first
DHTProtocol.call_find
    dht/protocol.py:271 DHTProtocol.call_find 433adef0e520
    unpacks the answers of others, likewise
DictionaryDHTValue
    dht/storage.py:10 DictionaryDHTValue abdfd65471f4
    the form of those dictionaries, extension type 0x50
RSASignatureValidator._PUBLIC_KEY_RE
    dht/crypto.py:12 RSASignatureValidator d94b229e21a2
    the form of owner tags and signatures
RSAPrivateKey._private_key
    utils/crypto.py:37 RSAPrivateKey.__init__ eaaa16a881cb
    the key of `cryptography` within
RSAPublicKey._public_key
    utils/crypto.py:77 RSAPublicKey.__init__ 4ebedfb634c8
    the key of `cryptography` within
Matchmaking.look_for_group
    averaging/matchmaking.py:112 Matchmaking.look_for_group 05121895c726
    reads of its request what `GroupRequest` has
Matchmaking._check_reasons_to_reject
    averaging/matchmaking.py:334 Matchmaking._check_reasons_to_reject c694e8194862
    overridden: followers with a malformed gather are turned away
Matchmaking._request_join_group
    averaging/matchmaking.py:178 Matchmaking._request_join_group df823040a94d
    overridden: whatever a leader sends, the next one is asked
DecentralizedAverager._run_internal
    averaging/averager.py:273 DecentralizedAverager._run_internal 8f85686e1ccd
    what `serve` does instead: `_p2p`, `_matchmaking`, `_pending_groups_registered`
DecentralizedAverager._running_groups
    averaging/averager.py:581 DecentralizedAverager.rpc_aggregate_part 06ad9597d588
    where a sender finds the runner of its group; read here
DecentralizedAverager._register_allreduce_group
    averaging/averager.py:501 DecentralizedAverager._register_allreduce_group 5bf43ed9b95d
    puts a group there and takes it away
AllReduceRunner.run
    averaging/allreduce.py:151 AllReduceRunner.run d145a0e368a5
    calls what we override, and leaves `_future` with an error that nobody fetches
AllReduceRunner._future
    averaging/allreduce.py:361 AllReduceRunner.finalize 4e759939d641
    set here; we fetch its error
AllReduceRunner._communicate_with_peer
    averaging/allreduce.py:201 AllReduceRunner._communicate_with_peer d910885e9727
    overridden: averages instead of differences
AllReduceRunner._accumulate_parts_streaming
    averaging/allreduce.py:335 AllReduceRunner._accumulate_parts_streaming 6c5a3c726606
    overridden: parts are screened, and each average is encoded once
AllReduceRunner.rpc_aggregate_part
    averaging/allreduce.py:259 AllReduceRunner.rpc_aggregate_part c66765f4ad58
    calls the one above, for clients in a task that it may forget
AllReduceRunner._get_peer_stub
    averaging/allreduce.py:145 AllReduceRunner._get_peer_stub 2f3b14268694
    to call a member; called
AllReduceRunner._ban_sender
    averaging/allreduce.py:317 AllReduceRunner._ban_sender 3a3d52ad781b
    ends the wait for a sender; called
"""


class Internal(NamedTuple):
    """One entry of `TABLE`."""

    name: str
    place: str
    source: str
    sha256: str
    use: str

    @property
    def found(self) -> tuple[str, str]:
        """``place`` and ``sha256`` as they are in the hivemind that is installed."""
        file = self.place.partition(":")[0]
        module = file.removesuffix(".py").replace("/", ".")
        lines, start = inspect.getsourcelines(pkgutil.resolve_name(f"hivemind.{module}:{self.source}"))
        return f"{file}:{start}", hashlib.sha256("".join(lines).encode()).hexdigest()[:12]


def internals() -> list[Internal]:
    """`TABLE`, read."""
    lines = TABLE.strip().splitlines()
    entries = zip(lines[::3], lines[1::3], lines[2::3], strict=True)
    return [Internal._make((name, *pinned.split(), use.strip())) for name, pinned, use in entries]


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


async def connect_to(p2p: P2P, peer_id: PeerID, routes: Sequence[Any]) -> None:
    """Let the daemon dial ``peer_id`` at the multiaddrs ``routes``."""
    await p2p._client.connect(peer_id, routes)


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


def private_key_of(der: bytes) -> RSAPrivateKey:
    """The key with this DER; upstream has no constructor for one that exists.

    Whether its factors are prime is not examined, which takes as long as making one; p2pd, which has the same
    file, looks at the key as it starts.
    """
    key = RSAPrivateKey.__new__(RSAPrivateKey)
    key._private_key = serialization.load_der_private_key(
        der, password=None, unsafe_skip_rsa_key_validation=True
    )
    return key


def public_der(key: RSAPublicKey) -> bytes:
    """The key as libp2p hashes it into a peer id."""
    der: bytes = key._public_key.public_bytes(
        encoding=serialization.Encoding.DER, format=serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return der


def owner_in(tag: bytes) -> bytes | None:
    """The OpenSSH public key in an owner tag; None if ``tag`` is none. Quadratic: check lengths before."""
    match = RSASignatureValidator._PUBLIC_KEY_RE.fullmatch(tag)
    return match.group(1) if match else None


class OpenMatchmaking(Matchmaking):  # type: ignore[misc]
    """`Matchmaking` with the two steps that we override under public names."""

    def objection(self, request: Any, context: Any) -> Any:
        """The message that turns a follower away; None if it may follow."""
        return super()._check_reasons_to_reject(request, context)

    async def ask_to_lead(self, leader: PeerID) -> GroupInfo | None:
        """The group that ``leader`` makes with us; None if there is none."""
        return await super()._request_join_group(leader)

    def _check_reasons_to_reject(self, request: Any, context: Any) -> Any:
        return self.objection(request, context)

    async def _request_join_group(self, leader: PeerID) -> GroupInfo | None:
        return await self.ask_to_lead(leader)


class OpenAverager(DecentralizedAverager):  # type: ignore[misc]
    """`DecentralizedAverager` that is never forked: what its process would set up is set up by `serve`."""

    async def serve(self, p2p: P2P, matchmaking: Matchmaking) -> None:
        """Begin to answer other peers' requests."""
        self._p2p, self._matchmaking = p2p, matchmaking
        self._pending_groups_registered = asyncio.Event()
        self._pending_groups_registered.set()
        if not self.client_mode:
            await self.add_p2p_handlers(p2p, namespace=self.prefix)

    @contextmanager
    def group_expected(self) -> Iterator[None]:
        """Who sends parts for a group that we do not know waits, since it may be about to be ours."""
        self._pending_groups_registered.clear()
        try:
            yield
        finally:
            self._pending_groups_registered.set()

    @contextmanager
    def running(self, group: GroupInfo, runner: AllReduceRunner) -> Iterator[None]:
        """Parts for ``group`` go to ``runner``."""
        with self._register_allreduce_group(group):
            self._running_groups[group.group_id].set_result(runner)
            yield


class OpenRunner(AllReduceRunner):  # type: ignore[misc]
    """`AllReduceRunner` with the steps that we call or override under public names."""

    async def exchange_with(self, peer_id: PeerID) -> None:
        """Give a peer its share of our contribution, and take what it makes of it."""
        raise NotImplementedError

    def reduce_from(self, stream: AsyncGenerator[Any, None], sender: int) -> AsyncGenerator[Any, None]:
        """Take the parts of the sender with this index; yields the answers."""
        raise NotImplementedError

    def stub_of(self, peer_id: PeerID) -> StubBase:
        """To call a peer of the group."""
        return self._get_peer_stub(peer_id)

    async def ban(self, peer_id: PeerID) -> None:
        """Wait no longer for parts of this sender."""
        await self._ban_sender(peer_id)

    def finalize(self, *, cancel: bool = False, exception: BaseException | None = None) -> None:
        """As inherited (and called by upstream), for a future that nobody awaits."""
        super().finalize(cancel=cancel, exception=exception)
        if not self._future.cancelled():
            self._future.exception()  # else asyncio reports one that was never retrieved

    async def _communicate_with_peer(self, peer_id: PeerID) -> None:
        await self.exchange_with(peer_id)

    def _accumulate_parts_streaming(
        self, stream: AsyncGenerator[Any, None], sender_index: int
    ) -> AsyncGenerator[Any, None]:
        return self.reduce_from(stream, sender_index)
