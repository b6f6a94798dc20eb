"""What an encoder predicts of text that is held out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dupt_swarm.learning.batches import count_blocks, held_out_batches
from dupt_swarm.learning.device import autocast
from dupt_swarm.learning.masking import NOTHING
from dupt_swarm.learning.objectives import first_model
from dupt_swarm.learning.objectives.masked_language import MaskedLanguage
from dupt_swarm.learning.token_files import Split
from dupt_swarm.learning.transformer.bert import Bert
from dupt_swarm.manifest import Manifest
from dupt_swarm.settings import OracleSettings
from tests.learning.test_masking import restored
from tests.support.encoders import encoder_manifest, encoder_tokenizer, manual_in

TOKENIZER = encoder_tokenizer()
CPU = torch.device("cpu")


def opened(folder: Path, *, nsp: bool) -> tuple[Manifest, MaskedLanguage, Split]:
    """An objective with some text, and what of that is held out."""
    manifest = encoder_manifest(TOKENIZER, nsp=nsp, model={"context_length": 32})
    text = OracleSettings(manual_in(folder / "text", "i"))
    objective = MaskedLanguage.open(manifest, TOKENIZER, text, folder / "cache")
    return manifest, objective, objective.mixture.held_out[0]


def test_held_out_blocks_begin_anywhere(tmp_path: Path) -> None:
    """They are counted around the end of the text."""
    manifest, objective, split = opened(tmp_path, nsp=False)
    size = MaskedLanguage.block_length(manifest)
    whole = [row.tolist() for inputs, _ in held_out_batches(split, size, 1) for row in inputs]

    def read(first: int, count: int) -> list[list[int]]:
        batches = objective._read([(split, count)], 4, first)
        return sorted(row[1:-1].tolist() for batch in batches for row in restored(batch))

    assert len(whole) == count_blocks(split, size) > 3
    assert read(0, len(whole)) == sorted(whole)
    assert read(len(whole) - 1, 3) == sorted([whole[-1], *whole[:2]])


def test_what_is_measured_is_the_loss(tmp_path: Path) -> None:
    """Of the masked tokens alone, and of whether texts follow."""
    manifest, objective, split = opened(tmp_path, nsp=True)
    model = first_model(manifest)
    assert isinstance(model, Bert)
    batches = list(objective._read([(split, 20)], 1, 0))
    assert any((batch[2] == NOTHING).any() for batch in batches)
    found = objective._evaluate(model, iter(batches), CPU)
    assert found.counts == {"masked tokens": sum(int((batch[2] != NOTHING).sum()) for batch in batches)}
    right = 0
    model.eval()
    with torch.no_grad():
        for tokens, _, _, lengths, followed in batches:
            with autocast(CPU):
                told = model.follow_logits(model.hidden(tokens, lengths))
            right += int(told.argmax(1) == followed)
        expected = float(model(*batches[0]))
    assert found.nsp_accuracy == right / 20
    of_one = objective._evaluate(model, iter(batches[:1]), CPU)
    assert of_one.loss_nats == pytest.approx(expected, rel=0.01)
