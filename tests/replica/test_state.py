import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dupt_swarm.replica.blob import Assembly, Blob, Index
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.state import ReplicaState, all_finite, check_header


def with_header(state: ReplicaState, **changes: object) -> Blob:
    """The blob of ``state`` with some keys of its header replaced."""
    index = state.blob.index
    changed = Index(index.header | changes, index.sizes, index.chunk_sha256)
    return Blob(Index.parse(changed.data), state.blob.sections)


def received(state: ReplicaState) -> Blob:
    """The blob of ``state`` as another peer assembles it."""
    assembly = Assembly(Index.parse(state.blob.index.data))
    for number in sorted(assembly.missing):
        assembly.put(number, bytes(state.blob.chunk(number)))
    return assembly.finish()


def flip(values: torch.Tensor, place: int, bit: int) -> torch.Tensor:
    """A copy of ``values`` with one bit changed."""
    words = values.numpy().view(np.uint32).copy()
    words[place] ^= np.uint32(1 << bit)
    return torch.from_numpy(words.view(np.float32))


def test_initial_state(parameters) -> None:
    """Round 0 has the parameters in order, a copy of them, and empty buffers."""
    state = ReplicaState.initial(parameters, ["b", "a"])
    assert (state.round, state.swarm_tokens) == (0, 0)
    assert state.layout == ((7, 5), (5,), (3, 2, 2))
    assert state.anchor.tolist() == [value for part in parameters for value in part.flatten().tolist()]
    zeros = [0.0] * 52
    assert {name: buffer.tolist() for name, buffer in state.buffers.items()} == {"a": zeros, "b": zeros}
    parameters[0].zero_()
    assert state.anchor[0] != 0


def test_single_parameter_is_copied() -> None:
    """Training on does not change the anchor, even where there is nothing to concatenate."""
    parameter = torch.ones(3, requires_grad=True)
    state = ReplicaState.initial([parameter], [])
    with torch.no_grad():
        parameter.zero_()
    assert state.anchor.tolist() == [1.0, 1.0, 1.0]


def test_equal_states_have_equal_digests(state) -> None:
    """The digest depends on nothing but the content."""
    buffers = {name: buffer.clone() for name, buffer in state.buffers.items()}
    copy = ReplicaState(3, 4711, state.layout, state.anchor.clone(), buffers)
    assert copy.digest == state.digest


@given(place=st.integers(0, 51), bit=st.integers(0, 31))
def test_digest_changes_with_any_bit(place: int, bit: int) -> None:
    """A single bit, in the anchor or in a buffer, changes the digest."""
    state = ReplicaState(1, 2, ((52,),), torch.linspace(-1, 1, 52), {"velocity": torch.zeros(52)})
    anchor = replace(state, anchor=flip(state.anchor, place, bit))
    buffer = replace(state, buffers={"velocity": flip(state.buffers["velocity"], place, bit)})
    assert len({state.digest, anchor.digest, buffer.digest}) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"round": 4},
        {"swarm_tokens": 4712},
        {"layout": ((5, 7), (5,), (3, 2, 2))},
        {"electorate": Electorate(2).after(["a"])},
    ],
    ids=["round", "tokens", "layout", "electorate"],
)
def test_digest_changes_with_the_header(state, changes) -> None:
    """Round, tokens, shapes and who decides are part of the digest."""
    assert replace(state, **changes).digest != state.digest


def test_digest_tells_buffers_apart(state) -> None:
    """The same numbers under another name, or anchor and buffer exchanged, are another state."""
    renamed = replace(state, buffers={"mean": state.buffers["velocity"]})
    exchanged = replace(state, anchor=state.buffers["velocity"], buffers={"velocity": state.anchor})
    assert len({state.digest, renamed.digest, exchanged.digest}) == 3


def test_blob_round_trip(state) -> None:
    """A state that arrives as a blob is bit for bit the state that was sent."""
    state = replace(state, electorate=Electorate(2).after(["a", "b"], ["b"]))
    copy = ReplicaState.from_blob(received(state), state.layout, ["velocity"])
    assert (copy.digest, copy.electorate) == (state.digest, state.electorate)
    assert (copy.round, copy.swarm_tokens, copy.layout) == (3, 4711, state.layout)
    assert torch.equal(copy.anchor, state.anchor)
    assert torch.equal(copy.buffers["velocity"], state.buffers["velocity"])


