"""What `dupt-model pull` says of a chain that could not be had; `tests/models/test_pulling.py` pulls."""

from __future__ import annotations

from pathlib import Path

import pytest

from dupt_swarm.disk.folders import CHAIN_FILE
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.chain_file import ChainFile
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.signed_words import Words
from peers.model.pull import _tell_what_is_missing
from tests.support.saved_models import write_model


@pytest.mark.parametrize(
    ("begins", "said"),
    [(None, "no peer told the chain of rounds; `dupt-model verify`"), (7, "before round 7; it"), (0, "")],
)
def test_what_is_missing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], begins: int | None, said: str
) -> None:
    """The model is there all the same."""
    model = write_model(tmp_path)
    if begins is not None:
        words = Words(model.manifest.swarm_id)
        ChainFile(tmp_path / CHAIN_FILE, words).write(Chain(model.state.digest, Electorate(begins)))
    _tell_what_is_missing(model)
    told = capsys.readouterr()
    assert (told.out, said in told.err, bool(told.err)) == ("", True, bool(said))
