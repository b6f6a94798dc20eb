import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dupt_swarm.node.memory import SharedMemory, anonymous_file
from dupt_swarm.replica.state import ReplicaState


@pytest.fixture
def fd():
    """The descriptor of an anonymous file."""
    fd = anonymous_file()
    yield fd
    os.close(fd)


LAYOUT = ((2, 2), (1,))
NAMES = ("momentum",)


def state_of(fill: float) -> ReplicaState:
    """A state of five parameters and one outer buffer."""
    anchor = torch.full((5,), fill)
    return ReplicaState(3, 1000, LAYOUT, anchor, {"momentum": anchor * 2})


def test_both_sides_see_both(fd) -> None:
    """What one side writes is what the other reads, in both directions, without overlapping."""
    trainer, node = SharedMemory(fd, LAYOUT, NAMES), SharedMemory(fd, LAYOUT, NAMES)
    trainer.contribution[:20] = b"x" * 20
    node.store(state_of(2.0))
    assert node.contribution[:21] == b"x" * 20 + b"\0"
    assert trainer.anchor.tolist() == [2.0] * 5


def test_memory_begins_empty(fd) -> None:
    """New memory is zero, holds no state, and is as large as contribution, anchor and buffers need."""
    memory = SharedMemory(fd, LAYOUT, NAMES)
    assert not any(memory.contribution)
    assert memory.load() is None
    assert os.fstat(fd).st_size == 4096 + 3 * 5 * 4 + 4096


def test_another_process_finds_the_state(fd) -> None:
    """A node that is started again reads the state that the one before left, bit for bit."""
    code = (
        "import sys; from test_memory import *\n"
        "SharedMemory(int(sys.argv[1]), LAYOUT, NAMES).store(state_of(0.1))"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", code, str(fd)]
    subprocess.run(command, pass_fds=(fd,), check=True, timeout=60, env=os.environ | {"PYTHONPATH": path})
    found = SharedMemory(fd, LAYOUT, NAMES).load()
    assert found is not None
    assert (found.round, found.swarm_tokens, found.digest) == (3, 1000, state_of(0.1).digest)


def test_half_a_state_is_none(fd) -> None:
    """A node that dies while it stores leaves nothing that could be taken for a state."""
    memory = SharedMemory(fd, LAYOUT, NAMES)
    memory.store(state_of(1.0))
    newer = state_of(2.0)
    newer.buffers.clear()  # so that storing fails after the anchor was copied
    with pytest.raises(KeyError):
        memory.store(newer)
    assert memory.load() is None


def test_a_damaged_state_is_none(fd) -> None:
    """A state whose numbers do not have its digest is not gone on with."""
    memory = SharedMemory(fd, LAYOUT, NAMES)
    memory.store(state_of(1.0))
    memory.anchor[0] = 3.0
    assert memory.load() is None


def test_memory_outlives_its_owner_object(fd) -> None:
    """A vector stays usable when the object that made it is gone."""
    contribution = SharedMemory(fd, LAYOUT, NAMES).contribution
    contribution[:3] = b"abc"
    assert bytes(SharedMemory(fd, LAYOUT, NAMES).contribution[:3]) == b"abc"


def test_it_has_no_name(fd, tmp_path, monkeypatch) -> None:
    """The memory is in no folder, so nothing can be left in /dev/shm or in the folder for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delattr(os, "memfd_create", raising=False)
    shm = Path("/dev/shm")
    before = set(shm.iterdir()) if shm.exists() else set()
    elsewhere = anonymous_file()  # as on systems without memfd
    for each in (fd, elsewhere):
        SharedMemory(each, LAYOUT, NAMES).store(state_of(1.0))
        assert os.fstat(each).st_nlink == 0
    os.close(elsewhere)
    assert list(tmp_path.iterdir()) == []
    after = set(shm.iterdir()) if shm.exists() else set()
    assert [path for path in after - before if str(os.getpid()) in path.name or "dupt" in path.name] == []
