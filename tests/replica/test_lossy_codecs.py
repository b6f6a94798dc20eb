"""Codecs with scaled blocks: what they lose, what they refuse, and that they always say the same."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dupt_swarm.manifest import Encoding
from dupt_swarm.replica.codec import Codec, build_codec
from dupt_swarm.replica.codec.top_k import TopK

NAMES = ("int8", "int4", "two_bit", "top_k")
ENCODING = Encoding(kept=64)
BLOCK = {"int8": 1024, "int4": 64, "two_bit": 1024, "top_k": 4096}
# Gradients of any size that fp32 has room for, with zeros among them.
SIZES = st.integers(0, 3000) | st.sampled_from([4096, 4097, 8191, 12_288, 262_144])
EXPONENTS = st.integers(-70, 100)


def codec_of(name: str) -> Codec:
    return build_codec(name, ENCODING)


def there_and_back(name: str, values: Tensor) -> Tensor:
    return codec_of(name).decode(codec_of(name).encode(values), values.numel())


@st.composite
def vectors(draw: st.DrawFn) -> Tensor:
    """Normally distributed values at one magnitude, some of them zero."""
    numel, exponent = draw(SIZES), draw(EXPONENTS)
    generator = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    values = generator.standard_normal(numel) * (generator.random(numel) >= draw(st.sampled_from([0, 0.5])))
    return torch.from_numpy((values * 2.0**exponent).astype(np.float32))


def blocks_of(values: Tensor, size: int) -> Tensor:
    """Blocks of a vector in double precision, the last filled up with zeros."""
    missing = -values.numel() % size
    return torch.nn.functional.pad(values.double(), (0, missing)).view(-1, size)


@given(vectors())
@pytest.mark.parametrize(("name", "levels"), [("int8", 127), ("int4", 7)])
def test_whole_numbers_are_within_half_a_step(name: str, levels: int, values: Tensor) -> None:
    """A value comes back within half of its block's largest magnitude ÷ the number of levels."""
    blocks = blocks_of(values, BLOCK[name])
    error = (blocks_of(there_and_back(name, values), BLOCK[name]) - blocks).abs()
    # A scale has eight bits: it may be 2^-9 larger than the exact one.
    assert (error <= blocks.abs().amax(1, keepdim=True) / levels * (0.5 + 2.0**-8)).all()


@given(vectors())
def test_two_bits_are_one_of_four_levels(values: Tensor) -> None:
    """Each value comes back with its sign, as half or as one and a half of its block's root mean square."""
    blocks, decoded = (blocks_of(each, 1024) for each in (values, there_and_back("two_bit", values)))
    counts = torch.full((len(blocks), 1), 1024.0).double()
    counts[-1:] -= blocks.numel() - values.numel()
    rms = (blocks.square().sum(1, keepdim=True) / counts).sqrt()
    expected = torch.where(blocks.abs() >= rms, 1.5, 0.5) * rms * torch.where(blocks < 0, -1, 1)
    clear = ((blocks.abs() - rms).abs() > rms * 2.0**-7).view(-1)[: values.numel()]
    pairs = decoded.view(-1)[: values.numel()][clear], expected.view(-1)[: values.numel()][clear]
    torch.testing.assert_close(*pairs, rtol=2.0**-8, atol=0)


@given(vectors(), st.sampled_from([1, 7, 64, 1024]))
def test_top_k_keeps_the_largest(values: Tensor, kept: int) -> None:
    """Of each block the largest values come back with their signs, as one of two means; the rest is zero."""
    codec = TopK(kept)
    decoded = codec.decode(codec.encode(values), values.numel())
    for block, after in zip(values.split(4096), decoded.split(4096), strict=True):
        count = min(kept, block.numel())
        least = block.abs().sort(descending=True).values[count - 1] if count else 0.0
        there = after != 0
        assert int(there.sum()) <= count
        assert (block.abs()[there] >= least).all()
        assert (after[block.abs() > least] != 0).all()
        assert (after.sign() * block.sign() >= 0).all()
        assert after.abs()[there].unique().numel() <= 2
        torch.testing.assert_close(after.abs().sum(), block.abs()[there].sum(), rtol=2.0**-8, atol=0)


@given(vectors())
@pytest.mark.parametrize("name", NAMES)
def test_the_same_bytes_of_the_same_values(name: str, values: Tensor) -> None:
    """Encoding the same values again, in other memory, gives the same bytes, as many as were promised."""
    data = codec_of(name).encode(values)
    assert len(data) == codec_of(name).encoded_bytes(values.numel())
    assert codec_of(name).encode(torch.cat([values, values])[values.numel() :]) == data
    assert torch.equal(codec_of(name).decode(memoryview(data), values.numel()), there_and_back(name, values))


@pytest.mark.parametrize(
    ("name", "most"), [("int8", 1.004), ("int4", 0.55), ("two_bit", 0.27), ("top_k", 0.0284)]
)
def test_bytes_per_value(name: str, most: float) -> None:
    """A part has no more bytes per value than the codec is for."""
    assert codec_of(name).encoded_bytes(262_144) / 262_144 <= most


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("magnitude", [1e-9, 1e6, 1e-25, 1e30])
def test_no_magnitude_is_lost(name: str, magnitude: float) -> None:
    """Gradients of 1e-9 and of 1e6 lose no more than those of 1."""
    values = torch.randn(10_000, generator=torch.Generator().manual_seed(1))
    usual = float((there_and_back(name, values) - values).norm() / values.norm())
    scaled = values * magnitude
    lost = (there_and_back(name, scaled).double() - scaled.double()).norm() / scaled.double().norm()
    assert abs(float(lost) - usual) < 0.02


