"""A swarm whose tokenizer came with another model, by the programs alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest.tables import TOKENIZER_BYTES_MAX
from tests.support.foreign_tokenizers import openai_gpt
from tests.support.programs import LISTEN, dupt_model, dupt_peer
from tests.support.tiny import tiny_manifest


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Beside it the model's own tokenizer.json; W_e has more rows than that has ids."""
    data, end = openai_gpt()
    tokenizer = Tokenizer.from_foreign(data, end)
    size = tokenizer.vocabulary_size
    run = tiny_manifest(
        tokenizer.sha256, size, tokenizer={"end_of_text": end}, model={"vocabulary_size": size + 25}
    )
    tokenizer.save(tmp_path / "tokenizer.json")
    (tmp_path / "run.toml").write_text(run.to_toml())
    return tmp_path / "run.toml"


@pytest.mark.usefixtures("nothing_left")
def test_a_swarm_with_another_models_tokenizer(bootstrap: dict[str, Any], text: Path, tmp_path: Path) -> None:
    """An oracle fetches the tokenizer, is told what it does to texts, and trains; its model writes."""
    state, model = str(tmp_path / "state"), str(tmp_path / "model")
    done = dupt_peer(
        *("join", "--initial-peers", bootstrap["address"], "--corpus", str(text), "--state-dir", state),
        *(*LISTEN, "--rounds", "1", "--device", "cpu", "--json"),
    )
    assert done.returncode == 0, done.stderr
    assert "tokenizer does not keep text as it is: its normalizer (BertNormalizer)" in done.stderr
    done = dupt_model("pull", "--initial-peers", bootstrap["address"], model)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model" / "tokenizer.json").read_bytes() == openai_gpt()[0]
    done = dupt_model("generate", model, "--prompt", "def", "--tokens", "5", "--temperature", "0", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["text"]


def test_a_tokenizer_that_nobody_would_fetch(manifest: Path, tmp_path: Path) -> None:
    """A file larger than others accept is refused before the swarm is there."""
    with (tmp_path / "tokenizer.json").open("ab") as file:
        file.truncate(TOKENIZER_BYTES_MAX + 1)
    done = dupt_peer("bootstrap", str(manifest), *LISTEN, "--state-dir", str(tmp_path / "first"))
    assert done.returncode == 10
    assert "tokenizer.json: it has 67,108,865 bytes, and 67,108,864 are the most" in done.stderr
    assert not (tmp_path / "first").exists()
