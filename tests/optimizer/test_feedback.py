"""What a codec loses of a contribution, and when it comes again."""

import pytest
import torch
from torch import Tensor

from dupt_swarm.manifest import Encoding
from dupt_swarm.optimizer.feedback import ErrorFeedback
from dupt_swarm.replica.codec import PART_VALUES, Codec, build_codec
from tests.support.vectors import decode_parts, encode_parts

NUMEL = PART_VALUES + 5000


def codec_of(name: str) -> Codec:
    return build_codec(name, Encoding(kept=64))


def vector(seed: int) -> Tensor:
    return torch.randn(NUMEL, generator=torch.Generator().manual_seed(seed)) * 1e-3


def decoded(name: str, data: bytes) -> Tensor:
    return decode_parts(codec_of(name), data, NUMEL)


@pytest.mark.parametrize("name", ["scaled_fp16", "int8", "int4", "two_bit", "top_k"])
def test_what_was_lost_comes_again(name: str) -> None:
    """With all of the loss fed back, what is decoded adds up to what was given, but for the last loss."""
    feedback = ErrorFeedback(codec_of(name), 1.0)
    given, received = torch.zeros(NUMEL), torch.zeros(NUMEL)
    for seed in range(20):
        given += vector(seed)
        received += decoded(name, feedback.encode(vector(seed)))
        feedback.commit()
    lost = feedback.state_dict()["lost"]
    torch.testing.assert_close(received + lost, given, rtol=1e-4, atol=1e-6)
    assert float(lost.norm()) < float(given.norm())


def test_a_part_of_the_loss_decays() -> None:
    """What is encoded is the contribution and so much of what was lost of the one before."""
    codec, feedback = codec_of("int4"), ErrorFeedback(codec_of("int4"), 0.5)
    lost = vector(1) - decoded("int4", feedback.encode(vector(1)))
    feedback.commit()
    assert feedback.encode(vector(2)) == b"".join(
        codec.encode(part) for part in torch.split(vector(2) + lost * 0.5, PART_VALUES)
    )


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_only_what_counts_is_lost(factor: float) -> None:
    """A contribution that was dropped leaves the loss of the one before, and one never committed none."""
    feedback = ErrorFeedback(codec_of("two_bit"), factor)
    first = feedback.encode(vector(1))
    assert feedback.encode(vector(1)) == first == encode_parts(codec_of("two_bit"), vector(1))
    feedback.drop()
    feedback.commit()  # of nothing
    assert feedback.encode(vector(1)) == first
    feedback.commit()
    second = feedback.encode(vector(1))
    feedback.drop()
    assert feedback.encode(vector(1)) == second
    assert (second == first) == (factor == 0.0)


def test_without_feedback_nothing_is_kept() -> None:
    """A factor of zero costs no memory."""
    feedback = ErrorFeedback(codec_of("two_bit"), 0.0)
    feedback.encode(vector(1))
    feedback.commit()
    assert feedback.state_dict() == {}


def test_what_is_given_up_is_forgotten() -> None:
    """After all progress was given up, encoding begins anew."""
    feedback = ErrorFeedback(codec_of("two_bit"), 1.0)
    first = feedback.encode(vector(1))
    feedback.commit()
    feedback.encode(vector(2))
    feedback.forget()
    assert feedback.state_dict() == {}
    assert feedback.encode(vector(1)) == first


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_not_encoded(value: float) -> None:
    """There are no bytes of a contribution with such a value; nothing is kept of it, or of the one before."""
    feedback = ErrorFeedback(codec_of("two_bit"), 1.0)
    feedback.encode(vector(2))
    bad = vector(1)
    bad[NUMEL - 1] = value
    assert feedback.encode(bad) == b""
    feedback.commit()
    assert feedback.state_dict() == {}


def test_it_goes_on_after_a_restart() -> None:
    """One that was saved and loaded encodes the same bytes as one that never stopped."""
    feedback, again = (ErrorFeedback(codec_of("two_bit"), 0.9) for _ in range(2))
    feedback.encode(vector(1))
    feedback.commit()
    feedback.encode(vector(2))  # not decided yet: it will be made anew
    again.encode(vector(7))
    again.load_state_dict(feedback.state_dict())
    assert again.encode(vector(3)) == feedback.encode(vector(3))
    again.load_state_dict({})
    assert again.state_dict() == {}
