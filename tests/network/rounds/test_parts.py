"""Whose share each part is, and how an average comes together."""

import asyncio

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dupt_swarm.manifest import Encoding
from dupt_swarm.network.p2p.bandwidth import TokenBucket
from dupt_swarm.network.rounds.allreduce import AllReduce, Messages, Parts
from dupt_swarm.network.rounds.round import Roll
from dupt_swarm.replica.codec import PART_VALUES, Codec, build_codec
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.link import Brought, Promise
from tests.support.vectors import decode_parts, encode_parts

ENCODING = Encoding(contribution="two_bit", average="int4")
NUMEL = 2 * PART_VALUES + 1000


def codecs(encoding: Encoding = ENCODING) -> tuple[Codec, Codec]:
    return build_codec(encoding.contribution, encoding), build_codec(encoding.average, encoding)


def contribution(numel: int = NUMEL) -> bytes:
    values = torch.randn(numel, generator=torch.Generator().manual_seed(1))
    return encode_parts(codecs()[0], values)


@given(st.lists(st.sampled_from([0.0, 1.0, 3.0]), min_size=1, max_size=6).filter(any), st.integers(1, 5))
def test_whole_parts_in_proportion(fractions: list[float], count: int) -> None:
    """Each part is in one share, in order; a share differs from its proportion by less than a part."""
    numel = PART_VALUES * (count - 1) + 8
    encoding = Encoding(contribution="top_k", kept=1)
    data = bytes(build_codec("top_k", encoding).encoded_bytes(PART_VALUES) * (count - 1))
    data += bytes(build_codec("top_k", encoding).encoded_bytes(8))
    shares = Parts(data, numel, encoding).shares(fractions)
    assert [part.numel for share in shares for part in share] == [*[PART_VALUES] * (count - 1), 8]
    assert b"".join(part.data for share in shares for part in share) == data
    for fraction, share in zip(fractions, shares, strict=True):
        assert abs(len(share) - fraction / sum(fractions) * count) < 1.0 + 1e-9
        assert fraction or not share


def test_a_contribution_of_another_size_is_refused() -> None:
    """Bytes that are not those of the vector are not cut into parts."""
    for data in (contribution()[:-1], contribution() + b"x", b""):
        with pytest.raises(ValueError, match=f"bytes are not {NUMEL} encoded values"):
            Parts(data, NUMEL, ENCODING)


def test_alone_is_a_group_of_one(make_manifest) -> None:
    """Who is alone gets the contribution as others would read it, encoded and decoded as an average."""
    given_codec, returned = codecs()
    manifest = make_manifest(encoding={"contribution": "two_bit", "average": "int4"})

    async def nobody(peer: str, messages: Messages) -> Messages:
        raise AssertionError(f"{peer} was asked for {messages}")

    async def average() -> AllReduce:
        promise = Promise("a", "", 0, Brought("a", "", 7))
        parts = Parts(memoryview(contribution()), NUMEL, manifest.encoding)
        roll, claim = Roll("a", 0, weak=False, promises=(promise,)), Claim(0, "", 7, "a")
        run = AllReduce(manifest, roll, claim, parts, nobody, TokenBucket(None))
        await run.run()
        return run

    run = asyncio.run(asyncio.wait_for(average(), 60))
    assert (run.missing, run.tokens) == (set(), 7)
    assert bytes(run.encoded) == encode_parts(returned, decode_parts(given_codec, contribution(), NUMEL))
