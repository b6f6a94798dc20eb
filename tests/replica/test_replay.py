"""A round computed again from its log entry and its blobs."""

import json

import numpy as np
import pytest
import torch

from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.codec import PART_VALUES, encoded_size
from dupt_swarm.replica.codec.fp32 import FP32
from dupt_swarm.replica.codec.scaled_fp16 import ScaledFP16
from dupt_swarm.replica.contribution import CONTRIBUTION, Claim, Form, measure
from dupt_swarm.replica.log_entry import LOG_BYTES_MAX, Input, LogEntry, log_bytes, parse_log
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.replay import Measured, average_form, average_of_shared, contribution_form, replay
from dupt_swarm.replica.state import ReplicaState
from tests.support.averages import Collected
from tests.support.tiny import reduced_tables
from tests.support.vectors import encode_parts

NUMEL = 2 * PART_VALUES + 77
TOKENS = (3, 2, 3)


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
    return ReplicaState(3, 100, ((NUMEL,),), torch.randn(NUMEL, generator=generator), {})


@pytest.fixture(scope="module")
def values() -> list[torch.Tensor]:
    """Three contributions, whose norms have the same bits."""
    one = torch.randn(NUMEL, generator=torch.Generator().manual_seed(5))
    signs = [torch.randn(NUMEL, generator=torch.Generator().manual_seed(seed)).sign() for seed in (6, 7)]
    return [one, *(one * sign for sign in signs)]


def blobs_of(form: Form, state: ReplicaState, values: list[torch.Tensor]) -> list[Blob]:
    return [
        form.build(Claim(state.round, state.digest, tokens), encode_parts(form.codec, each))
        for each, tokens in zip(values, TOKENS, strict=False)
    ]


def entry_of(
    state: ReplicaState, blobs: list[Blob], exchange: str = "share", after: str = "0" * 64
) -> LogEntry:
    tree = {
        "round": state.round + 1,
        "before": state.digest,
        "after": after,
        "exchange": exchange,
        "members": ["a", "b", "c"],
        "inputs": [{"digest": blob.digest, "tokens": blob.index.header["tokens"]} for blob in blobs],
    }
    return LogEntry.model_validate(tree)


def measured(blobs: list[Blob], form: Form) -> list[Measured]:
    return [Measured(blob, blob.index.header["tokens"], measure(blob, form)) for blob in blobs]


def held(blobs: list[Blob]) -> dict[str, Blob]:
    return {blob.digest: blob for blob in blobs}


def test_a_shared_round_is_the_hand_computation(manifest, state, values) -> None:
    """With exact contributions and plain averaging, the next anchor is computed by hand, bit for bit."""
    blobs = blobs_of(contribution_form(manifest, NUMEL), state, values)
    after = replay(manifest, state, entry_of(state, blobs), held(blobs))
    mean = values[0] * (3 / 8) + values[1] * (2 / 8)
    mean = mean + values[2] * (3 / 8)
    assert torch.equal(after.anchor, state.anchor - mean)
    assert (after.round, after.swarm_tokens) == (4, 108)


def test_unsound_contributions_are_left_out(manifest, state, values) -> None:
    """What is not finite, cannot be decoded or is far too large counts for nothing, and for its reason."""
    form = contribution_form(manifest, NUMEL)
    nan = values[2].clone()
    nan[-1] = float("nan")
    blobs = blobs_of(form, state, [*values[:2], values[2] * 1000]) + blobs_of(form, state, [nan])
    contributions = measured(blobs, form)
    mean = Collected()
    counted = average_of_shared(manifest, contributions, form, mean.take)
    assert torch.equal(mean.values, values[0] * np.float32(3 / 5) + values[1] * np.float32(2 / 5))
    assert (counted.tokens, counted.rejected) == (5, {"not_finite": 1, "norm": 1})
    with pytest.raises(ValueError, match="no contribution of the round is sound"):
        average_of_shared(manifest, contributions[3:], form, mean.take)


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
    counted = average_of_shared(manifest, measured(blobs, form), form, mean.take)
    assert torch.equal(mean.values, values[0])
    assert (counted.tokens, counted.rejected) == (8, {"zeros": 3})
    none = Collected()
    assert average_of_shared(manifest, measured(blobs[2:], form), form, none.take).tokens == 15 + 22
    assert torch.equal(none.values, nothing)