def test_buffers_keep_their_names() -> None:
    """Several buffers arrive under their own names, whatever the order in which they are asked for."""
    zeros = torch.zeros(2)
    state = ReplicaState(0, 0, ((2,),), zeros, {"variance": zeros + 2, "mean": zeros + 1})
    copy = ReplicaState.from_blob(received(state), state.layout, ["variance", "mean"])
    assert {name: buffer.tolist() for name, buffer in copy.buffers.items()} == {
        "mean": [1.0, 1.0],
        "variance": [2.0, 2.0],
    }


@pytest.mark.parametrize(
    ("layout", "names", "message"),
    [
        (((5, 7), (5,), (3, 2, 2)), ["velocity"], "belongs to a model of another shape"),
        (((7, 5), (5,)), ["velocity"], "belongs to a model of another shape"),
        (((7, 5), (5,), (3, 2, 2)), [], "belongs to another outer optimizer"),
        (((7, 5), (5,), (3, 2, 2)), ["mean", "variance"], "belongs to another outer optimizer"),
    ],
)
def test_other_model_is_refused(state, layout, names, message) -> None:
    """A state of another model or outer optimizer is refused, and so is its index alone."""
    with pytest.raises(ValueError, match=message):
        ReplicaState.from_blob(received(state), layout, names)
    with pytest.raises(ValueError, match=message):
        check_header(received(state).index, layout, names)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "replica-state-1"}, "not a replica state of this version"),
        ({"kind": None}, "not a replica state of this version"),
        ({"round": -1}, "impossible round"),
        ({"round": 1 << 62}, "impossible round"),
        ({"round": True}, "impossible round"),
        ({"round": 1.0}, "impossible round"),
        ({"round": None}, "impossible round"),
        ({"tokens_total": -1}, "impossible tokens_total"),
        ({"tokens_total": 1 << 62}, "impossible tokens_total"),
        ({"tokens_total": "1"}, "impossible tokens_total"),
        ({"kind": "replica-state-2"}, "not a replica state of this version"),
        ({"electorate": None}, "no electorate"),
        ({"electorate": [["a", 0, 1, 1]]}, "electorate is malformed"),
        ({"electorate": [["a", 1, 4, 4]]}, "electorate is malformed"),
        ({"electorate": [["b", 1, 1, 1], ["a", 1, 1, 1]]}, "electorate is not in order"),
    ],
)
def test_hostile_header_is_refused(state, changes, message) -> None:
    """Headers with other kinds or impossible numbers are refused, before anything is fetched."""
    blob = with_header(state, **changes)
    with pytest.raises(ValueError, match=message):
        check_header(blob.index, state.layout, ["velocity"])
    with pytest.raises(ValueError, match=message):
        ReplicaState.from_blob(blob, state.layout, ["velocity"])


def test_sections_of_another_size_are_refused(state) -> None:
    """An index that claims more bytes than the model has is refused before anything is fetched."""
    index = received(state).index
    huge = Index(index.header, (1 << 40, index.sizes[1]), index.chunk_sha256)
    with pytest.raises(ValueError, match="do not match the size of the model"):
        check_header(huge, state.layout, ["velocity"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", ["anchor", "velocity"])
def test_numbers_that_are_not_finite_are_refused(state, value, place) -> None:
    """A NaN or an infinity in anchor or buffers never gets in."""
    (state.anchor if place == "anchor" else state.buffers["velocity"])[17] = value
    with pytest.raises(ValueError, match="not finite"):
        ReplicaState.from_blob(received(state), state.layout, ["velocity"])


def test_largest_numbers_are_finite() -> None:
    """The largest numbers of fp32 are finite, also many together and with both signs."""
    values = torch.full((1000,), torch.finfo(torch.float32).max)
    assert all_finite(values)
    assert all_finite(torch.cat([values, -values]))
    assert all_finite(torch.empty(0))


@given(
    numel=st.integers(1, 200),
    place=st.integers(0, 199),
    bad=st.sampled_from([float("nan"), float("inf"), float("-inf")]),
)
def test_finite_looks_at_every_number(numel: int, place: int, bad: float) -> None:
    """One bad value is found in vectors of all lengths, wherever it is."""
    values = torch.linspace(-1, 1, numel)
    assert all_finite(values)
    values[place % numel] = bad
    assert not all_finite(values)


def test_index_is_plain_json(state) -> None:
    """The index that travels is JSON with the round, the shapes, the names of the buffers and who decides."""
    state = replace(state, electorate=Electorate(2).after(["a"], weak=True))
    assert json.loads(state.blob.index.data)["header"] == {
        "kind": "replica-state-3",
        "round": 3,
        "tokens_total": 4711,
        "layout": [[7, 5], [5], [3, 2, 2]],
        "buffers": ["velocity"],
        "electorate": [["a", 4, 3, 3]],
    }
