"""What all tests share: a check that processes leave nothing behind."""

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dupt_swarm.manifest import Manifest
from dupt_swarm.node.record import PeerRecord
from dupt_swarm.node.view import Peer
from dupt_swarm.presets import load_preset

MARK = "DUPT_TEST_RUN"

# Every process that a test starts inherits this, and is found by it, whoever its parent is by then.
os.environ[MARK] = uuid.uuid4().hex
os.environ.setdefault("OMP_NUM_THREADS", "1")
# As the node process has it: tests that run hivemind themselves leave no named segments either.
os.environ.setdefault("HIVEMIND_MEMORY_SHARING_STRATEGY", "file_descriptor")


def ours() -> set[psutil.Process]:
    """All live processes that descend from this test run, without this one."""
    found = set()
    for process in psutil.process_iter():
        try:
            mine = process.environ().get(MARK) == os.environ[MARK]
            if mine and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process)
        except psutil.Error:
            continue
    return found


def _foreign(segment: Path) -> bool:
    """Whether a live process outside this test run made this segment (torch_<pid>_…)."""
    parts = segment.name.split("_")
    maker = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0
    return psutil.pid_exists(maker) and maker not in {os.getpid(), *(process.pid for process in ours())}


@pytest.fixture
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails the test if a process, socket or shared-memory segment is there that was not there before."""
    # A short folder of its own: the path of a Unix socket has at most 108 bytes.
    short = Path(f"/tmp/{uuid.uuid4().hex[:8]}")
    short.mkdir()
    monkeypatch.setenv("TMPDIR", str(short))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setattr("tempfile.tempdir", None)
    processes, shared = ours(), set(Path("/dev/shm").iterdir())
    yield
    deadline = time.monotonic() + 10
    while (left := ours() - processes) and time.monotonic() < deadline:
        time.sleep(0.1)
    files = [
        *short.iterdir(),
        *(path for path in set(Path("/dev/shm").iterdir()) - shared if not _foreign(path)),
    ]
    for process in left:
        process.kill()
    for path in sorted(short.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    short.rmdir()
    assert not left, f"processes left running: {left}"
    assert not files, f"files left: {files}"


@pytest.fixture(scope="session")
def make_manifest() -> Callable[..., Manifest]:
    """The tiny preset with some keys changed: ``make_manifest(rounds={"chunk_seconds": 1})``."""

    def make(**changes: dict[str, Any] | str) -> Manifest:
        tables = load_preset("tiny")
        size = tables["model"]["vocabulary_size"]
        tables |= {"name": "test", "seed": 1, "tokenizer": {"sha256": "0" * 64, "vocabulary_size": size}}
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
