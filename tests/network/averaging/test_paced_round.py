"""A round under a limited rate."""

import asyncio

import pytest
import torch

from dupt_swarm.network.p2p.bandwidth import SHORT_BYTES, Bandwidth
from dupt_swarm.replica.codec import build_codec
from tests.support.averages import open_averaging, start_round
from tests.support.contributions import encoded
from tests.support.noting_bucket import NotingBucket
from tests.support.vectors import decode_parts

NUMEL = 700_000
RATE = 2e6


@pytest.fixture
def manifest(make_manifest):
    return make_manifest(rounds={"matchmaking_seconds": 10, "chunk_seconds": 5, "allreduce_seconds": 30})


def test_a_limited_peer_takes_part(stations, manifest) -> None:
    """The average is what it always is, and all that the limited peer sends and receives is counted."""
    contributions = [torch.full((NUMEL,), value) for value in (1.0, 3.0)]

    async def scenario() -> None:
        limited, upload, download = Bandwidth(), NotingBucket(RATE), NotingBucket(RATE)
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
        # One contribution each way; how many short messages there are besides is a question of time.
        size = len(encoded(contributions[0], manifest))
        [(sent, _)] = [each for each in upload.passed if each[0] > SHORT_BYTES]
        [(received, urgent)] = [each for each in download.passed if each[0] > SHORT_BYTES]
        assert urgent and size <= sent <= 1.01 * size and size <= received <= 1.01 * size
        # Whether what it sends takes priority too is a race here: the other may have the roll and ask before
        # this one knows them for mates. `test_mates_come_first` shows that it does.

    asyncio.run(asyncio.wait_for(scenario(), 60))
