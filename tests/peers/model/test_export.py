"""`dupt-model export`, as people run it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dupt_swarm.learning.export.origin import Evaluated, Origin
from peers.model.export import FORMATS
from tests.support.hugging_face import load_model, load_tokenizer
from tests.support.programs import dupt_model
from tests.support.saved_models import write_model

POST = {"placement": "post", "hidden_width": 128}


def card(folder: Path) -> str:
    """What README.md says."""
    return (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("norm", "name"), [({}, "gpt2"), (POST, "openai-gpt")])
def test_from_a_model_folder_to_transformers(norm: dict, name: str, tmp_path: Path) -> None:
    """The format that fits is chosen, it says what it wrote and how to load it, and it is the same model."""
    saved = write_model(tmp_path / "model", model=norm)
    ended = dupt_model("export", str(tmp_path / "model"), str(tmp_path / "out"))
    assert (ended.returncode, ended.stdout) == (0, "")
    wrote, load = ended.stderr.splitlines()
    files = "README.md, config.json, generation_config.json, model.safetensors, tokenizer.json"
    assert wrote == f"wrote {tmp_path / 'out'} ({name}, 0.1 MB): {files}, tokenizer_config.json"
    assert load.startswith("load it: from transformers import AutoTokenizer, AutoModelForCausalLM as Model;")
    ids = load_tokenizer(tmp_path / "out")("Bär", return_tensors="pt")["input_ids"]
    assert ids.tolist() == [saved.tokenizer.encode("Bär")]
    with torch.no_grad():
        logits = load_model(tmp_path / "out")(ids).logits
        torch.testing.assert_close(logits, saved.build(torch.device("cpu"))(ids), rtol=0, atol=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]


def test_it_needs_no_transformers(tmp_path: Path) -> None:
    """Who exports needs only dupt_swarm: `transformers` is not imported."""
    write_model(tmp_path / "model")
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "transformers.py").write_text("raise ImportError('it was to be left alone')")
    hooks = str(tmp_path / "hooks")
    ended = dupt_model("export", str(tmp_path / "model"), str(tmp_path / "out"), PYTHONPATH=hooks)
    assert ended.returncode == 0, ended.stderr


def test_the_origin_is_told(tmp_path: Path) -> None:
    """What `pull` wrote into origin.json is in the card, and what the state became since."""
    saved = write_model(tmp_path / "plain")
    evaluated = Evaluated(dataset="wiki", bits_per_byte=1.5, loss_nats=3.0, round=7, evaluator="judge")
    origin = Origin(
        swarm_id=saved.manifest.swarm_id,
        round=99,
        swarm_tokens=9900,
        state_digest="0" * 64,
        peers=("Ada", "<b>"),
        evaluations=(evaluated,),
        pulled_at="2026-01-02T03:04:05Z",
        version="0.3.0",
    )
    replace(saved, origin=origin).save(tmp_path / "model")
    assert dupt_model("export", str(tmp_path / "model"), str(tmp_path / "out")).returncode == 0
    found = card(tmp_path / "out")
    assert f"# {saved.manifest.swarm_id}, round 99\n" in found
    assert "| tokens seen | 9,900 |" in found
    assert f"| state digest | {'0' * 64} |" in found
    assert f"| after fine-tuning | {saved.state.digest} |" in found
    assert r"| peers with a name | Ada, \<b\> |" in found
    assert "| wiki | 1.5000 | 3.0000 | – | 7 | judge |" in found
    assert r"| taken from the swarm | 2026-01-02T03\:04\:05Z |" in found


def test_a_checkpoint_is_a_model(tmp_path: Path) -> None:
    """A peer's folder with checkpoints is exported too, as far as it is known."""
    saved = write_model(tmp_path / "checkpoint-00000001")
    for name in ("manifest.json", "tokenizer.json"):
        (tmp_path / "checkpoint-00000001" / name).rename(tmp_path / name)
    assert (
        dupt_model("export", str(tmp_path), str(tmp_path / "out"), "--format", "safetensors").returncode == 0
    )
    assert f"| state digest | {saved.state.digest} |" in card(tmp_path / "out")
    assert "| peers with a name | none that is known |" in card(tmp_path / "out")


def test_what_is_refused(tmp_path: Path) -> None:
    """A folder with something in it, an unfit format, and no model: a remedy, and nothing written."""
    write_model(tmp_path / "model")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("old")
    for model, folder, more, code, message in (
        ("model", "full", (), 2, r"full: already there, and not an empty folder; choose another"),
        ("model", "out", ("--format", "openai-gpt"), 2, r"export it as gpt2 \(--format\)"),
        ("model", "out", ("--format", "onnx"), 2, r"'onnx' is not one of 'openai-gpt', 'gpt2'"),
        ("nowhere", "out", (), 1, r"nowhere: no folder there; give a folder that `dupt-model pull` wrote"),
    ):
        ended = dupt_model("export", str(tmp_path / model), str(tmp_path / folder), *more)
        assert (ended.returncode, ended.stdout) == (code, "")
        assert re.search(message, ended.stderr)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "model"]
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]


def test_the_option_lists_all_formats() -> None:
    """The program's choices, which are known without torch, are the library's formats."""
    from dupt_swarm.learning.export.export import FORMATS as LIBRARYS

    assert tuple(LIBRARYS) == FORMATS
