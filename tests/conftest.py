"""What all tests share: what they must not leave behind, and what they must not be silent about."""

import asyncio
import errno
import gc
import hashlib
import inspect
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from dupt_swarm.manifest import Manifest
from dupt_swarm.node.record import PeerRecord
from dupt_swarm.node.view import Peer
from tests.support.lacking import skip
from tests.support.leftovers import mark, nothing_new, short_folder
from tests.support.loops import nothing_forgotten
from tests.support.namespaces import Net, missing
from tests.support.quick import is_quick
from tests.support.spread import spread
from tests.support.tiny import tiny_tables
from tests.support.unpacked import unpack_for_tests
from tests.support.warm import (
    STARTERS,
    Program,
    Warm,
    fork_nursery,
    fork_workers,
    import_tests,
    start_by,
    warm_up,
)

# How long an example takes says nothing on a busy machine. One that fails is printed, to be repeated.
hypothesis.settings.register_profile("here", deadline=None, print_blob=True)
hypothesis.settings.load_profile("here")
# pytest's workers inherit it, so that all have the same.
SEED = os.environ.setdefault("DUPT_TEST_SEED", str(random.SystemRandom().randrange(2**32)))
ASYNC_SECONDS = 240.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `make check` leaves out."""
    parser.addoption("--quick", action="store_true", help="only tests that start no process")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The order of the files, and with `--quick` only tests that start no process, as imports say."""
    items[:] = spread(items)
    if config.getoption("quick"):
        config.hook.pytest_deselected(items=[test for test in items if not is_quick(test)])
        items[:] = filter(is_quick, items)


def pytest_configure(config: pytest.Config) -> None:
    """How programs start: workers inherit the daemon, and all that was imported before they were forked.

    `make test-system` has the daemon as it comes.
    """
    gc.disable()  # until all is imported: nothing of that is garbage
    mark()
    start_by(Program, *STARTERS)
    worker = getattr(config, "workerinput", None)
    if worker and Program is Warm:
        fork_nursery()
        number = int(worker["workerid"].removeprefix("gw"))  # one that takes another's place has a later one
        import_tests(config.rootpath, config.args, number / worker["workercount"] % 1)
    if worker:
        return
    if config.cache is not None and config.getoption("markexpr") != "system":
        unpack_for_tests(config.cache.mkdir("p2pd"))
    if config.getoption("numprocesses", None) and sys.platform == "linux":
        warm_up()
        fork_workers()


def pytest_report_header() -> str:
    """How to have the same random numbers again."""
    return f"random numbers: DUPT_TEST_SEED={SEED}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Tests begin."""
    leave_aside()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine has an event loop of its own, and four minutes."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), ASYNC_SECONDS))
    return True


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file system has locks, as some network drives."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", fail)


@pytest.fixture(autouse=True, scope="module")
def imports_aside() -> Iterator[None]:
    """What a file has imported, such as a large library, stays too."""
    yield
    leave_aside()


def leave_aside() -> None:
    """What is there stays: looking for garbage in it after each test would take a tenth of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Each test's random numbers follow from the seed of the run."""
    random.seed(int(SEED))
    if torch := sys.modules.get("torch"):
        # `torch.manual_seed` is for GPUs too, and keeps a traceback for each kind that is not there.
        torch.default_generator.manual_seed(int(SEED))


@pytest.fixture(autouse=True)
def no_forgotten_futures() -> Iterator[None]:
    """Fails the test if asyncio logged an error, such as an exception that was never retrieved."""
    with nothing_forgotten():
        yield


@pytest.fixture
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails the test if a process, socket or shared-memory segment is there that was not there before."""
    with short_folder() as short, nothing_new():
        monkeypatch.setenv("TMPDIR", str(short))
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
        monkeypatch.setattr("tempfile.tempdir", None)
        yield


@pytest.fixture(scope="session")
def make_manifest() -> Callable[..., Manifest]:
    """Tiny tables with whole rounds and changed keys: ``make_manifest(rounds={"chunk_seconds": 1})``."""

    def make(**changes: dict[str, Any] | str) -> Manifest:
        tables = tiny_tables()
        size = tables["model"]["vocabulary_size"]
        tables |= {"name": "test", "seed": 1, "tokenizer": {"sha256": "0" * 64, "vocabulary_size": size}}
        tables["rounds"]["growth"] = 1.0
        for key, value in changes.items():
            tables[key] = tables.get(key, {}) | value if isinstance(value, dict) else value
        return Manifest.model_validate(tables)

    return make


@pytest.fixture
def make_peer() -> Callable[..., Peer]:
    """A peer with a plausible record: ``make_peer("a", round_tokens=5)``."""

    def make(peer_id: str = "a", **fields: Any) -> Peer:
        digest = hashlib.sha256(b"state").hexdigest()
        record = {
            "role": "oracle",
            "state": "training",
            "time": 1000.0,
            "round": 3,
            "state_digest": digest,
            "swarm_tokens": 100,
        }
        return Peer(peer_id, PeerRecord.model_validate(record | fields))

    return make


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is that of a place with summer time."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def net() -> Iterator[Net]:
    """An empty network."""
    if reason := missing():
        skip(reason)
    with Net() as net:
        yield net
