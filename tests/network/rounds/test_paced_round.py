"""A round under a limited rate."""

import asyncio

import pytest
import torch

from dupt_swarm.network.p2p.bandwidth import SHORT_BYTES, Bandwidth
from dupt_swarm.replica.codec import build_codec
from tests.support.contributions import encoded
from tests.support.deciders import deciding_at, state_of, step
from tests.support.noting_bucket import NotingBucket
from tests.support.vectors import decode_parts

NUMEL = 700_000
RATE = 2e6


@pytest.fixture
def manifest(make_manifest):
    return make_manifest(rounds={"matchmaking_seconds": 10, "chunk_seconds": 5, "allreduce_seconds": 30})


async def test_a_limited_peer_takes_part(stations, manifest) -> None:
    """The average is what it always is, and all that the limited peer sends and receives is counted."""
    contributions = [torch.full((NUMEL,), value) for value in (1.0, 3.0)]
    limited, upload, download = Bandwidth(), NotingBucket(RATE), NotingBucket(RATE)
    limited.upload, limited.download = upload, download
    deciding = deciding_at(stations, 2, manifest=manifest, numel=NUMEL, bandwidth=limited)
    async with deciding as (peers, state):
        ended = await asyncio.gather(
            *(each.end(values) for each, values in zip(peers, contributions, strict=True))
        )
    # What is shared counts with the lesser norm of the two.
    codec = build_codec(manifest.encoding.contribution, manifest.encoding)
    expected = decode_parts(codec, encoded(contributions[0], manifest), NUMEL)
    after = step(manifest, state, expected, 20, [each.peer_id for each in peers])
    assert [state_of(each).digest for each in ended] == [after.digest] * 2
    # One contribution each way; how many short messages there are besides is a question of time.
    size = len(encoded(contributions[0], manifest))
    [(sent, _)] = [each for each in upload.passed if each[0] > SHORT_BYTES]
    [(received, urgent)] = [each for each in download.passed if each[0] > SHORT_BYTES]
    assert urgent and size <= sent <= 1.01 * size and size <= received <= 1.01 * size
