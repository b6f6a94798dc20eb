"""An encoder-decoder is exported in our own format, whose card loads it and lets it write."""

import runpy
from pathlib import Path

import pytest
import torch

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.export.export import FORMATS, choose_format, export
from tests.learning.export.test_agreement import learned_as
from tests.learning.export.test_card import code_of
from tests.support.pairs import SEQ2SEQ


def test_its_card_loads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example builds the same weights, and what the card says is what the model is."""
    learned = learned_as(SEQ2SEQ["model"] | {"layers": 2}, **SEQ2SEQ["objective"])
    export(tmp_path, learned, choose_format(None, learned.manifest.model))
    card = (tmp_path / "README.md").read_text()
    assert "An encoder and a decoder (Transformer) with" in card and "1 + 2 blocks of width 32" in card
    (tmp_path / "example.py").write_text(code_of(card))
    monkeypatch.chdir(tmp_path)
    theirs = runpy.run_path("example.py")["model"].state_dict()
    for name, weight in learned.model.state_dict().items():
        assert torch.equal(theirs[name], weight)
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "safetensors"])
def test_no_other_format_holds_it(name: str) -> None:
    """No architecture of transformers or llama.cpp that we write has an encoder beside the decoder."""
    model = learned_as(SEQ2SEQ["model"], **SEQ2SEQ["objective"]).manifest.model
    with pytest.raises(UsageError, match=rf"cannot be exported as {name}: .*; export it as safetensors"):
        choose_format(name, model)