@pytest.mark.parametrize("name", NAMES)
def test_neighbours_of_other_magnitudes(name: str) -> None:
    """Blocks of one part may be of very different magnitudes: each has a scale of its own."""
    quiet = torch.randn(4096, generator=torch.Generator().manual_seed(2)) * 1e-9
    both = there_and_back(name, torch.cat([quiet, torch.full((4096,), 1e9)]))
    assert torch.equal(both[:4096], there_and_back(name, quiet))
    assert float(both[4096]) == pytest.approx(1e9, rel=0.6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("numel", [0, 1, 5, 4096, 5000])
def test_zeros_and_denormals_become_zeros(name: str, numel: int) -> None:
    """A block without a number worth a scale comes back as zeros."""
    for value in (0.0, 1e-45, -1e-39):
        assert there_and_back(name, torch.full((numel,), value)).tolist() == [0.0] * numel


@pytest.mark.parametrize("name", ["int8", "int4", "top_k"])
def test_one_value(name: str) -> None:
    """One value alone comes back to the precision of its scale."""
    for value in (1.0, -3e-9, 7e6):
        assert float(there_and_back(name, torch.tensor([value]))) == pytest.approx(value, rel=2.0**-8)


@pytest.mark.parametrize("name", NAMES)
def test_the_largest_numbers_stay_finite(name: str) -> None:
    """The topmost numbers of fp32 may lose their size, but come back finite."""
    largest = torch.tensor([3.4e38, -3.4e38] * 4000)
    decoded = there_and_back(name, largest)
    assert decoded.isfinite().all()
    assert (decoded.sign() * largest.sign() >= 0).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", [-4, -1, 1, 4])
def test_wrong_size(name: str, change: int) -> None:
    """Bytes that are not exactly those of the expected number of values are refused before any work."""
    codec = codec_of(name)
    data = codec.encode(torch.ones(5000)) + bytes(4)
    with pytest.raises(ValueError, match=f"bytes are not 5000 values in {name}"):
        codec.decode(data[: len(data) - 4 + change], 5000)
    with pytest.raises(ValueError, match="bytes are not 1000000000000 values"):
        codec.decode(data, 10**12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -1.0, 2.0**-101, 2.0**121])
def test_hostile_scales(name: str, scale: float) -> None:
    """A scale that no encoder writes is refused."""
    data = bytearray(codec_of(name).encode(torch.ones(5000)))
    data[:2] = torch.tensor([scale]).to(torch.bfloat16).view(torch.uint8).numpy().tobytes()
    with pytest.raises(ValueError, match="impossible scale"):
        codec_of(name).decode(bytes(data), 5000)


@pytest.mark.parametrize("places", [(5, 5), (9, 2), (4095, 0)])
def test_places_out_of_order(places: tuple[int, int]) -> None:
    """Places that are there twice, or that go back, are refused."""
    data = bytearray(TopK(2).encode(torch.ones(4096)))
    first, second = places
    data[4:7] = bytes([first & 255, first >> 8 | (second & 15) << 4, second >> 4])
    with pytest.raises(ValueError, match="places of top_k"):
        TopK(2).decode(bytes(data), 4096)


def test_places_beyond_a_short_block() -> None:
    """A place that the last block does not have is refused; nothing is written outside."""
    data = bytearray(TopK(2).encode(torch.ones(100)))
    data[4:7] = bytes([0, (100 & 15) << 4, 100 >> 4])
    with pytest.raises(ValueError, match="within a block of 100 values"):
        TopK(2).decode(bytes(data), 100)


@given(st.data(), st.sampled_from(NAMES), st.sampled_from([1, 100, 4096, 5000]))
def test_hostile_bytes(data: st.DataObject, name: str, numel: int) -> None:
    """Any bytes of the right number give finite values or a ValueError, and nothing else."""
    length = codec_of(name).encoded_bytes(numel)
    hostile = bytearray(np.random.default_rng(data.draw(st.integers(0, 1 << 32))).bytes(length))
    # Scales that pass let the codes be looked at.
    end = 2 * data.draw(st.integers(0, 8))
    hostile[:end] = bytes(end)
    try:
        values = codec_of(name).decode(bytes(hostile), numel)
    except ValueError:
        return
    assert values.shape == (numel,)
    assert values.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_whatever_the_codes_values_are_finite(name: str) -> None:
    """With the largest scale, even codes that no encoder writes are finite numbers."""
    codec = codec_of(name)
    data = bytearray(codec.encode(torch.full((8192,), 3.4e38)))
    if name != "top_k":  # its codes are all in use
        data[-64:] = b"\x80" * 32 + bytes(32)
    assert codec.decode(bytes(data), 8192).isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_encoding_stays_where_the_values_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All arithmetic is on the device of the values ("meta", which computes nothing, stands in for a GPU)."""
    codec, made = codec_of(name), list[Tensor]()

    def note(*tensors: Tensor) -> bytes:
        made.extend(tensors)
        return b""

    monkeypatch.setattr(sys.modules[type(codec).__module__], "as_bytes", note)
    for numel in (5001, 262_144):
        made.clear()
        codec.encode(torch.empty(numel, device="meta"))
        assert {tensor.device.type for tensor in made} == {"meta"}
        assert sum(tensor.numel() * tensor.element_size() for tensor in made) == codec.encoded_bytes(numel)
