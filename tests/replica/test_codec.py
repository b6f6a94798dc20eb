import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from dupt_swarm.replica.codec import Codec, build_codec
from dupt_swarm.replica.codec.fp32 import FP32
from dupt_swarm.replica.codec.scaled_fp16 import ScaledFP16

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
VECTORS = st_numpy.arrays(np.float32, st.integers(0, 60), elements=FINITE)
# Values of one magnitude, as gradients are, at any scale that fp32 has room for.
SCALED = st.builds(
    lambda values, exponent: (values * np.float64(2.0) ** exponent).astype(np.float32),
    st_numpy.arrays(np.float32, st.integers(1, 60), elements=st.floats(-1, 1, width=32)),
    st.integers(-84, 126),
).filter(lambda values: np.abs(values).max() >= 2.0**-86)
CODECS: list[Codec] = [FP32(), ScaledFP16()]


def there_and_back(codec, values: np.ndarray) -> np.ndarray:
    return codec.decode(codec.encode(torch.from_numpy(values)), len(values)).numpy()


def test_the_manifest_chooses(make_manifest) -> None:
    """The manifest's codec is the one that is built."""
    encoding = make_manifest(encoding={"contribution": "fp32"}).encoding
    assert isinstance(build_codec(encoding.contribution, encoding), FP32)
    assert isinstance(build_codec(encoding.average, encoding), ScaledFP16)


@given(VECTORS)
def test_fp32_changes_nothing(values: np.ndarray) -> None:
    """The codec fp32 gives back every bit."""
    assert there_and_back(FP32(), values).tobytes() == values.tobytes()


@given(SCALED)
def test_scaled_fp16_keeps_eleven_bits(values: np.ndarray) -> None:
    """Each value comes back within 2^-11 of itself, unless it is 28 binary orders below the largest.

    Below that the error is at most 2^-40 of the largest.
    """
    decoded = there_and_back(ScaledFP16(), values).astype(np.float64)
    exact = values.astype(np.float64)
    error, largest = np.abs(decoded - exact), np.abs(exact).max()
    large = np.abs(exact) >= largest * 2.0**-28
    assert (error[large] <= np.abs(exact[large]) * 2.0**-11).all()
    assert (error[~large] <= largest * 2.0**-39).all()


@given(VECTORS.filter(lambda values: np.abs(values).max(initial=0) <= 2.0**127))
def test_scaled_fp16_is_finite_and_odd(values: np.ndarray) -> None:
    """Finite values (but for the topmost of fp32) come out finite, and opposite ones come out opposite."""
    decoded = there_and_back(ScaledFP16(), values)
    assert np.isfinite(decoded).all()
    assert (there_and_back(ScaledFP16(), -values) == -decoded).all()


@given(SCALED)
@example(np.array([1 - 2.0**-24, 3 * 2.0**-39], np.float32))  # the first becomes 1, a power of two more
def test_scaled_fp16_is_idempotent(values: np.ndarray) -> None:
    """What was encoded once is not changed by being encoded again."""
    once = there_and_back(ScaledFP16(), values)
    assert (there_and_back(ScaledFP16(), once) == once).all()


def test_tiny_pseudo_gradients_survive() -> None:
    """Values around 1e-12, which plain fp16 turns into zeros, keep their eleven bits."""
    values = torch.linspace(-1e-12, 1e-12, 1000)
    decoded = ScaledFP16().decode(ScaledFP16().encode(values), 1000)
    assert float(values.half().abs().max()) == 0.0
    torch.testing.assert_close(decoded, values, rtol=2.0**-11, atol=0)


@pytest.mark.parametrize("codec", CODECS, ids=["fp32", "scaled_fp16"])
def test_zeros_and_nothing(codec) -> None:
    """Zeros come back as zeros, and an empty part as an empty part."""
    assert codec.decode(codec.encode(torch.zeros(5)), 5).tolist() == [0.0] * 5
    assert codec.decode(codec.encode(torch.empty(0)), 0).shape == (0,)


