import mmap
import os
import sys
import threading
from pathlib import Path

import pytest
import torch

from dupt_swarm.disk.anonymous import anonymous_file
from dupt_swarm.node.memory import SharedMemory
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.state import ReplicaState
from tests.support.memory import leave
from tests.support.programs import run_python


@pytest.fixture
def fd():
    """The descriptor of an anonymous file."""
    fd = anonymous_file()
    yield fd
    os.close(fd)


LAYOUT = ((2, 2), (1,))


def state_of(fill: float) -> ReplicaState:
    """A state of five parameters and one outer buffer."""
    anchor = torch.full((5,), fill)
    electorate = Electorate(3, {"11": (3, 1, 3)})
    return ReplicaState(3, 1000, LAYOUT, anchor, {"momentum": anchor * 2}, electorate)


def seen(memory: SharedMemory, state: ReplicaState, by: SharedMemory) -> torch.Tensor:
    """The anchor of a ``state`` in ``memory`` where the other side, ``by``, finds it."""
    return by.vectors.at(memory.vectors.number(state.anchor))


def test_both_sides_see_both(fd) -> None:
    """What one side writes is what the other reads, in both directions, without overlapping."""
    trainer, node = SharedMemory(fd, LAYOUT), SharedMemory(fd, LAYOUT)
    trainer.contribution[:20] = b"x" * 20
    state = leave(node, state_of(2.0))
    assert node.contribution[:21] == b"x" * 20 + b"\0"
    assert seen(node, state, by=trainer).tolist() == [2.0] * 5


def test_memory_begins_empty(fd) -> None:
    """New memory is zero, holds no state, and grows by what a state needs, in pages."""
    memory = SharedMemory(fd, LAYOUT)
    assert not any(memory.contribution)
    assert memory.load() is None
    before = os.fstat(fd).st_size
    leave(memory, state_of(1.0))
    assert os.fstat(fd).st_size == before + 2 * mmap.PAGESIZE


def test_another_process_finds_the_state(fd) -> None:
    """A node that is started again reads the state that the one before left, bit for bit."""
    code = (
        "import sys; from test_memory import *\nleave(SharedMemory(int(sys.argv[1]), LAYOUT), state_of(0.1))"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path}
    done = run_python("-c", code, str(fd), seconds=60, pass_fds=(fd,), env=environment)
    assert done.returncode == 0, done.stderr
    found = SharedMemory(fd, LAYOUT).load()
    assert found is not None
    assert (found.round, found.swarm_tokens, found.digest) == (3, 1000, state_of(0.1).digest)


def test_a_state_elsewhere_is_not_named(fd) -> None:
    """What the other side could not see is refused, and the state before stays."""
    memory = SharedMemory(fd, LAYOUT)
    state = leave(memory, state_of(1.0))
    with pytest.raises(KeyError):
        memory.name(state_of(2.0))
    found = memory.load()
    assert found is not None and found.digest == state.digest


def test_the_state_before_stays_while_the_next_is_computed(fd) -> None:
    """Its memory is used again when nobody refers to it any more, and not before."""
    node, trainer = SharedMemory(fd, LAYOUT), SharedMemory(fd, LAYOUT)
    beginning = os.fstat(fd).st_size  # name and contribution
    first = leave(node, state_of(1.0))
    anchor, size = seen(node, first, by=trainer), os.fstat(fd).st_size
    second = leave(node, state_of(2.0))
    assert anchor.tolist() == [1.0] * 5
    assert seen(node, second, by=trainer).tolist() == [2.0] * 5
    del first
    third = leave(node, state_of(3.0))
    assert anchor.tolist() == [3.0] * 5
    assert second.anchor.tolist() == [2.0] * 5
    assert third.digest == state_of(3.0).digest
    assert os.fstat(fd).st_size == 2 * size - beginning


