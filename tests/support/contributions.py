"""Contributions as an oracle sends them."""

from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.codec import build_codec
from tests.support.vectors import encode_parts


def encoded(values: Tensor, manifest: Manifest) -> bytes:
    """``values`` as the manifest has contributions."""
    return encode_parts(build_codec(manifest.encoding.contribution, manifest.encoding), values)


def put(place: memoryview, values: Tensor, manifest: Manifest) -> int:
    """Put them into ``place``, and say how many bytes they have."""
    data = encoded(values, manifest)
    place[: len(data)] = data
    return len(data)
