"""Whose share each part is, and how an average comes together."""

import asyncio

import pytest
import torch
from hivemind.averaging.partition import AllreduceException
from hypothesis import given
from hypothesis import strategies as st

from dupt_swarm.manifest import Encoding
from dupt_swarm.network.averaging.parts import Parts, average_alone
from dupt_swarm.replica.codec import PART_VALUES, Codec, build_codec
from tests.support.averages import Collected
from tests.support.vectors import decode_parts, encode_parts

ENCODING = Encoding(contribution="two_bit", average="int4")
NUMEL = 2 * PART_VALUES + 1000


def codecs(encoding: Encoding = ENCODING) -> tuple[Codec, Codec]:
    return build_codec(encoding.contribution, encoding), build_codec(encoding.average, encoding)


def contribution(numel: int = NUMEL) -> bytes:
    values = torch.randn(numel, generator=torch.Generator().manual_seed(1))
    return encode_parts(codecs()[0], values)


async def average_of(parts: Parts) -> memoryview:
    [encoded] = [encoded async for encoded in parts.iterate_output_tensors()]
    return encoded


@given(st.lists(st.sampled_from([0.0, 1.0, 3.0]), min_size=1, max_size=6).filter(any), st.integers(1, 5))
def test_whole_parts_in_proportion(fractions: list[float], count: int) -> None:
    """Each part is in one share, in order; a share differs from its proportion by less than a part."""
    numel = PART_VALUES * (count - 1) + 8
    encoding = Encoding(contribution="top_k", kept=1)
    data = bytes(build_codec("top_k", encoding).encoded_bytes(PART_VALUES) * (count - 1))
    data += bytes(build_codec("top_k", encoding).encoded_bytes(8))
    parts = Parts(data, numel, fractions, encoding)
    shares = [parts.of(index) for index in range(len(fractions))]
    in_order = [(part.number, part.numel) for share in shares for part in share]
    assert in_order == [*((number, PART_VALUES) for number in range(count - 1)), (count - 1, 8)]
    assert b"".join(part.data for share in shares for part in share) == data
    assert tuple(map(len, shares)) == parts.num_parts_by_peer
    for fraction, share in zip(fractions, shares, strict=True):
        assert abs(len(share) - fraction / sum(fractions) * count) < 1.0 + 1e-9
        assert fraction or not share


def test_a_contribution_of_another_size_is_refused() -> None:
    """Bytes that are not those of the vector are not cut into parts."""
    for data in (contribution()[:-1], contribution() + b"x", b""):
        with pytest.raises(ValueError, match=f"bytes are not {NUMEL} encoded values"):
            Parts(data, NUMEL, (1.0,), ENCODING)


def test_alone_is_a_group_of_one() -> None:
    """Who is alone gets the contribution as others would read it, encoded and decoded as an average."""
    given_codec, returned = codecs()
    own = Collected()
    encoded = average_alone(memoryview(contribution()), NUMEL, ENCODING, own.take)
    assert bytes(encoded) == encode_parts(returned, decode_parts(given_codec, contribution(), NUMEL))
    assert torch.equal(own.values, decode_parts(returned, encoded, NUMEL))


def test_the_average_is_there_when_its_last_part_is() -> None:
    """Who waits for it gets it, whole, in whatever order its parts come."""

    async def scenario() -> None:
        _, returned = codecs()
        parts = Parts(contribution(), NUMEL, (1.0, 0.0, 1.0), ENCODING)
        assert parts.num_parts_by_peer == (2, 0, 1)
        waiting = asyncio.create_task(average_of(parts))
        expected = torch.arange(float(NUMEL))
        encoded = [returned.encode(values) for values in torch.split(expected, PART_VALUES)]
        for part, data in [
            *zip(parts.of(2), encoded[2:], strict=True),
            *zip(parts.of(0), encoded, strict=False),
        ]:
            await asyncio.sleep(0)
            assert not waiting.done()
            part.encoded[:] = data
            parts.register_processed_parts(1)
        assert bytes(await waiting) == b"".join(encoded)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_whoever_waits_is_told_of_an_early_end() -> None:
    """When the all-reduce is ended before its average is complete, nobody waits for it for ever."""

    async def scenario() -> None:
        parts = Parts(contribution(), NUMEL, (1.0,), ENCODING)
        waiting = asyncio.create_task(average_of(parts))
        await asyncio.sleep(0)
        parts.finalize()
        with pytest.raises(AllreduceException, match="before its average was complete"):
            await waiting

    asyncio.run(asyncio.wait_for(scenario(), 60))
