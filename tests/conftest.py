"""What all tests share: what they must not leave behind, and what they must not be silent about."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.leftovers import nothing_new, short_folder
from tests.support.loops import nothing_forgotten

os.environ.setdefault("OMP_NUM_THREADS", "1")
# As the node process has it: tests that run hivemind themselves leave no named segments either.
os.environ.setdefault("HIVEMIND_MEMORY_SHARING_STRATEGY", "file_descriptor")


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
