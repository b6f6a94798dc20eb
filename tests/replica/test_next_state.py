"""A state that is computed part by part is the state that a whole computation would give."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.codec import PART_VALUES
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.state import ReplicaState

NUMEL = 2 * PART_VALUES + 1000
LAYOUT = ((700, 700), (NUMEL - 490_000,))  # the matrix ends amid the second part


@pytest.fixture(scope="module", params=["nesterov", "plain", "adamw"])
def manifest(request, make_manifest) -> Manifest:
    """Of each outer optimizer."""
    if request.param == "adamw":
        outer = {"optimizer": "adamw", "learning_rate": 3e-4, "weight_decay": 0.1}
        inner = {"optimizer": "none", "learning_rate": 0.0}
        return make_manifest(outer=outer, inner=inner, rounds={"strategy": "gradient"})
    momentum = 0.9 if request.param == "nesterov" else 0.0
    return make_manifest(outer={"optimizer": "nesterov", "learning_rate": 0.7, "momentum": momentum})


@pytest.fixture(scope="module")
def before(manifest: Manifest) -> ReplicaState:
    generator = torch.Generator().manual_seed(1)
    names = build_outer(manifest).buffer_names
    rows = torch.randn(1 + len(names), NUMEL, generator=generator).abs()  # a variance is not negative
    return ReplicaState(3, 100, LAYOUT, rows[0], dict(zip(names, rows[1:], strict=True)))


def average() -> list[torch.Tensor]:
    """Its three parts, which whoever takes them uses up."""
    values = torch.randn(NUMEL, generator=torch.Generator().manual_seed(2)) * 1e-3
    return [*values.split(PART_VALUES)]


def test_the_order_of_the_parts_does_not_matter(manifest: Manifest, before: ReplicaState) -> None:
    """One after another, backwards, and in threads: the same digest, which is that of a step at once."""
    whole = NextState(build_outer(manifest), before)._after
    build_outer(manifest).step(before, whole, slice(0, NUMEL), torch.cat(average()))
    digests = {replace(whole, swarm_tokens=107, electorate=before.electorate.after(["a"])).digest}
    for order in ([0, 1, 2], [2, 1, 0]):
        following, parts = NextState(build_outer(manifest), before), average()
        for number in order:
            following.take(number, parts[number])
        digests.add(following.finish(7, ["a"]).digest)
    following = NextState(build_outer(manifest), before)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(following.take, range(3), average()))
    digests.add(following.finish(7, ["a"]).digest)
    assert len(digests) == 1


def test_its_hashes_are_those_of_its_bytes(manifest: Manifest, before: ReplicaState) -> None:
    """What was hashed part by part is the blob that hashing the whole state gives."""
    following = NextState(build_outer(manifest), before)
    for number, part in enumerate(average()):
        following.take(number, part)
    state = following.finish(7, ["a"])
    assert (state.round, state.swarm_tokens, state.layout) == (4, 107, LAYOUT)
    again = Blob.build(state.blob.index.header, state.blob.sections)
    assert state.blob.index == again.index
    assert state.digest != before.digest


def test_a_peer_that_decides_next_follows_from_the_round(manifest: Manifest, before: ReplicaState) -> None:
    """From who counted in it, who has left, and whether it was a weak one: each gives another digest."""
    before = replace(before, electorate=Electorate(2).after("abc", weak=True))
    found = {}
    for rounds in ({"members": "ab"}, {"members": "ab", "left": "c"}, {"members": "ad", "weak": True}):
        following = NextState(build_outer(manifest), before)
        for number, part in enumerate(average()):
            following.take(number, part)
        state = following.finish(7, **rounds)
        found[state.digest] = sorted(state.electorate.members)
    assert list(found.values()) == [["a", "b", "c"], ["a", "b"], ["a"]]


def test_what_is_not_finite_is_no_state(manifest: Manifest, before: ReplicaState) -> None:
    """One value too large, in any part, and nothing follows."""
    for bad in range(3):
        following, parts = NextState(build_outer(manifest), before), average()
        parts[bad][-1] = 3.4e38
        parts[bad] *= 10
        for number, part in enumerate(parts):
            following.take(number, part)
        with pytest.raises(OverflowError, match="not finite"):
            following.finish(7, ["a"])


def test_a_part_that_is_missing_is_noticed(manifest: Manifest, before: ReplicaState) -> None:
    """Memory that nobody wrote to becomes no state."""
    following = NextState(build_outer(manifest), before)
    for number, part in enumerate(average()[:2]):
        following.take(number, part)
    with pytest.raises(KeyError):
        following.finish(7, ["a"])