def test_a_new_process_leaves_alone_what_the_trainer_may_be_at(fd) -> None:
    """Until it is told that nobody is there any more."""
    before, trainer = SharedMemory(fd, LAYOUT), SharedMemory(fd, LAYOUT)
    states = [leave(before, state_of(1.0))]
    anchor = seen(before, states[0], by=trainer)
    states.append(leave(before, state_of(2.0)))  # of which the trainer does not know yet
    after = SharedMemory(fd, LAYOUT)
    found = after.load()
    assert found is not None
    assert found.digest == states[1].digest
    third, fourth = (leave(after, state_of(value)) for value in (3.0, 4.0))
    assert anchor.tolist() == [1.0] * 5
    after.vectors.reclaim()
    fifth = leave(after, state_of(5.0))
    assert anchor.tolist() in ([5.0] * 5, [10.0] * 5)  # a vector is a vector, whose ever it was
    assert [found.anchor[0], third.anchor[0], fourth.anchor[0], fifth.anchor[0]] == [2.0, 3.0, 4.0, 5.0]


@pytest.mark.skipif(not hasattr(mmap, "MADV_REMOVE"), reason="only Linux gives parts of a file back")
def test_memory_beyond_the_spare_is_given_back(fd) -> None:
    """Of states that others fetched for a while, no memory remains."""
    numel = 1 << 20
    memory = SharedMemory(fd, ((numel,),))
    held = [memory.vectors.empty(numel).fill_(1.0) for _ in range(4)]
    full = os.fstat(fd).st_blocks
    size = os.fstat(fd).st_size
    held.clear()
    assert os.fstat(fd).st_blocks == full
    memory.vectors.trim(1)
    assert os.fstat(fd).st_blocks * 512 <= full * 512 - 3 * 4 * numel
    again = [memory.vectors.empty(numel) for _ in range(4)]
    assert [float(vector.sum()) for vector in again] == [numel, 0.0, 0.0, 0.0]
    assert os.fstat(fd).st_size == size


def test_no_vector_is_lent_twice(fd) -> None:
    """Whatever several threads take at once, and while those of a process before are taken back."""
    left = SharedMemory(fd, LAYOUT)
    held = [left.vectors.empty(5) for _ in range(20)]
    memory, taken = SharedMemory(fd, LAYOUT), []

    def take() -> None:
        for _ in range(50):
            taken.append(memory.vectors.empty(5))
            memory.vectors.reclaim()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=take) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len({memory.vectors.number(vector) for vector in taken}) == len(taken) == 200
    assert held


def test_half_a_name_is_none(fd) -> None:
    """A node that dies while it names a state leaves nothing that could be taken for one."""
    memory = SharedMemory(fd, LAYOUT)
    leave(memory, state_of(1.0))
    os.pwrite(fd, bytes(2000), 40)
    assert memory.load() is None


def test_a_damaged_state_is_none(fd) -> None:
    """A state whose numbers do not have its digest is not gone on with, nor is it written over."""
    trainer = SharedMemory(fd, LAYOUT)
    node = SharedMemory(fd, LAYOUT)
    state = leave(node, state_of(1.0))
    anchor = seen(node, state, by=trainer)
    anchor[0] = 3.0
    memory = SharedMemory(fd, LAYOUT)
    assert memory.load() is None
    another = memory.vectors.empty(5).fill_(7.0)
    assert anchor.tolist() == [3.0, 1.0, 1.0, 1.0, 1.0] == state.anchor.tolist()
    assert another.tolist() == [7.0] * 5


def test_memory_outlives_its_owner_object(fd) -> None:
    """A vector stays usable when the object that made it is gone."""
    contribution = SharedMemory(fd, LAYOUT).contribution
    contribution[:3] = b"abc"
    assert bytes(SharedMemory(fd, LAYOUT).contribution[:3]) == b"abc"


def test_it_has_no_name(fd, tmp_path, monkeypatch) -> None:
    """The memory is in no folder, so nothing can be left in /dev/shm or in the folder for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delattr(os, "memfd_create", raising=False)
    shm = Path("/dev/shm")
    before = set(shm.iterdir()) if shm.exists() else set()
    elsewhere = anonymous_file()  # as on systems without memfd
    for each in (fd, elsewhere):
        leave(SharedMemory(each, LAYOUT), state_of(1.0))
        assert os.fstat(each).st_nlink == 0
    os.close(elsewhere)
    assert list(tmp_path.iterdir()) == []
    after = set(shm.iterdir()) if shm.exists() else set()
    assert [path for path in after - before if str(os.getpid()) in path.name or "dupt" in path.name] == []
