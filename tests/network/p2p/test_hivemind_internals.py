"""Every private name of hivemind that we use or override, and what we rely on without being promised it.

`TABLE` says what each is, where upstream has it, and why we need it, and pins the text of each source: with
another hivemind than the one that pyproject.toml pins, tests fail and name what has changed. Then read the
upstream lines beside our code, mend that, and renew the table.
"""

import ast
import hashlib
import inspect
import pkgutil
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest

import dupt_swarm.network
from dupt_swarm.network.p2p import hivemind_internals

HIVEMIND_VERSION = "1.1.12"

# Each: the private name; the file and line of the upstream text that we rely on, what it is, and the first
# digits of its SHA-256; what it is for.
TABLE = """
P2P._client
    p2p/p2p_daemon.py:83 P2P.create 2e4720e954b7
    the control connection to p2pd; made here
P2P._child
    p2p/p2p_daemon.py:83 P2P.create 2e4720e954b7
    p2pd itself, whose memory is watched; made here
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
ControlClient.add_unary_handler
    p2p/p2p_daemon_bindings/control.py:255 ControlClient.add_unary_handler f6e499ca44af
    answers calls with bytes; `P2P._add_protobuf_unary_handler` parses them before they are measured
ControlClient.call_unary_handler
    p2p/p2p_daemon_bindings/control.py:286 ControlClient.call_unary_handler f2704627a5ed
    calls with bytes, likewise
P2P.receive_raw_data
    p2p/p2p_daemon.py:376 P2P.receive_raw_data 353ef452baab
    reads a frame with `readexactly(length)`, where `FrameReader` refuses a long one
P2P._add_protobuf_stream_handler
    p2p/p2p_daemon.py:413 P2P._add_protobuf_stream_handler f72a7faa60ec
    hands its reader to `add_binary_stream_handler`, where `GuardedP2P` wraps it
P2P._iterate_protobuf_stream_handler
    p2p/p2p_daemon.py:486 P2P._iterate_protobuf_stream_handler 132d50ef5ecd
    takes its reader from `call_binary_stream_handler`, likewise; closes it only if it was begun
DHTProtocol.call_find
    dht/protocol.py:271 DHTProtocol.call_find 433adef0e520
    unpacks what others say that they have found, so `check_dht_message` leaves neighbours alone in it
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
    pinned = ((name, *place.split(), use.strip()) for name, place, use in entries)
    return [Internal(*fields) for fields in pinned]


NETWORK = Path(dupt_swarm.network.__file__).parent
HOME = Path(hivemind_internals.__file__)
FILES = [path for path in sorted(NETWORK.rglob("*.py")) if path != HOME]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


@pytest.mark.parametrize("internal", internals(), ids=lambda internal: internal.name)
def test_upstream_is_what_it_was(internal: Internal) -> None:
    """The text of each source is the one that our code was written against."""
    assert internal.found == (internal.place, internal.sha256), (
        f"hivemind {version('hivemind')} has another {internal.source} than {HIVEMIND_VERSION} had "
        f"at {internal.place}. We rely on it for {internal.name}: {internal.use}. Compare the two, mend "
        f"{HOME.name} and those who use it, and then its table."
    )


def test_the_version_is_pinned() -> None:
    """The table is of the version that is installed."""
    assert version("hivemind") == HIVEMIND_VERSION


def test_the_table_is_complete() -> None:
    """Every private name of others that the file uses or overrides is in its table."""
    tree = ast.parse(HOME.read_text(encoding="utf-8"))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_private(node.attr)}
    used |= {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)}
    assert sorted(name for name in used if is_private(name) and name not in TABLE) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(NETWORK)))
def test_private_names_of_hivemind_are_in_one_file(path: Path) -> None:
    """Elsewhere under `network/` a private attribute is one that the same file defines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_private(node.attr)}
    defined = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)
    }
    defined |= {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    defined |= {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert sorted(used - defined) == []
