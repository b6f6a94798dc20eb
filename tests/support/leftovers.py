"""What a test leaves behind: processes, and files in /tmp and /dev/shm."""

import os
import resource
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from dupt_swarm.node.link import RunFolder
from tests.support.warm import nursery_pids

Thing = TypeVar("Thing")

SHARED = Path("/dev/shm")
GRACE_SECONDS = 30.0  # in which what has been told to end may do so, on a busy machine too
MARKS = 800_000  # Linux allows 819,200 bytes of message queues


def mark() -> None:
    """Have all that this process starts from now on found by `ours`, whoever its parent is by then.

    The limit of message queues, of which there are none here, is inherited by forks and by programs, and
    changes nothing. Each of pytest's workers takes its own: what the others start is none of its business.
    """
    _, most = resource.getrlimit(resource.RLIMIT_MSGQUEUE)
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (os.getpid() % MARKS, most))


def ours() -> set[psutil.Process]:
    """All live processes that descend from this test run, without this one."""
    found, staying = set(), {os.getpid(), *nursery_pids()}
    marked, _ = resource.getrlimit(resource.RLIMIT_MSGQUEUE)
    for process in psutil.process_iter():
        try:
            mine = process.rlimit(psutil.RLIMIT_MSGQUEUE)[0] == marked
            if mine and process.pid not in staying and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process)
        except (psutil.Error, FileNotFoundError):  # psutil lets some of the latter pass
            continue
    return found


def segments() -> set[Path]:
    """Shared memory, without what a live process outside of this test run has made (torch_<pid>_…)."""
    mine = {os.getpid(), *(process.pid for process in ours())}

    def foreign(segment: Path) -> bool:
        parts = segment.name.split("_")
        maker = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0
        return psutil.pid_exists(maker) and maker not in mine

    return {segment for segment in SHARED.iterdir() if not foreign(segment)}


@contextmanager
def short_folder() -> Iterator[Path]:
    """A new folder for temporary files; the path of a Unix socket has at most 108 bytes.

    Raises:
        AssertionError: something is left in it at the end; it is removed all the same.
    """
    short = Path(f"/tmp/{uuid.uuid4().hex[:8]}")
    short.mkdir()
    try:
        yield short
    finally:
        files = sorted(short.rglob("*"), reverse=True)
        for path in files:
            path.rmdir() if path.is_dir() else path.unlink()
        short.rmdir()
    assert not files, f"files left: {files}"


@contextmanager
def sockets_folder() -> Iterator[Path]:
    """A new folder for the sockets of peers that may be killed, and their nodes with them.

    After a power cut nobody is left to remove the folders of such a node: the next one does.

    Raises:
        AssertionError: it did not.
    """
    with short_folder() as short:
        yield short
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tempfile.tempdir", str(short))
            RunFolder().remove()


@contextmanager
def nothing_new() -> Iterator[None]:
    """Processes and shared memory are at the end what they were before.

    Raises:
        AssertionError: they are not; the processes are killed.
    """
    processes, shared = ours(), set(SHARED.iterdir())
    yield
    left = patiently(lambda: ours() - processes)
    files = patiently(lambda: segments() - shared)
    for process in left:
        process.kill()
    assert not left, f"processes left running: {left}"
    assert not files, f"shared memory left: {files}"


def patiently(find: Callable[[], set[Thing]]) -> set[Thing]:
    """What is still found after a while."""
    deadline = time.monotonic() + GRACE_SECONDS
    while (found := find()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
