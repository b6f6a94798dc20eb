"""A text for a text: what an oracle is handed, and how good a model is at it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.objectives import build_model, check_data, decoder_of, kind_of
from dupt_swarm.learning.objectives.seq2seq import Seq2Seq
from dupt_swarm.learning.transformer.encoder_decoder import EncoderDecoder
from dupt_swarm.settings import OracleSettings, WeightedCorpus
from tests.learning.objectives.test_training import no_look
from tests.support.pairs import pair_manifest, two_tongues
from tests.support.saved_models import small_tokenizer
from tests.support.tasks import write_lines

CPU = torch.device("cpu")


@pytest.fixture
def opened(tmp_path: Path) -> Seq2Seq:
    """Two hundred pairs, two of them unusual."""
    rows = two_tongues(200, seed=1)
    rows[0]["target"], rows[1]["source"] = "bear " * 40, " "
    manifest = pair_manifest(rounds={"tokens_per_step": 16 * 12})
    settings = OracleSettings(write_lines(tmp_path / "rows.jsonl", rows))
    check_data(settings, manifest)
    found = kind_of(manifest).open(manifest, small_tokenizer(), settings, tmp_path)
    assert isinstance(found, Seq2Seq)
    return found


def test_a_step_is_cut_by_pairs(opened: Seq2Seq) -> None:
    """A pair counts as much as a context; a trial batch has the longest; what did not fit is said."""
    batches, micro_batches = opened.batches(8, "peer")
    assert (len(next(batches)[0]), micro_batches, batches.tokens_per_example) == (6, 2, 16)
    assert len(opened.example(8)[0]) == 8
    assert opened.example(8)[0].size(1) >= max(next(batches)[0].size(1) for _ in range(20))
    cut, without = opened.notes
    assert cut == "examples with a text that was too long, and was cut: 1 of 199"
    assert without == "examples left out, for a text of theirs is empty: 1"


def test_it_is_measured_token_by_token_without_smoothing(opened: Seq2Seq) -> None:
    """Loss and accuracy are means over the target tokens that are held out, whatever the batches."""
    model = build_model(pair_manifest(model={"init_std": 0.2}))
    assert isinstance(model, EncoderDecoder) and model.smoothing == 0.1
    _, held_out = opened.examples.split(1)
    nats, right, tokens = 0.0, 0, 0
    model.eval().requires_grad_(False)
    for index in range(len(held_out)):
        source, lengths, inputs, targets, *_ = held_out.batch([index])
        logits = model.hidden(inputs, model.encode(source, lengths))[0] @ model.output_weight.T
        nats -= float(logits.double().log_softmax(-1)[range(len(logits)), targets[0]].sum())
        right, tokens = right + int((logits.argmax(1) == targets[0]).sum()), tokens + len(logits)
    found = opened.measure_held_out(model, CPU, 7, 64, no_look)
    assert found.counts == {"examples": len(held_out), "tokens": tokens}
    assert found.loss_nats == pytest.approx(nats / tokens, rel=2e-3)  # bf16, where there is
    assert found.accuracy == pytest.approx(right / tokens, abs=0.03)
    assert opened.measure_all(model, CPU, 7, 9, no_look).counts["examples"] == 9


def test_what_it_cannot_learn_from_is_refused(tmp_path: Path) -> None:
    """No table, several, or one without pairs; and the model continues no text."""
    manifest = pair_manifest()
    table = write_lines(tmp_path / "rows.jsonl", [{"text": "a", "label": "b"}])
    with pytest.raises(UsageError, match="learns from examples"):
        check_data(OracleSettings(), manifest)
    with pytest.raises(UsageError, match="put the tables into one folder"):
        check_data(OracleSettings((WeightedCorpus(table), WeightedCorpus(tmp_path))), manifest)
    with pytest.raises(CorpusError, match="no column `source`, `target`: it has `text`, `label`"):
        check_data(OracleSettings(table), manifest)
    with pytest.raises(UsageError, match=r"an encoder-decoder.*`dupt-model translate`"):
        decoder_of(build_model(manifest))
