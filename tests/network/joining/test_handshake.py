"""What of the initial peers' offers is taken: the expected swarm's manifest, and its tokenizer."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from dupt_swarm.errors import ManifestError, NodeError
from dupt_swarm.manifest.tables import TOKENIZER_BYTES_MAX
from dupt_swarm.network.joining.handshake import Handshake, get_tokenizer, introduce
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.replica.blob import Blob, Index
from dupt_swarm.settings import NodeSettings
from tests.support.hello import hello
from tests.support.tiny import tiny_manifest

RIGHT, WRONG = (Blob.build({"kind": "tokenizer"}, [data]) for data in (b"right", b"wrong"))
TWICE = Blob.build({"kind": "tokenizer"}, [b"right", b""])
HUGE = Index({}, (TOKENIZER_BYTES_MAX + 1,), ())
MANIFEST = tiny_manifest(tokenizer={"sha256": hashlib.sha256(b"right").hexdigest()})
ADDRESS = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWBmAwcd4PJNJvfV89HwE48nwkRmAgo8Vy3uQEyNNHBox2"


def exchange(said: Hello | None = None) -> Exchange:
    """It gives whatever is asked for."""
    blobs = {each.digest: each for each in (RIGHT, WRONG, TWICE)}
    indices: Mapping[str, Index] = {HUGE.digest: HUGE} | {each: blob.index for each, blob in blobs.items()}

    class Giving:
        async def hello(self, _: str) -> Hello | None:
            return said

        async def fetch_index(self, digest: str, _: object) -> Index:
            return indices[digest]

        async def fetch(self, assembly: Any, *_: object) -> Blob:
            return blobs[assembly.index.digest]

    return cast(Exchange, Giving())


def offering(*digests: str) -> Handshake:
    """Each peer offers one of these tokenizers."""
    return Handshake({str(place): hello(tokenizer_blob=each) for place, each in enumerate(digests)}, MANIFEST)


async def test_another_tokenizer_is_left_out() -> None:
    """Also if most offer it: the manifest names one, and the next offer is tried."""
    settings = NodeSettings("observer")
    wrong = WRONG.digest, WRONG.digest
    assert await get_tokenizer(exchange(), settings, offering(*wrong, RIGHT.digest)) == b"right"
    with pytest.raises(ManifestError, match="but the tokenizer has"):
        await get_tokenizer(exchange(), settings, offering(*wrong))
    with pytest.raises(ManifestError, match="but the tokenizer has"):
        await get_tokenizer(exchange(), replace(settings, tokenizer=b"wrong"), offering(RIGHT.digest))


@pytest.mark.parametrize("digest", [HUGE.digest, TWICE.digest])
async def test_a_malformed_tokenizer_is_not_fetched(digest: str) -> None:
    """One that is larger than any, or of several parts."""
    with pytest.raises(NodeError, match="malformed tokenizer"):
        await get_tokenizer(exchange(), NodeSettings("observer"), offering(digest))


async def test_another_swarm_than_the_expected_one_is_not_joined() -> None:
    """Its manifest has another id."""
    said = hello(manifest=MANIFEST.canonical_bytes().decode())
    settings = NodeSettings("observer", swarm_id=MANIFEST.swarm_id)
    assert (await introduce(exchange(said), settings, [ADDRESS])).manifest == MANIFEST
    with pytest.raises(ManifestError, match=f"in swarm {MANIFEST.swarm_id}, not in other-0"):
        await introduce(exchange(said), replace(settings, swarm_id="other-0"), [ADDRESS])
