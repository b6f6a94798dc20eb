"""A round computed again from its link and its blobs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.codec import PART_VALUES, encoded_size
from dupt_swarm.replica.codec.fp32 import FP32
from dupt_swarm.replica.codec.scaled_fp16 import ScaledFP16
from dupt_swarm.replica.contribution import CONTRIBUTION, Claim, Form, measure
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Acceptance, Brought, Choice, Link
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.replay import (
    Measured,
    average_form,
    average_of_shared,
    contribution_form,
    inputs_of,
    replay,
)
from dupt_swarm.replica.state import ReplicaState
from tests.support.tiny import reduced_tables
from tests.support.vectors import encode_parts

NUMEL = 2 * PART_VALUES + 77
TOKENS = (3, 2, 3)
MAKERS = ("a", "b", "c")


@pytest.fixture(scope="module")
def manifest(make_manifest):
    """Plain averaging of exact contributions."""
    return make_manifest(
        encoding={"contribution": "fp32"},
        outer={"optimizer": "nesterov", "momentum": 0.0, "learning_rate": 1.0},
        aggregation={"rule": "mean"},
    )


@pytest.fixture(scope="module")
def state() -> ReplicaState:
    generator = torch.Generator().manual_seed(1)
    anchor = torch.randn(NUMEL, generator=generator)
    return ReplicaState(3, 100, ((NUMEL,),), anchor, {}, Electorate(2).after(MAKERS, weak=True))


@pytest.fixture(scope="module")
def values() -> list[torch.Tensor]:
    """Three contributions, whose norms have the same bits."""
    one = torch.randn(NUMEL, generator=torch.Generator().manual_seed(5))
    signs = [torch.randn(NUMEL, generator=torch.Generator().manual_seed(seed)).sign() for seed in (6, 7)]
    return [one, *(one * sign for sign in signs)]


class Collected:
    """Takes the parts of an average."""

    def __init__(self) -> None:
        self._parts: dict[int, torch.Tensor] = {}

    def take(self, number: int, part: torch.Tensor) -> None:
        """See `NextState.take`."""
        assert number not in self._parts
        self._parts[number] = part

    @property
    def values(self) -> torch.Tensor:
        """All of them, in order."""
        return torch.cat([self._parts[number] for number in range(len(self._parts))])


def blobs_of(form: Form, state: ReplicaState, values: list[torch.Tensor]) -> list[Blob]:
    """What the makers `a`, `b` and `c` bring."""
    return [
        form.build(Claim(state.round, state.digest, tokens, maker), encode_parts(form.codec, each))
        for each, tokens, maker in zip(values, TOKENS, MAKERS, strict=False)
    ]


def link_of(
    state: ReplicaState, blobs: list[Blob], left: tuple[str, ...] = (), *, weak: bool = False
) -> Link:
    """One that leaves ``state`` by these contributions, signed by nobody."""
    choice, after = Choice(tuple(map(brought_by, blobs)), left, weak), "0" * 64
    return Link(state.digest, 0, choice, after, (), (Acceptance("a", state.digest, 0, choice.id, after),))


def brought_by(blob: Blob) -> Brought:
    """What its maker states of it."""
    return Brought(blob.index.header["maker"], blob.digest, blob.index.header["tokens"])


def measured(blobs: list[Blob], form: Form) -> list[Measured]:
    return [Measured(brought_by(blob), blob, measure(blob, form)) for blob in blobs]


def held(blobs: list[Blob]) -> dict[str, Blob]:
    return {blob.digest: blob for blob in blobs}


def test_a_shared_round_is_the_hand_computation(manifest, state, values) -> None:
    """With exact contributions and plain averaging, the next anchor is computed by hand, bit for bit."""
    blobs = blobs_of(contribution_form(manifest, NUMEL), state, values)
    after = replay(manifest, state, link_of(state, blobs), held(blobs))
    mean = values[0] * (3 / 8) + values[1] * (2 / 8)
    mean = mean + values[2] * (3 / 8)
    assert torch.equal(after.anchor, state.anchor - mean)
    assert (after.round, after.swarm_tokens) == (4, 108)


def test_a_blob_of_another_size_is_refused(manifest, state, values) -> None:
    """Before a chunk of it is fetched, however large its header says that it is."""
    form = contribution_form(manifest, NUMEL)
    index = blobs_of(form, state, values)[0].index
    claim = Claim(state.round, state.digest, TOKENS[0], MAKERS[0])
    form.check(index, claim)
    for sizes in ((form.size + 1,), (1 << 50,), (form.size, 0), ()):
        with pytest.raises(ValueError, match="not what its digest was given for"):
            form.check(replace(index, sizes=sizes), claim)


def test_newcomers_do_not_have_members_left_out(manifest, state) -> None:
    """However many bring next to nothing, beside which what members bring is far too large."""
    form, members = contribution_form(manifest, 100), list(MAKERS)
    blobs = [
        form.build(
            Claim(state.round, state.digest, 10, maker),
            encode_parts(form.codec, torch.ones(100) if maker in members else torch.full((100,), 1e-3)),
        )
        for maker in sorted([*members, *(f"new{number}" for number in range(9))])
    ]
    counted = average_of_shared(manifest, state, measured(blobs, form), form, Collected().take)
    assert set(members) <= set(counted.makers)


def test_unsound_contributions_are_left_out(manifest, state, values) -> None:
    """What is not finite, cannot be decoded or is far too large counts for nothing, and for its reason."""
    form = contribution_form(manifest, NUMEL)
    nan = values[2].clone()
    nan[-1] = float("nan")
    blobs = blobs_of(form, state, [*values[:2], values[2] * 1000]) + blobs_of(form, state, [nan])
    contributions = measured(blobs, form)
    mean = Collected()
    counted = average_of_shared(manifest, state, contributions, form, mean.take)
    assert torch.equal(mean.values, values[0] * np.float32(3 / 5) + values[1] * np.float32(2 / 5))
    assert (counted.tokens, counted.rejected) == (5, {"not_finite": 1, "norm": 1})
    with pytest.raises(ValueError, match="no contribution of the round is sound"):
        average_of_shared(manifest, state, contributions[3:], form, mean.take)


def test_zeros_count_for_nothing(manifest, state, values) -> None:
    """However many contributions are zeros, and whatever they claim, the average is that of the others."""
    form, nothing = contribution_form(manifest, NUMEL), torch.zeros(NUMEL)
    blobs = [
        blob
        for number, each in enumerate([nothing, values[0], nothing, nothing])
        for blob in [
            form.build(Claim(state.round, state.digest, 1 + 7 * number), encode_parts(form.codec, each))
        ]
    ]
    mean = Collected()
    counted = average_of_shared(manifest, state, measured(blobs, form), form, mean.take)
    assert torch.equal(mean.values, values[0])
    assert (counted.tokens, counted.rejected) == (8, {"zeros": 3})
    none = Collected()
    assert average_of_shared(manifest, state, measured(blobs[2:], form), form, none.take).tokens == 15 + 22
    assert torch.equal(none.values, nothing)


@pytest.mark.parametrize("rule", ["mean", "agreeing_mean"])
def test_a_round_computed_again_has_the_same_digest(make_manifest, state, values, rule) -> None:
    """With every rule, whatever threads compute it, and however each measured what arrived when."""
    manifest = make_manifest(aggregation={"rule": rule})
    form = contribution_form(manifest, NUMEL)
    blobs = blobs_of(form, state, [values[0], values[1] * 2, values[2] * -3])
    following = NextState(build_outer(manifest), state)
    measures = {blob.digest: measure(blob, form) for blob in reversed(blobs)}
    contributions = [Measured(brought_by(blob), blob, measures[blob.digest]) for blob in blobs]
    counted = average_of_shared(manifest, state, contributions, form, following.take)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 2)
    again = replay(manifest, state, link_of(state, blobs), held(blobs))
    torch.set_num_threads(threads)
    assert again.digest == following.finish(counted.tokens, counted.makers).digest


def test_bytes_that_no_codec_wrote() -> None:
    """Bytes of the right length that the codec refuses are a contribution of another shape."""
    form = Form(CONTRIBUTION, ScaledFP16(), 10)
    blob = form.build(Claim(0, "0" * 64, 1), b"\x7f" * encoded_size(form.codec, 10))
    assert measure(blob, form).reason == "shape"


def test_what_a_round_is_computed_from(make_manifest, state, values) -> None:
    """Of each contribution what its maker has signed; where members reduced, the average that was kept."""
    shared, reduced = make_manifest(), make_manifest(**reduced_tables())
    link = link_of(state, blobs_of(contribution_form(shared, NUMEL), state, values))
    claims = [Claim(3, state.digest, tokens, maker) for tokens, maker in zip(TOKENS, MAKERS, strict=True)]
    assert inputs_of(shared, link, 3) == dict(
        zip([b.digest for b in link.choice.brought], claims, strict=True)
    )
    assert inputs_of(reduced, link, 3) == {}
    assert inputs_of(reduced, replace(link, average="a" * 64), 3) == {"a" * 64: None}


@pytest.mark.parametrize("weak", [False, True])
def test_a_peer_that_decides_next_is_what_the_link_says(manifest, state, values, weak: bool) -> None:
    """Who has left in it, and whether it is a weak one, are in the state that follows."""
    blobs = blobs_of(contribution_form(manifest, NUMEL), state, values[:2])
    link = link_of(state, blobs, ("b",), weak=weak)
    after = replay(manifest, state, link, held(blobs))
    assert after.electorate == link.electorate(state.electorate)
    assert after.electorate.members == ({"a"} if weak else {"a", "c"})


def test_a_peer_that_is_dropped_has_not_counted(manifest, state, values) -> None:
    """Who brings what is unsound is no part of the state that follows."""
    nan = torch.full((NUMEL,), float("nan"))
    blobs = blobs_of(contribution_form(manifest, NUMEL), state, [*values[:2], nan])
    after = replay(manifest, state, link_of(state, blobs), held(blobs))
    assert (after.swarm_tokens, after.electorate) == (105, state.electorate.after(["a", "b"]))


def reducing(make_manifest, manifest):
    """Members reduce what is exact."""
    return make_manifest(**reduced_tables(encoding={"average": "fp32"}, outer=manifest.outer.model_dump()))


def average_of(manifest, state, values: torch.Tensor, tokens: int = 8) -> Blob:
    """An average as a member keeps it."""
    form = average_form(manifest, NUMEL)
    return form.build(Claim(state.round, state.digest, tokens), encode_parts(form.codec, values))


def test_a_reduced_round_is_its_average(make_manifest, manifest, state, values) -> None:
    """Where members reduced, the average is kept, and the step from it gives the same state."""
    manifest = reducing(make_manifest, manifest)
    blob = average_of(manifest, state, values[0])
    brought = blobs_of(contribution_form(manifest, NUMEL), state, values)
    link = replace(link_of(state, brought), average=blob.digest)
    after = replay(manifest, state, link, held([blob]))
    assert torch.equal(after.anchor, state.anchor - values[0])
    assert (after.swarm_tokens, after.electorate) == (108, state.electorate.after(MAKERS))


@pytest.mark.parametrize("tokens", [-1, 1 << 62, True, 1.5, None])
def test_an_average_with_impossible_tokens_is_refused(make_manifest, manifest, state, values, tokens) -> None:
    """Nobody has signed how many it has."""
    manifest = reducing(make_manifest, manifest)
    blob = average_of(manifest, state, values[0], tokens)
    link = replace(link_of(state, []), average=blob.digest)
    with pytest.raises(ValueError, match="impossible number of tokens"):
        replay(manifest, state, link, held([blob]))


def test_what_does_not_belong_together_is_refused(manifest, state, values) -> None:
    """A link of another state, a blob of other tokens, maker, codec or size: no state follows from them."""
    form = contribution_form(manifest, NUMEL)
    blobs = blobs_of(form, state, values)
    link = link_of(state, blobs)
    with pytest.raises(ValueError, match="another state"):
        replay(manifest, state, replace(link, state="9" * 64), held(blobs))
    first, *rest = link.choice.brought
    for wrong in (replace(first, tokens=1000), replace(first, maker="x")):
        claimed = replace(link, choice=Choice((wrong, *rest)))
        with pytest.raises(ValueError, match="not what its digest was given for"):
            replay(manifest, state, claimed, held(blobs))
    short = Form(CONTRIBUTION, FP32(), 10)
    with pytest.raises(ValueError, match="not what its digest was given for"):
        form.check(short.build(Claim(3, state.digest, 3), bytes(40)).index, Claim(3, state.digest, 3))
