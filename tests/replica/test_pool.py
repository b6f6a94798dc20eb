import torch

from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.pool import VectorPool


def test_memory_is_used_again() -> None:
    """A vector that nobody refers to any more gives its memory to the next one."""
    pool = VectorPool(spare=2)
    places = {pool.empty(1000).fill_(float(number)).data_ptr() for number in range(5)}
    assert len(places) == 1


def test_memory_that_somebody_refers_to_is_left_alone() -> None:
    """A view, a part, NumPy's array or a blob of a vector keeps its values."""
    pool = VectorPool(spare=9)
    held = [
        pool.empty(1000).fill_(1.0).view(10, 100),
        pool.empty(1000).fill_(1.0)[5:6],
        torch.from_numpy(pool.empty(1000).fill_(1.0).numpy()),
        torch.frombuffer(
            Blob.build({}, [pool.empty(1000).fill_(1.0).numpy().data]).chunk(0), dtype=torch.float32
        ),
    ]
    for _ in range(5):
        pool.empty(1000).zero_()
    assert all(bool((each == 1.0).all()) for each in held)


def test_no_more_is_kept_than_was_said() -> None:
    """Of three vectors that are given up at once, two are kept."""
    pool = VectorPool(spare=2)
    vectors = [pool.empty(1000) for _ in range(3)]
    places = {vector.data_ptr() for vector in vectors}
    vectors.clear()
    assert len(pool._free) == 2
    again = [pool.empty(1000) for _ in range(2)]
    assert {vector.data_ptr() for vector in again} < places


def test_another_size_takes_other_memory() -> None:
    """Memory of another size is given up."""
    pool = VectorPool(spare=1)
    assert pool.empty(10).numel() == 10
    assert pool.empty(1000).fill_(2.0).sum() == 2000.0
    assert pool.empty(10).shape == (10,)


def test_memory_that_only_garbage_refers_to_is_given_again() -> None:
    """What refers to itself, as an ended round and its tasks do, would keep gigabytes until Python looks."""
    pool = VectorPool(spare=1)
    vector = pool.empty(10)
    place, ended = vector.data_ptr(), list[object]([vector])
    ended.append(ended)
    del vector, ended
    assert pool.empty(10).data_ptr() == place
