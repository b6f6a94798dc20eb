"""`dupt-model translate`, as people start it; each kind of model has commands of its own."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import sacrebleu
import torch
from click.testing import CliRunner, Result

from dupt_swarm.learning.generation.beam import BeamSearch
from dupt_swarm.learning.generation.translate import translate
from dupt_swarm.learning.objectives import writer_of
from dupt_swarm.models.saved_model import SavedModel
from peers.model.cli import main
from tests.support.pairs import seq2seq_tables, two_tongues
from tests.support.saved_models import write_model
from tests.support.tasks import write_lines

TEXTS = ["Bär läuft", "", "über die Brücke", "Bär " * 30]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    return write_model(tmp_path_factory.mktemp("models") / "model", **seq2seq_tables())


def run(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments], input=stdin)


def expected(saved: SavedModel, texts: list[str], beams: int = 4) -> list[str]:
    model = writer_of(saved.build(torch.device("cpu")))
    return [one.text for one in translate(model, saved.tokenizer, texts, BeamSearch(beams))]


def test_a_line_for_each_line(saved: SavedModel, tmp_path: Path) -> None:
    """From a file or stdin, in its order, whatever the batches; empty lines stay empty, long ones are cut."""
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    asked = run("translate", saved.folder, tmp_path / "texts.txt", "--json", "--device", "cpu")
    assert asked.exit_code == 0, asked.stderr
    lines = [json.loads(line) for line in asked.stdout.splitlines()]
    assert [line["row"] for line in lines] == [1, 2, 3, 4]
    assert [line["source"] for line in lines] == TEXTS
    assert [line["target"] for line in lines] == expected(saved, TEXTS)
    assert lines[1]["target"] == "" and lines[1]["score"] is None
    assert "note: 1 text cut to the model's context" in asked.stderr
    greedy = ("--beams", "1", "--batch-size", "2", "--json", "--device", "cpu")
    asked = run("translate", saved.folder, "-", *greedy, stdin="\n".join(TEXTS))
    found = [json.loads(line)["target"] for line in asked.stdout.splitlines()]
    assert found == expected(saved, TEXTS, beams=1)


def test_a_table_is_scored(saved: SavedModel, tmp_path: Path) -> None:
    """Figures are sacrebleu's; what is written goes to a file as a whole, a line each."""
    rows = [{"de": row["source"], "en": row["target"]} for row in two_tongues(12, seed=1)]
    table = write_lines(tmp_path / "pairs.jsonl", rows)
    columns = ("--column", "source=de", "--column", "target=en", "--device", "cpu")
    asked = run("translate", saved.folder, table, *columns, "--score", "--out", tmp_path / "written.txt")
    assert (asked.exit_code, asked.stdout) == (0, ""), asked.stderr
    written = expected(saved, [row["de"] for row in rows])
    assert len((tmp_path / "written.txt").read_text(encoding="utf-8").splitlines()) == 12
    figures = dict(line.split() for line in asked.stderr.splitlines())
    references = [[row["en"] for row in rows]]
    assert math.isclose(
        float(figures["chrF"]), sacrebleu.corpus_chrf(written, references).score, abs_tol=1e-4
    )
    assert math.isclose(
        float(figures["BLEU"]), sacrebleu.corpus_bleu(written, references).score, abs_tol=1e-4
    )


def test_what_cannot_be_is_said(saved: SavedModel, tmp_path: Path) -> None:
    """Lines have no targets and no columns; no UTF-8; no beams; nothing takes the place of what is read."""
    (tmp_path / "texts.txt").write_bytes(b"\xff\xfe")
    texts = tmp_path / "texts.txt"
    assert "not UTF-8" in run("translate", saved.folder, texts).stderr
    over = run("translate", saved.folder, texts, "--out", tmp_path / "." / texts.name)
    assert over.exit_code == 2 and "would be lost; give another file (--out)" in over.stderr
    assert "this is lines of text" in run("translate", saved.folder, texts, "--score").stderr
    assert "use at least 1 (--beams)" in run("translate", saved.folder, texts, "--beams", "0").stderr
    table = write_lines(tmp_path / "pairs.jsonl", [{"target": "a"}])
    assert "no column `source`: it has `target`" in run("translate", saved.folder, table).stderr


def test_each_model_has_its_commands(saved: SavedModel, tmp_path: Path) -> None:
    """An encoder-decoder continues no text and learns no task; a decoder writes none for another."""
    decoder = write_model(tmp_path / "decoder")
    texts = tmp_path / "texts.txt"
    texts.write_text("some words\n" * 20)
    table = write_lines(tmp_path / "rows.jsonl", [{"text": "a", "label": "b"}, {"text": "c", "label": "d"}])
    refused = run("translate", decoder.folder, texts)
    assert refused.exit_code == 2 and "the model is a decoder, which continues texts" in refused.stderr
    task = ("--task", "classification", "--train", table, "--valid", table, "--out", tmp_path / "out")
    for arguments, remedy in (
        (("generate", saved.folder), "writes texts for others (`dupt-model translate`)"),
        (("predict", saved.folder, table), "`dupt-model translate` lets it write"),
        (("finetune", saved.folder, *task), "is a task for a decoder or an encoder"),
    ):
        refused = run(*arguments)
        assert refused.exit_code != 0 and remedy in refused.stderr, refused.stderr
        assert "Traceback" not in refused.stderr