def test_smallest_and_largest_numbers() -> None:
    """The largest fp32 number comes back, and a part of subnormal numbers becomes zeros."""
    largest = np.array([2.0**128 - 2.0**117, -(2.0**100)], np.float32)  # exact in eleven bits
    assert there_and_back(ScaledFP16(), largest).tolist() == largest.tolist()
    subnormal = np.array([1e-45, -1e-45], np.float32)
    assert (there_and_back(ScaledFP16(), subnormal) == 0).all()


@pytest.mark.parametrize("codec", CODECS, ids=["fp32", "scaled_fp16"])
@pytest.mark.parametrize("change", [-4, -2, -1, 1, 2, 4])
def test_wrong_size(codec, change: int) -> None:
    """Bytes that are not exactly those of the expected number of values are refused."""
    data = codec.encode(torch.ones(10)) + bytes(4)
    with pytest.raises(ValueError, match="bytes are not 10"):
        codec.decode(data[: len(data) - 4 + change], 10)
    with pytest.raises(ValueError, match="bytes are not 1000000000000"):
        codec.decode(data, 10**12)
    with pytest.raises(ValueError, match="bytes are not"):
        codec.decode(b"", 10)


@pytest.mark.parametrize("shift", [-(1 << 15), -114, 101, (1 << 15) - 1])
def test_hostile_exponent(shift: int) -> None:
    """An exponent that no encoder writes is refused."""
    data = struct.pack("<h", shift) + bytes(4)
    with pytest.raises(ValueError, match="impossible exponent"):
        ScaledFP16().decode(data, 2)


@pytest.mark.parametrize("shift", [-113, 100])
def test_extreme_exponents_are_used(shift: int) -> None:
    """The outermost exponents that are accepted are those that an encoder can write."""
    largest = torch.tensor([3e38 if shift < 0 else 1e-45])
    assert struct.unpack_from("<h", ScaledFP16().encode(largest)) == (shift,)


def test_decoded_values_have_memory_of_their_own() -> None:
    """Changing decoded values changes neither the bytes nor another decoding."""
    for codec in CODECS:
        data = codec.encode(torch.ones(3))
        first, second = codec.decode(data, 3), codec.decode(data, 3)
        first.zero_()
        assert second.tolist() == [1.0, 1.0, 1.0]
        assert codec.decode(data, 3).tolist() == [1.0, 1.0, 1.0]


@given(SCALED)
def test_scaled_fp16_has_the_bytes_of_its_formula(values: np.ndarray) -> None:
    """The exponent, then each value × 2^exponent, rounded to fp16; and back: ÷ 2^exponent, which is exact."""
    data = ScaledFP16().encode(torch.from_numpy(values))
    (shift,) = struct.unpack_from("<h", data)
    halves = (values * np.float32(2.0**shift)).astype("<f2")
    assert data[2:] == halves.tobytes()
    expected = halves.astype(np.float32) * np.float32(2.0**-shift)
    assert there_and_back(ScaledFP16(), values).tobytes() == expected.tobytes()


def test_threads_decode_beside_one_another() -> None:
    """What a thread decodes is not what another decodes meanwhile, whichever has more values."""
    vectors = [torch.full((numel,), float(numel % 9)) for numel in (100_000, 7, 60_000)]
    encoded = [ScaledFP16().encode(vector) for vector in vectors]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(20):
            decoded = pool.map(ScaledFP16().decode, encoded, map(len, vectors))
            assert all(map(torch.equal, decoded, vectors))


@pytest.mark.parametrize("codec", CODECS, ids=["fp32", "scaled_fp16"])
def test_encoded_bytes(codec) -> None:
    """What is encoded has as many bytes as was promised, whatever the values."""
    for values in (torch.ones(1000), torch.randn(1000), torch.zeros(1), torch.empty(0)):
        assert len(codec.encode(values)) == codec.encoded_bytes(values.numel())


def test_parts_of_a_larger_vector() -> None:
    """A slice of a vector is encoded like a copy of it."""
    values = torch.linspace(-1, 1, 100)
    for codec in CODECS:
        assert codec.encode(values[10:20]) == codec.encode(values[10:20].clone())