@pytest.mark.parametrize("rule", ["mean", "trimmed_mean", "centered_clip", "agreeing_mean"])
def test_a_round_computed_again_has_the_same_digest(make_manifest, state, values, rule) -> None:
    """With every rule, whatever threads compute it, and however each measured what arrived when."""
    manifest = make_manifest(aggregation={"rule": rule})
    form = contribution_form(manifest, NUMEL)
    blobs = blobs_of(form, state, [values[0], values[1] * 2, values[2] * -3])
    following = NextState(build_outer(manifest), state)
    measures = {blob.digest: measure(blob, form) for blob in reversed(blobs)}
    contributions = [Measured(blob, blob.index.header["tokens"], measures[blob.digest]) for blob in blobs]
    counted = average_of_shared(manifest, contributions, form, following.take)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 2)
    again = replay(manifest, state, entry_of(state, blobs), held(blobs))
    torch.set_num_threads(threads)
    assert again.digest == following.finish(counted.tokens, [""]).digest


def test_bytes_that_no_codec_wrote() -> None:
    """Bytes of the right length that the codec refuses are a contribution of another shape."""
    form = Form(CONTRIBUTION, "scaled_fp16", ScaledFP16(), 10)
    blob = form.build(Claim(0, "0" * 64, 1), b"\x7f" * encoded_size(form.codec, 10))
    assert measure(blob, form).reason == "shape"


def test_a_reduced_round_is_its_average(make_manifest, manifest, state, values) -> None:
    """Where members reduced, the log has the average, and the step from it gives the same state."""
    manifest = make_manifest(
        **reduced_tables(encoding={"average": "fp32"}, outer=manifest.outer.model_dump())
    )
    [blob] = blobs_of(average_form(manifest, NUMEL), state, values[:1])
    after = replay(manifest, state, entry_of(state, [blob], "reduce"), held([blob]))
    assert torch.equal(after.anchor, state.anchor - values[0])
    assert after.swarm_tokens == 103


def test_what_does_not_belong_together_is_refused(manifest, state, values) -> None:
    """An entry of another state, a blob of other tokens, codec or size: no state follows from them."""
    form = contribution_form(manifest, NUMEL)
    blobs = blobs_of(form, state, values)
    entry = entry_of(state, blobs)
    with pytest.raises(ValueError, match="another state"):
        replay(manifest, state, entry.model_copy(update={"round": 9}), held(blobs))
    more = entry.inputs[0].model_copy(update={"tokens": 1000})
    with pytest.raises(ValueError, match="not what its digest was given for"):
        replay(manifest, state, entry.model_copy(update={"inputs": (more, *entry.inputs[1:])}), held(blobs))
    short = Form(CONTRIBUTION, "fp32", FP32(), 10)
    with pytest.raises(ValueError, match="not what its digest was given for"):
        form.check(short.build(Claim(3, state.digest, 3), bytes(40)).index, Claim(3, state.digest, 3))


def test_the_log_travels() -> None:
    """A log is read back as it was; of one that is too long, the newest rounds travel."""
    inputs = (Input(digest="a" * 64, tokens=1, statement="eA=="),)
    entries = [
        LogEntry(
            round=number,
            before=f"{number:064x}",
            after=f"{number + 1:064x}",
            exchange="share",
            members=("a",) * 256,
            inputs=inputs * 100,
        )
        for number in range(1, 100)
    ]
    assert parse_log(log_bytes(entries[:3])) == entries[:3]
    found = parse_log(log_bytes(entries))
    assert 30 < len(found) < 99
    assert found == entries[-len(found) :]
    assert parse_log(b"[]") == []


def test_malformed_logs_are_refused() -> None:
    """Too long, not JSON, unknown keys, no digests, a gap between two rounds: a ValueError each."""
    good = {
        "round": 1,
        "before": "0" * 64,
        "after": "1" * 64,
        "exchange": "share",
        "members": ["a"],
        "inputs": [{"digest": "a" * 64, "tokens": 1}],
    }
    assert len(parse_log(json.dumps([good]).encode())) == 1
    changes: tuple[dict[str, object], ...] = (
        {"round": -1},
        {"round": 1.0},
        {"round": True},
        {"before": "0" * 63},
        {"exchange": "shout"},
        {"members": ["a" * 65]},
        {"members": ["a"] * 257},
        {"inputs": []},
        {"inputs": [{"digest": "a" * 64, "tokens": 1 << 62}]},
        {"inputs": [{"digest": "a" * 64, "tokens": 1, "statement": "€"}]},
        {"more": 1},
    )
    for change in changes:
        with pytest.raises(ValueError, match="not a log of rounds"):
            parse_log(json.dumps([good | change]).encode())
    for data in (b"", b"{}", b"[1]", b"[" * 100_000, b"\xff"):
        with pytest.raises(ValueError, match="not a log of rounds"):
            parse_log(data)
    with pytest.raises(ValueError, match="too long"):
        parse_log(b" " * (LOG_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="gap"):
        parse_log(json.dumps([good, good]).encode())
