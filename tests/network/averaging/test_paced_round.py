"""A round under a limited rate."""

import asyncio

import pytest
import torch

from dupt_swarm.network.p2p.bandwidth import SHORT_BYTES, Bandwidth, TokenBucket
from dupt_swarm.replica.codec import build_codec
from tests.support.averages import open_averaging, start_round
from tests.support.contributions import encoded
from tests.support.vectors import decode_parts

NUMEL = 700_000
RATE = 2e6


class CountingBucket(TokenBucket):
    """Notes what passes, but for the short messages: how many of them there are is a question of time."""

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self.passed: list[int] = []

    async def take(self, amount: int, *, urgent: bool = False) -> None:
        if amount > SHORT_BYTES:
            assert urgent
            self.passed.append(amount)
        await super().take(amount, urgent=urgent)


@pytest.fixture
def manifest(make_manifest):
    return make_manifest(rounds={"matchmaking_seconds": 10, "chunk_seconds": 5, "allreduce_seconds": 30})


def test_a_limited_peer_takes_part(stations, manifest) -> None:
    """The average is what it always is, and all that the limited peer sends and receives is counted."""
    contributions = [torch.full((NUMEL,), value) for value in (1.0, 3.0)]

    async def scenario() -> None:
        limited, upload, download = Bandwidth(), CountingBucket(RATE), CountingBucket(RATE)
        limited.upload, limited.download = upload, download
        async with stations(2, manifest) as peers:
            peers[0].p2p.bandwidth = limited
            averagers = [await open_averaging(manifest, peer, NUMEL) for peer in peers]
            results = await asyncio.gather(*start_round(averagers, contributions, [10, 10]))
        assert [result.reason for result in results] == [None, None]
        # What is shared counts with the lesser norm of the two.
        codec = build_codec(manifest.encoding.contribution, manifest.encoding)
        expected = decode_parts(codec, encoded(contributions[0], manifest), NUMEL)
        for result in results:
            assert result.values is not None
            assert torch.equal(result.values, expected)
        # One contribution each way.
        size = len(encoded(contributions[0], manifest))
        for bucket in (upload, download):
            [passed] = bucket.passed
            assert size <= passed <= 1.01 * size

    asyncio.run(asyncio.wait_for(scenario(), 60))
