"""`dupt-model inspect` on each kind of thing that it can be given."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dupt_swarm.checkpoint import REPLICA_FILE
from dupt_swarm.disk.folders import SwarmFolder
from dupt_swarm.learning.export.origin import Evaluated, Origin
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.models.saved_model import SavedModel
from dupt_swarm.replica.storage import save_state
from peers.model.inspect import command
from tests.support.foreign_models import write_encoder, write_foreign
from tests.support.foreign_tokenizers import KINDS
from tests.support.pairs import pair_manifest, seq2seq_tables
from tests.support.saved_models import small_tokenizer, write_model
from tests.support.tiny import tiny_manifest

EVIL = "\x1b[2Jeve\u202e\n<b>"


def inspect(path: Path, *options: str) -> str:
    """What it prints of something that is in order."""
    result = CliRunner().invoke(command, [str(path), *options])
    assert result.exit_code == 0, result.output
    return result.output


def facts(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(inspect(path, "--json"))
    return found


@pytest.fixture
def model(tmp_path: Path) -> SavedModel:
    """With an origin in which strangers have written."""
    plain = write_model(tmp_path / "plain")
    origin = Origin(
        swarm_id=plain.manifest.swarm_id,
        round=4,
        swarm_tokens=1234,
        state_digest=plain.state.digest,
        peers=("ada", EVIL),
        evaluations=(Evaluated(dataset="news", bits_per_byte=2.5, loss_nats=5.1, round=3, evaluator=EVIL),),
        pulled_at="2026-01-01T00:00:00Z",
    )
    return replace(plain, origin=origin).save(tmp_path / "model")


def test_an_encoder_of_another_format(tmp_path: Path) -> None:
    """What it learns, and which weights the folder lacks."""
    write_encoder(tmp_path / "whole")
    write_encoder(tmp_path / "part", "BertForMaskedLM")
    said = inspect(tmp_path / "whole")
    assert "objective   masked language (MLM), and whether a text follows on another (NSP)\n" in said
    assert "note" not in said
    assert "note        pooler and follows are not in the folder" in inspect(tmp_path / "part")
    assert facts(tmp_path / "part")["objective"] == {"kind": "mlm", "nsp": False}


def test_an_encoder_decoder(tmp_path: Path) -> None:
    """The blocks of both stacks, and what it learns in words."""
    folder = write_model(tmp_path / "model", **seq2seq_tables(model={"encoder_layers": 2})).folder
    said = inspect(folder)
    assert "2 layers of the encoder, 1 of the decoder, 2 heads, width 32" in said
    assert "objective   a text for a text (seq2seq), label smoothing 0.1\n" in said
    assert "parts       encoder-decoder, post layer norm" in said
    assert facts(folder)["objective"] == {"kind": "seq2seq", "label_smoothing": 0.1}
    manifest = pair_manifest(objective={"label_smoothing": 0.0})
    (tmp_path / "run.toml").write_text(manifest.to_toml())
    assert "objective   a text for a text (seq2seq)\n" in inspect(tmp_path / "run.toml")


def test_a_model_folder(model: SavedModel) -> None:
    """Sizes, state, tokenizer and origin; nothing that a stranger wrote obeys the terminal."""
    found = facts(model.folder)
    assert (found["kind"], found["swarm_id"], found["round"]) == ("model folder", model.manifest.swarm_id, 0)
    assert (found["digest"], found["custom"]) == (model.state.digest, False)
    assert found["model"]["parameters"] == model.state.anchor.numel()
    assert found["tokenizer"]["matches"] is True
    assert found["bytes"] == sum(path.stat().st_size for path in model.folder.iterdir())
    assert found["origin"]["evaluations"][0]["evaluator"] == EVIL
    text = inspect(model.folder)
    assert not set("\x1b\u202e") & set(text)
    for shown in (
        "1 layer, 2 heads, width 32, context 16, vocabulary 300",
        "(verified)",
        "matches the manifest",
        "language (L1)",
        "ada, �[2Jeve� <b>",
        "2.5000 bits/byte, loss 5.1000 on news at round 3 by �[2Jeve� <b>",
    ):
        assert shown in text, text


def test_checkpoints(model: SavedModel, tmp_path: Path) -> None:
    """A peer's folder, and a checkpoint in it, are told apart."""
    folder = SwarmFolder(tmp_path / "state", model.manifest.swarm_id)
    folder.save_shared(model.manifest.canonical_bytes(), model.tokenizer.to_bytes())
    with folder.new_checkpoint() as path:
        save_state(model.state, path / REPLICA_FILE)
    folder.close()
    assert folder.checkpoint is not None
    assert facts(folder.path)["kind"] == "peer's folder, checkpoint-00000001"
    assert facts(folder.checkpoint)["kind"] == "checkpoint"
    assert facts(folder.checkpoint)["digest"] == model.state.digest


