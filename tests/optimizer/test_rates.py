"""Rate limits of real peers."""

import hashlib
from pathlib import Path

import pytest
import torch

from dupt_swarm.errors import UsageError
from dupt_swarm.node.messages import Downloading
from dupt_swarm.swarm import Swarm
from tests.support.tiny import settings, tiny_manifest

TOKENIZER = b"not used by these tests"


@pytest.mark.usefixtures("nothing_left")
def test_a_rate_too_small_for_rounds_is_refused_to_oracles_only(tmp_path: Path) -> None:
    """An oracle would hold up all others, so it is told the least rate; a first peer has no rounds."""
    manifest = tiny_manifest(hashlib.sha256(TOKENIZER).hexdigest())
    parameters = [torch.ones(1_000_000)]  # a contribution of 252 kB within half a minute
    limited = settings("bootstrap", max_download=1e3)
    with Swarm.create(manifest, TOKENIZER, parameters, tmp_path / "first", limited) as first:
        told: list[Downloading] = []
        with pytest.raises(UsageError, match=r"upload of 0\.001MB/s is too little .* at least 0\.01MB"):
            Swarm.join(first.addresses, tmp_path / "slow", settings(max_upload=1e3), told.append)
        with Swarm.join(first.addresses, tmp_path / "other", settings(max_upload=50e3)) as other:
            assert other.state.digest == first.state.digest
        assert told[-1].bytes_done == told[-1].bytes_total >= 4_000_000
