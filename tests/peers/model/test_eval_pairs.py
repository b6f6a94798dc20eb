"""``dupt-model eval`` of an encoder-decoder: pairs of texts, in tables."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from dupt_swarm.learning.generation import overlap as scoring
from dupt_swarm.learning.generation.beam import BeamSearch
from dupt_swarm.learning.generation.overlap import overlap
from dupt_swarm.learning.generation.translate import translate
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.labelled.pairs import load_pairs
from dupt_swarm.learning.objectives import writer_of
from dupt_swarm.learning.objectives.seq2seq import evaluate_pairs
from dupt_swarm.models.saved_model import SavedModel
from peers.model.cli import main
from tests.support.pairs import seq2seq_tables, two_tongues
from tests.support.saved_models import write_model
from tests.support.tasks import write_lines

CPU = torch.device("cpu")
ROWS = [*two_tongues(9, seed=1), {"source": " ", "target": "a"}, {"source": "Bär " * 30, "target": "bear"}]
FIGURES = ("nats per token", "perplexity", "token accuracy", "chrF", "BLEU", "tokens", "pairs")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    return write_model(tmp_path_factory.mktemp("models") / "model", **seq2seq_tables())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "pairs.jsonl", ROWS)


def run(saved: SavedModel, corpus: Path, *arguments: str) -> Result:
    line = ["eval", str(saved.folder), "--corpus", str(corpus), "--device", "cpu", *arguments]
    return CliRunner().invoke(main, line)


def test_it_measures_what_is_predicted_and_what_is_written(saved: SavedModel, table: Path) -> None:
    """Whatever the batches, the loss is the objective's, and scores are those of beam search."""
    result = run(saved, table, "--json", "--batch-size", "3")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    model = writer_of(saved.build(CPU))
    pairs = load_pairs(LabelledFiles(table), saved.tokenizer, model.config.context_length)
    expected = evaluate_pairs(model, pairs.in_order(99), CPU)
    assert found["loss_nats"] == pytest.approx(expected.loss_nats, abs=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss_nats"]))
    assert (found["accuracy"], found["tokens"]) == (expected.accuracy, expected.counts["tokens"])
    kept = [row for row in ROWS if row["source"].strip()]
    texts = translate(model, saved.tokenizer, [row["source"] for row in kept], BeamSearch())
    scores = overlap([one.text for one in texts], [row["target"] for row in kept])
    assert found["chrf"] == pytest.approx(scores["chrF"]) and found["bleu"] == pytest.approx(scores["BLEU"])
    assert (found["pairs"], found["truncated"], found["left_out"]) == (10, pairs.truncated, 1)
    assert (found["round"], found["state_digest"]) == (0, saved.state.digest)
    assert "cut to the model's context" in result.stderr
    assert "1 row with an empty text left out" in result.stderr


def test_people_read_the_same_figures(saved: SavedModel, tmp_path: Path) -> None:
    """Columns may have other names; without sacrebleu all else is measured, and what to install is said."""
    rows = [{"de": row["source"], "en": row["target"]} for row in two_tongues(4, seed=2)]
    table = write_lines(tmp_path / "pairs.jsonl", rows)
    columns = ("--column", "source=de", "--column", "target=en")
    lines = run(saved, table, *columns).stdout.splitlines()
    figures = {line[:15].rstrip(): line[16:] for line in lines[1:]}
    assert tuple(figures) == FIGURES
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "find_spec", lambda _: None)
        without = run(saved, table, *columns)
        assert json.loads(run(saved, table, *columns, "--json").stdout)["chrf"] is None
    assert without.stdout.splitlines() == [line for line in lines if line[:4] not in ("chrF", "BLEU")]
    assert "note: chrF and BLEU were not measured: scores need sacrebleu; `pip install" in without.stderr


def test_what_does_not_go_together_is_refused(saved: SavedModel, table: Path, tmp_path: Path) -> None:
    """A text for an encoder-decoder, a table for a decoder, a stride, other columns; the remedy is named."""
    decoder = write_model(tmp_path / "decoder")
    text, csv = tmp_path / "words.txt", tmp_path / "pairs.csv"
    text.write_text("some words\n" * 20)
    csv.write_text("source,target\na,b\n")
    for model, corpus, arguments, said in (
        (saved, text, (), "is measured on a table of pairs, with the columns `source` and `target`"),
        (saved, tmp_path / "nowhere.csv", (), "no such file"),
        (saved, table, ("--stride", "3"), "leave it out (--stride)"),
        (saved, table, ("--column", "text=a"), "rename one of those (--column)"),
        (decoder, csv, (), "unsupported file type"),
        (decoder, table, (), "(--field)"),
        (decoder, text, ("--column", "source=de"), "text has no columns; leave them out (--column)"),
    ):
        refused = run(model, corpus, *arguments)
        assert refused.exit_code in (1, 2) and said in refused.stderr, refused.stderr
        assert refused.stdout == ""
