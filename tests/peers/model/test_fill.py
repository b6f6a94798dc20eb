"""``dupt-model fill`` fills gaps; an encoder is measured, fine-tuned and looked at like a decoder."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from dupt_swarm.learning.generation.filling import fill
from dupt_swarm.learning.objectives import encoder_of
from dupt_swarm.models.saved_model import SavedModel
from peers.model.cli import main
from tests.support.encoders import encoder_tables, encoder_tokenizer
from tests.support.saved_models import write_model
from tests.support.tasks import two_languages, write_lines

TEXT = "The [MASK] is a [MASK]."
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    folder = tmp_path_factory.mktemp("models") / "encoder"
    return write_model(folder, encoder_tokenizer(), **encoder_tables(nsp=True))


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    return write_model(tmp_path_factory.mktemp("models") / "decoder")


def run(command: str, model: SavedModel | Path, *arguments: str) -> Result:
    path = model.folder if isinstance(model, SavedModel) else model
    return CliRunner().invoke(main, [command, str(path), "--device", "cpu", *arguments])


def test_it_names_the_likeliest(saved: SavedModel) -> None:
    """By hand: the softmax at each gap, over what is text, with the space before it in the gap."""
    found = json.loads(run("fill", saved, "--text", TEXT, "--most", "3", "--json").stdout)["gaps"]
    assert len(found) == 2 and all(len(gap) == 3 for gap in found)
    model, tokenizer = encoder_of(saved.build(CPU)), saved.tokenizer
    special = tokenizer.encoder_tokens
    parts = tokenizer.encode("The"), tokenizer.encode(" is a"), tokenizer.encode(".")
    ids = [special.first, *parts[0], special.mask, *parts[1], special.mask, *parts[2], special.last]
    with torch.no_grad():
        logits = model.masked_logits(model.hidden(torch.tensor([ids])))[0, ids.index(special.mask)]
    logits[sorted(tokenizer.special_ids)] = -math.inf
    best = logits[: tokenizer.vocabulary_size].softmax(0).topk(3)
    assert [guess["probability"] for guess in found[0]] == pytest.approx(best.values.tolist(), rel=1e-4)
    words = [tokenizer.bytes_of(index).decode(errors="replace").strip(" ") for index in best.indices.tolist()]
    assert [guess["text"] for guess in found[0]] == words


def test_what_people_see(saved: SavedModel) -> None:
    """A line for each guess, and which gap it is for."""
    lines = run("fill", saved, "--text", TEXT, "--most", "2").stdout.splitlines()
    assert lines[0] == "1. [MASK]" and lines[3] == "2. [MASK]" and len(lines) == 6
    assert lines[1].split("%")[0].strip().replace(".", "").isdigit()


@pytest.mark.parametrize(
    ("text", "said"),
    [("No gap.", "no [MASK]; write one"), ("word " * 30 + "[MASK]", "tokens, and the model sees 16")],
)
def test_texts_that_cannot_be_filled(saved: SavedModel, text: str, said: str) -> None:
    result = run("fill", saved, "--text", text)
    assert result.exit_code == 2 and said in result.stderr


def test_each_model_says_what_it_does_instead(saved: SavedModel, decoder: SavedModel) -> None:
    """An encoder continues no text, and a decoder fills no gap."""
    assert "the model is an encoder, which fills gaps (`dupt-model fill`)" in run("generate", saved).stderr
    assert "the model is a decoder" in run("fill", decoder, "--text", TEXT).stderr


def test_a_decoders_tokenizer_has_no_gap(decoder: SavedModel, saved: SavedModel) -> None:
    """Nothing is filled in without [MASK], and the error says what to do."""
    with pytest.raises(Exception, match=r"of a model without \[MASK\]"):
        fill(encoder_of(saved.build(CPU)), decoder.tokenizer, TEXT)


def test_its_pseudo_likelihood(saved: SavedModel, tmp_path: Path) -> None:
    """By hand: each token masked alone; a text that is longer than the context is cut."""
    text = "The bear is a mapping type, and so is the river."
    (tmp_path / "text.txt").write_text(text)
    found = json.loads(run("eval", saved, "--corpus", str(tmp_path / "text.txt"), "--json").stdout)
    model, tokenizer = encoder_of(saved.build(CPU)), saved.tokenizer
    special, ids = tokenizer.encoder_tokens, tokenizer.encode(text)
    nats = 0.0
    with torch.no_grad():
        for start in range(0, len(ids), 14):
            part = [special.first, *ids[start : start + 14], special.last]
            for place in range(1, len(part) - 1):
                masked = torch.tensor([[*part[:place], special.mask, *part[place + 1 :]]])
                logits = model.masked_logits(model.hidden(masked)[0, place])
                nats -= logits.log_softmax(0)[part[place]].item()
    assert found["tokens"] == len(ids) > 14 and found["bytes"] == len(text)
    assert found["loss_nats"] == pytest.approx(nats / len(ids), rel=1e-5)
    people = run("eval", saved, "--corpus", str(tmp_path / "text.txt")).stdout
    assert "(pseudo)" in people
    stride = run("eval", saved, "--corpus", str(tmp_path / "text.txt"), "--stride", "3")
    assert stride.exit_code == 2 and "leave it out" in stride.stderr


def test_it_learns_a_task_and_answers(saved: SavedModel, tmp_path: Path) -> None:
    """From [CLS] through the pooler, by the same tables; its export is asked as its card says."""
    train, valid = (write_lines(tmp_path / f"{seed}.jsonl", two_languages(60, seed)) for seed in (1, 2))
    out = tmp_path / "tuned"
    line = ["--task", "classification", "--train", str(train), "--valid", str(valid), "--out", str(out)]
    assert run("finetune", saved, *line, "--epochs", "8", "--learning-rate", "3e-3").exit_code == 0
    predicted = run("predict", out, str(valid), "--score")
    assert predicted.exit_code == 0 and float(predicted.stderr.split()[1]) > 0.9
    refused = run("finetune", saved, *line[:-1], str(tmp_path / "other"), "--lm-weight", "0.5")
    assert refused.exit_code != 0 and "an encoder does not continue texts" in refused.stderr
    tuned = SavedModel.load(out)
    assert tuned.manifest.objective.lm_weight == 0 and tuned.manifest.task_tokens == 0


def test_what_it_is(saved: SavedModel) -> None:
    """`inspect` says that it is an encoder, and what it learns."""
    said = CliRunner().invoke(main, ["inspect", str(saved.folder)]).stdout
    assert "encoder, post layer norm" in said
    assert "masked language (MLM), and whether a text follows on another (NSP)" in said
