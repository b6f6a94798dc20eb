"""``dupt-model eval`` measures whole texts, whatever files they come in."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from dupt_swarm.learning import documents
from dupt_swarm.learning.objectives import decoder_of
from dupt_swarm.learning.rolling import evaluate_documents
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.models.saved_model import SavedModel
from peers.model.cli import main
from tests.support.foreign_tokenizers import KINDS
from tests.support.saved_models import TEXT, small_tokenizer, write_model

CPU = torch.device("cpu")
TEXTS = {"a.txt": TEXT * 20, "b.md": "The bear sleeps. 🐻\n"}
LINES = ["over the river", "", "Brücke"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    return write_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Two text files, and JSON lines with an empty one among them."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "c.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in LINES))
    return folder


def run(saved: SavedModel, corpus: Path, *arguments: str) -> Result:
    line = ["eval", str(saved.folder), "--corpus", str(corpus), "--device", "cpu", *arguments]
    return CliRunner().invoke(main, line)


@pytest.mark.parametrize("stride", [None, 5])
def test_it_measures_the_whole_text(
    saved: SavedModel, corpus: Path, stride: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures are those of all documents, though long ones are read in pieces."""
    monkeypatch.setattr(documents, "PIECE_CHARACTERS", 300)
    flags = [] if stride is None else [f"--stride={stride}"]
    result = run(saved, corpus, "--json", *flags)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    texts = [*TEXTS.values(), *LINES]
    decoder = decoder_of(saved.build(CPU))
    expected = evaluate_documents(decoder, saved.tokenizer, texts, stride=stride, batch_size=7, device=CPU)
    assert found["tokens"] == sum(len(saved.tokenizer.encode(text)) for text in texts)
    assert found["bytes"] == sum(len(text.encode()) for text in texts)
    assert (found["documents"], found["left_out"]) == (4, [])
    assert found["loss_nats"] == pytest.approx(expected.loss_nats, abs=1e-6)
    assert found["bits_per_byte"] == pytest.approx(expected.bits_per_byte, abs=1e-6)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss_nats"]))
    assert (found["round"], found["state_digest"]) == (0, saved.state.digest)
    assert result.stderr == ""


def test_people_read_the_same_figures(saved: SavedModel, corpus: Path) -> None:
    """Without --json, what is measured stands beside its name, and nothing of a bar off a terminal."""
    found = json.loads(run(saved, corpus, "--json").stdout)
    result = run(saved, corpus)
    assert f"bits per byte   {found['bits_per_byte']:.4f}\n" in result.stdout
    assert f"perplexity      {found['perplexity']:.2f}\n" in result.stdout
    assert f"tokens          {found['tokens']:,}\n" in result.stdout
    assert result.stderr == ""


def test_unreadable_files_are_left_out_or_refused(saved: SavedModel, corpus: Path) -> None:
    """A file that is no text is named on stderr and in the JSON; --strict refuses the corpus."""
    (corpus / "d.txt").write_bytes(b"\xff\xfe\xff")
    result = run(saved, corpus, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["left_out"] == [str(corpus / "d.txt")]
    assert "1 unreadable file left out" in result.stderr
    refused = run(saved, corpus, "--strict")
    assert refused.exit_code == 1
    assert str(corpus / "d.txt") in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--stride=0",), "use 1 to 16, the length of the context (--stride)"),
        (("--stride=17",), "use 1 to 16, the length of the context (--stride)"),
        (("--field=body", "--strict"), "(--field)"),
        (("--device=tpu",), "device"),
    ],
)
def test_impossible_options_are_refused(
    saved: SavedModel, corpus: Path, arguments: tuple[str, ...], message: str
) -> None:
    """The error names the option and the remedy, and stdout stays empty."""
    result = run(saved, corpus, *arguments)
    assert result.exit_code in (1, 2, 13)
    assert message in result.stderr
    assert result.stdout == ""


def test_a_fine_tuned_model_is_measured_too(tmp_path: Path, corpus: Path) -> None:
    """Of a task's model the decoder reads the text."""
    size = small_tokenizer().vocabulary_size + 3
    objective = {"kind": "classification", "labels": ["a", "b"]}
    saved = write_model(tmp_path / "task", model={"vocabulary_size": size}, objective=objective)
    assert json.loads(run(saved, corpus, "--json").stdout)["bits_per_byte"] > 0


def test_another_models_tokenizer(tmp_path: Path, corpus: Path) -> None:
    """Bytes are those of the text that it keeps, which is said if it is not all."""
    for kind, lossy in (("llama2", False), ("openai-gpt", True)):
        saved = write_model(tmp_path / kind, Tokenizer.from_foreign(*KINDS[kind]()))
        result = run(saved, corpus, "--json")
        texts = [*TEXTS.values(), *LINES]
        kept = sum(len(saved.tokenizer.decode(saved.tokenizer.encode(text)).encode()) for text in texts)
        assert json.loads(result.stdout)["bytes"] == pytest.approx(kept, abs=9 * lossy)
        assert ("note: the tokenizer does not keep text as it is: its norm" in result.stderr) == lossy


def test_no_text_is_an_error(saved: SavedModel, tmp_path: Path) -> None:
    """An empty folder and a missing one are named."""
    for path in (tmp_path / "empty", tmp_path / "missing"):
        if path.name == "empty":
            path.mkdir()
        result = run(saved, path)
        assert result.exit_code == 1
        assert str(path) in result.stderr
