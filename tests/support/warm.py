"""Starting Python programs without importing PyTorch and hivemind anew each time (Linux only).

That takes three seconds of a core for every process, and the tests start hundreds. So pytest imports all of
it once, and its workers are forks of it. Each has a *nursery*: a process that has imported all of it and done
nothing else. `Warm` is `subprocess.Popen`, but the program runs in a fork of the nursery; what the program
starts in turn, that is its node, is a fork of the program. These are processes like any other, with pids,
signals, pipes, sockets and daemons of their own; tests that are about the start itself use `subprocess`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from platform import machine
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import pytest

from tests.support.spawning import spawn_lightly
from tests.support.unpacked import use_unpacked

REQUEST_BYTES_MAX = 1 << 20
AT_FIRST = dict(os.environ)  # of all tests: a nursery that comes later must not have what one of them has set
# Linux: see clone(2) and prctl(2).
SYS_CLONE = {"x86_64": 56, "aarch64": 220} if sys.platform == "linux" else {}
CLONE_PARENT, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
PR_GET_TID_ADDRESS = 40
IMPORTS = (
    *("dupt_swarm.network.process", "dupt_swarm.oracle.oracle", "dupt_swarm.optimizer", "peers.cli"),
    # What those import only when it is needed.
    *("torch._dynamo", "multiaddr.codecs.cid", "netaddr", "rich.live", "rich.table", "peers.metrics.http"),
    "sklearn.metrics",
)
# Start nodes, programs, and the trainers of further devices.
STARTERS = ("dupt_swarm.node.link", "peers.processes", "dupt_swarm.learning.data_parallel.workers")
# What the node's modules want to find when they are imported; see `dupt_swarm.node.link`.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # else OpenBLAS begins threads, for which a fork of a fork waits for ever
    "HIVEMIND_LOGLEVEL": "ERROR",
    "GOLOG_LOG_LEVEL": "fatal",
}


class _Start:
    """What `subprocess.Popen` asks for, by name; the order is that of its `_execute_child`."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        command, _, _, _, pass_fds, cwd, env, _, _, _, *rest = arguments
        self.command = [os.fspath(part) for part in ([command] if isinstance(command, str) else command)]
        self.pass_fds = [*pass_fds]
        self.cwd = os.fspath(cwd or Path.cwd())
        self.environment = dict(os.environ if env is None else env)
        self.pipes = rest[:6]
        self.new_session, self.process_group = bool(rest[11]), int(rest[12])

    @property
    def streams(self) -> list[int]:
        """The program's stdin, stdout and stderr; -1: that of the caller."""
        stdin, _, _, stdout, _, stderr = self.pipes
        return [own if given == -1 else given for own, given in enumerate((stdin, stdout, stderr))]


class Fork(subprocess.Popen[Any]):
    """A Python program in a fork of this process, as long as that has one thread.

    A lock that another thread holds would stay taken in the fork for ever. So a node that takes the place of
    one that has ended starts as it does elsewhere.
    """

    def _execute_child(self, *arguments: Any) -> None:
        if threading.active_count() > 1:
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        start = _Start(arguments)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        with _handlers_waiting():
            self.pid = os.fork()
        if self.pid == 0:
            become(vars(start), [*start.streams, *start.pass_fds])
        self._child_created = True
        self._close_pipe_fds(*start.pipes)  # type: ignore[attr-defined]


@contextlib.contextmanager
def _handlers_waiting() -> Iterator[None]:
    """What a signal's handler raises comes afterwards: in a hook of a fork it would be lost, and the lock of
    `logging` stay taken for ever. `subprocess` calls no such hooks."""
    me, came = os.getpid(), list[int]()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def note(number: int, _: object) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for late in came if os.getpid() == me else ():
        signal.raise_signal(late)