def test_manifests(model: SavedModel, tmp_path: Path) -> None:
    """run.toml and manifest.json, with and without a tokenizer beside it; parameters are counted exactly."""
    found = facts(model.folder / "manifest.json")
    assert (found["kind"], found["tokenizer"]["matches"]) == ("manifest", True)
    assert found["model"]["parameters"] == model.state.anchor.numel()
    assert "digest" not in found
    run = tmp_path / "run.toml"
    run.write_text(model.manifest.to_toml())
    assert facts(run)["tokenizer"]["matches"] is None
    assert "tokenizer.json is not there" in inspect(run)
    small_tokenizer(290).save(tmp_path / "tokenizer.json")
    assert "tokenizer.json is NOT the manifest's" in inspect(run)


def test_another_models_tokenizer(tmp_path: Path) -> None:
    """What it changes in a text is said."""
    for kind, lossy in (("llama2", False), ("openai-gpt", True)):
        tokenizer = Tokenizer.from_foreign(*KINDS[kind]())
        folder = write_model(tmp_path / kind, tokenizer).folder
        assert facts(folder)["tokenizer"]["lossy"] == tokenizer.lossy
        assert facts(folder)["tokenizer"]["end_of_text"] == tokenizer.end_of_text
        assert ("it does not keep text as it is: its normalizer (Bert" in inspect(folder)) == lossy


def test_a_task(tmp_path: Path) -> None:
    """Its labels and the weight of language beside it."""
    tokenizer = small_tokenizer()
    manifest = tiny_manifest(
        tokenizer.sha256,
        tokenizer.vocabulary_size,
        objective={"kind": "classification", "labels": ["good", "bad"]},
        model={"vocabulary_size": tokenizer.vocabulary_size + 3},
    )
    (tmp_path / "run.toml").write_text(manifest.to_toml())
    assert "classification, labels good, bad, lambda 0.5" in inspect(tmp_path / "run.toml")


def test_damage(model: SavedModel, tmp_path: Path) -> None:
    """One message with the remedy, and the exit code of the error."""
    state = model.folder / REPLICA_FILE
    state.write_bytes(state.read_bytes()[:-9])
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    for path, code, said in (
        (model.folder, 1, "not a valid replica state"),
        (tmp_path, 1, "no model there"),
        (tmp_path / "nowhere", 1, "no folder there"),
        (state, 10, "cannot be read"),
        (tmp_path / "binary", 10, "`dupt-peer new` writes one"),
        (model.folder / "tokenizer.json", 10, "unknown key"),
    ):
        result = CliRunner().invoke(command, [str(path)])
        assert (result.exit_code, said in result.stderr) == (code, True), (path, result.output)
        assert result.stdout == ""


def test_a_folder_in_hugging_faces_format(tmp_path: Path) -> None:
    """Its architecture is told by its parts; it belongs to no swarm yet."""
    write_foreign(tmp_path / "Llama-2")
    said = inspect(tmp_path / "Llama-2")
    assert "model in Hugging Face's format" in said and ", if one trains it on" in said
    assert "pre rms norm, rotary positions, swiglu, 2 key-value heads, no biases" in said
