import os
import subprocess
import sys
from pathlib import Path

import pytest

from dupt_swarm.network.memory import SharedVectors, anonymous_file


@pytest.fixture
def fd():
    """The descriptor of an anonymous file."""
    fd = anonymous_file()
    yield fd
    os.close(fd)


def test_both_sides_see_both_vectors(fd) -> None:
    """What one side writes is what the other reads, in both directions, without overlapping."""
    trainer, node = SharedVectors(fd, 5), SharedVectors(fd, 5)
    trainer.contribution.fill_(1.0)
    node.anchor.fill_(2.0)
    assert node.contribution.tolist() == [1.0] * 5
    assert trainer.anchor.tolist() == [2.0] * 5


def test_vectors_begin_as_zeros(fd) -> None:
    """New memory is zero, and of the size asked for."""
    vectors = SharedVectors(fd, 1000)
    assert (vectors.anchor.shape, vectors.contribution.shape) == ((1000,), (1000,))
    assert not vectors.anchor.any()
    assert not vectors.contribution.any()
    assert os.fstat(fd).st_size == 8000


def test_another_process_sees_it(fd) -> None:
    """A child that was handed the descriptor reads the contribution and writes the anchor."""
    vectors = SharedVectors(fd, 3)
    vectors.contribution.fill_(7.0)
    code = (
        "import sys; from dupt_swarm.network.memory import SharedVectors\n"
        "shared = SharedVectors(int(sys.argv[1]), 3); shared.anchor.copy_(shared.contribution + 1)"
    )
    subprocess.run([sys.executable, "-c", code, str(fd)], pass_fds=(fd,), check=True, timeout=60)
    assert vectors.anchor.tolist() == [8.0] * 3


def test_memory_outlives_its_owner_object(fd) -> None:
    """A vector stays usable when the object that made it is gone."""
    anchor = SharedVectors(fd, 3).anchor
    anchor.fill_(3.0)
    assert SharedVectors(fd, 3).anchor.tolist() == [3.0] * 3


def test_it_has_no_name(fd, tmp_path, monkeypatch) -> None:
    """The memory is in no folder, so nothing can be left in /dev/shm or in the folder for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delattr(os, "memfd_create", raising=False)
    shm = Path("/dev/shm")
    before = set(shm.iterdir()) if shm.exists() else set()
    elsewhere = anonymous_file()  # as on systems without memfd
    for each in (fd, elsewhere):
        vectors = SharedVectors(each, 1000)
        vectors.anchor.fill_(1.0)
        assert os.fstat(each).st_nlink == 0
    os.close(elsewhere)
    assert list(tmp_path.iterdir()) == []
    after = set(shm.iterdir()) if shm.exists() else set()
    assert [path for path in after - before if str(os.getpid()) in path.name or "dupt" in path.name] == []