class Warm(subprocess.Popen[Any]):
    """A Python program in a fork of the nursery; a child of this process all the same."""

    def _execute_child(self, *arguments: Any) -> None:
        start = _Start(arguments)
        ours, theirs = socket.socketpair()
        with _asking, ours, theirs:
            descriptors = [theirs.fileno(), *start.streams, *start.pass_fds]
            socket.send_fds(_requests(), [json.dumps(vars(start)).encode()], descriptors)
            theirs.close()
            self.pid = int(ours.recv(32))
        self._child_created = True
        self._close_pipe_fds(*start.pipes)  # type: ignore[attr-defined]


def _requests() -> socket.socket:
    """The way to this process' nursery."""
    if not _nurseries:
        _nurseries.append(_Nursery(partial(subprocess.Popen, env=AT_FIRST)))
    return _nurseries[0].requests


_asking = threading.Lock()


def warm_up() -> None:
    """Import what programs need, as their nodes want to find it.

    This process may be forked afterwards as long as it has computed nothing: the threads of PyTorch and of
    OpenMP begin with the first work that they have.
    """
    before = dict(os.environ)
    os.environ |= ENVIRONMENT
    try:
        for module in IMPORTS:
            importlib.import_module(module)
    finally:
        os.environ.clear()
        os.environ.update(before)


def import_tests(root: Path, places: Sequence[str], begin: float) -> None:
    """Import the files of tests that pytest shall run, as it will by itself, but in another order.

    In a fresh clone they are to be compiled, which takes as long as a hundred tests. pytest's workers would
    all begin with the same file; beginning at different ones, each compiles some for the others.

    Args:
        root: of the project.
        places: files and folders, as in `pytest.Config.args`.
        begin: with the file after this share of them.
    """
    found = [Path(place.partition("::")[0]).absolute() for place in places]
    files = [
        file for path in found for file in (sorted(path.rglob("test_*.py")) if path.is_dir() else [path])
    ]
    first = int(begin * len(files))
    for file in (*files[first:], *files[:first]):
        with contextlib.suppress(Exception, pytest.skip.Exception):  # of which pytest tells
            importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


def fork_workers() -> None:
    """From now on the workers of pytest-xdist are forks of this process."""
    from execnet import gateway_base  # only there where pytest has workers

    gateway_base.ThreadExecModel.subprocess = _with_popen(Fork)  # type: ignore[assignment, method-assign]


class _Nursery:
    """A process that has imported all of `IMPORTS` and done nothing else; it ends with this one."""

    def __init__(self, popen: Callable[..., subprocess.Popen[Any]]) -> None:
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.requests.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES_MAX)
        with theirs:
            self.process = popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve({theirs.fileno()})"],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=Path(__file__).parents[2],  # where `tests` is found; a test may be elsewhere now
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self.requests.close()
        self.process.wait()


_nurseries: list[_Nursery] = []


def fork_nursery() -> None:
    """Have a nursery that is a fork of this process, which is one of a process that was warmed up."""
    _nurseries.append(_Nursery(Fork))


def nursery_pids() -> set[int]:
    """Of this process' nursery, if it has one: it stays until the end."""
    return {nursery.process.pid for nursery in _nurseries}


# Where this does not work, programs start as they do.
Program: type[subprocess.Popen[Any]] = Warm if machine() in SYS_CLONE else subprocess.Popen


def start_by(popen: type[subprocess.Popen[Any]], *modules: str) -> None:
    """From now on these modules start programs by ``popen``, a kind of `subprocess.Popen`."""
    for module in modules:
        vars(importlib.import_module(module))["subprocess"] = _with_popen(popen)


def _with_popen(popen: type[subprocess.Popen[Any]]) -> SimpleNamespace:
    """The module `subprocess` with another `Popen`."""
    names = {name: getattr(subprocess, name) for name in subprocess.__all__}
    return SimpleNamespace(**names | {"Popen": popen})


def become(start: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Run a program in this process, which has just been forked, as a new Python would.

    Args:
        start: see `_Start`.
        descriptors: stdin, stdout, stderr, and those to be passed on, in the order of ``pass_fds``.
    """
    code = 1
    try:
        gc.freeze()  # what the parent has is not ours to finalise, nor to end
        gc.enable()
        atexit._clear()
        if start["new_session"]:
            os.setsid()
        if start["process_group"] >= 0:
            os.setpgid(0, start["process_group"])
        _take(dict(zip([0, 1, 2, *start["pass_fds"]], descriptors, strict=True)))
        _look_new(start)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as in a terminal, though the tests may run under nohup
        command = start["command"]
        if command[0] == sys.executable:
            del command[0]
        if command[0] in ("-u", "-P"):  # so do pytest's workers begin, and those of an oracle
            del command[0]
        if command[0] == "-m":
            sys.argv = command[1:]
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        elif command[0] == "-c":
            sys.argv = ["-c", *command[2:]]
            sys.modules["__main__"] = main = ModuleType("__main__")
            exec(command[1], vars(main))
        else:
            sys.argv = command
            sys.path.insert(0, str(Path(command[0]).parent))
            runpy.run_path(command[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        _finish(code)


def _take(targets: dict[int, int]) -> None:
    """Have these descriptors, each under the number that it shall have, and no other.

    What else was open leads nowhere, but stays open: an object of the parent's that is forgotten here closes
    its number, and would close what has got that number since.
    """
    free = 1 + max(targets)  # copies out of the way of all targets
    copies = {target: fcntl.fcntl(source, fcntl.F_DUPFD, free) for target, source in targets.items()}
    for target, copy in copies.items():
        os.dup2(copy, target)
        os.close(copy)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in {int(path.name) for path in Path("/proc/self/fd").iterdir()} - {*targets, nowhere}:
        with contextlib.suppress(OSError):  # that of this very listing
            fcntl.fcntl(number, fcntl.F_GETFD)
            os.dup2(nowhere, number, inheritable=False)
    os.close(nowhere)


def _look_new(start: dict[str, Any]) -> None:
    """Environment, folder, signals, warnings, streams and modules as a new process has them."""
    import logging
    import tempfile
    import warnings

    os.environ.clear()
    os.environ.update(start["environment"])
    tempfile.tempdir = None  # the nursery's may be that of a test that is over
    os.chdir(start["cwd"])
    sys.orig_argv = list(start["command"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    logging.getLogger().handlers.clear()
    warnings.resetwarnings()
    for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", kind)
    start_by(Fork, *STARTERS)
    # The parent's may be files in which pytest keeps what a test prints.
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    hooks = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = [path for path in hooks if path not in sys.path]
    sys.modules.pop("__main__", None)
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")


def _finish(code: int) -> NoReturn:
    """End as Python does: threads, exit functions, buffers."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code & 0xFF)


def serve(descriptor: int) -> None:
    """Be the nursery; requests come from that socket."""
    requests = socket.socket(fileno=descriptor)
    warm_up()
    use_unpacked()
    spawn_lightly()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 64)
        if not message:
            return
        answers, *rest = descriptors
        pid = _fork_sibling()
        if pid == 0:
            become(json.loads(message), rest)
        os.write(answers, str(pid).encode())
        for descriptor in descriptors:
            os.close(descriptor)


def _fork_sibling() -> int:
    """`os.fork` of a process with one thread; but the new process is a child of this one's parent.

    So it is the caller's who has asked for it, without a fork in between, which takes 30 ms of a core. glibc
    offers no such fork; the kernel notes the new thread's id where glibc has that of the old one.
    """
    python, libc, place = ctypes.pythonapi, ctypes.PyDLL(None), ctypes.c_void_p()
    libc.prctl(PR_GET_TID_ADDRESS, ctypes.byref(place), 0, 0, 0)
    flags = CLONE_PARENT | signal.SIGCHLD | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID
    python.PyOS_BeforeFork()
    # The place twice: where one kind of machine has it, the other has an argument that means nothing here.
    pid = int(libc.syscall(SYS_CLONE[machine()], ctypes.c_long(flags), None, None, place, place))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError("no further process can be started")
    return pid
