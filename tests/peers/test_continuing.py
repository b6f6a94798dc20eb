"""A swarm trains a model on that exists, in Hugging Face's format, and gives it back in that format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from dupt_swarm.learning.batches import held_out_batches
from dupt_swarm.learning.corpus import Corpus
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.manifest import Manifest
from dupt_swarm.models.saved_model import load_model
from dupt_swarm.replica.storage import load_state
from dupt_swarm.swarm import INITIAL_FILE
from tests.support.commands import new
from tests.support.foreign_models import CONTEXT, write_foreign
from tests.support.hugging_face import load_model as load_theirs
from tests.support.programs import LISTEN, dupt_model, first_peer, start
from tests.support.saved_models import TEXT, small_tokenizer


def source_loss(theirs: Any, manifest: Manifest, text: Path, cache: Path) -> float:
    """What `transformers` computes on the text that an oracle holds out, in nats per token."""
    corpus = Corpus.prepare(
        TextFiles(str(text), "text"), small_tokenizer(), cache, context_length=CONTEXT, seed=manifest.seed
    )
    losses = [
        F.cross_entropy(theirs(inputs).logits.flatten(0, 1), targets.flatten())
        for inputs, targets in held_out_batches(corpus.held_out, CONTEXT, 1)
    ]
    return float(torch.stack(losses).mean())


def test_the_state_of_round_0_is_the_models(tmp_path: Path) -> None:
    """bf16 weights of a folder are the values that the manifest's digest stands for, widened."""
    folder, run = tmp_path / "SmolLM.2-of_somebody", tmp_path / "run.toml"
    theirs = write_foreign(folder, dtype=torch.bfloat16)
    assert new(run, "--from", str(folder), "--seed", "7").startswith("0: ")
    manifest, state = Manifest.load(run), load_state(tmp_path / INITIAL_FILE)
    assert (manifest.name, manifest.seed, manifest.initial_digest) == ("run", 7, state.digest)
    assert load_model(folder).manifest.name == "SmolLM-2-of-somebody"
    embedding = theirs.get_input_embeddings().weight
    assert torch.equal(state.anchor[: embedding.numel()], embedding.float().flatten())
    assert manifest.rounds.tokens_per_step == 16 * CONTEXT
    assert (tmp_path / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


@pytest.mark.usefixtures("nothing_left")
@torch.no_grad()
def test_two_oracles_train_a_llama_on(tmp_path: Path) -> None:
    """It begins at the source's held-out loss; after three rounds `transformers` loads what became of it."""
    folder, run, texts = tmp_path / "llama", tmp_path / "run.toml", [tmp_path / "a.txt", tmp_path / "b.txt"]
    theirs = write_foreign(folder, tie_word_embeddings=False)
    assert new(run, "--from", str(folder)).startswith("0: ")
    run.write_text(run.read_text().replace("tokens_per_round = 25600", "tokens_per_round = 1024"))
    manifest = Manifest.load(run)
    for number, text in enumerate(texts):
        text.write_text(TEXT.replace("Brücke", f"Brücke {number}") * 40)
    pulled, exported = tmp_path / "pulled", tmp_path / "exported"
    with first_peer(run, tmp_path / "first") as about:
        to = ("--initial-peers", about["address"])
        own = (*to, *LISTEN, "--device", "cpu", "--json", "--rounds", "3")
        oracles = [
            start("join", *own, "--corpus", str(text), "--state-dir", str(text.with_suffix("")))
            for text in texts
        ]
        summaries = [json.loads(oracle.communicate(timeout=120)[0]) for oracle in oracles]
        for arguments in (("pull", *to, pulled), ("export", pulled, exported)):
            assert dupt_model(*map(str, arguments)).returncode == 0

    for text, summary in zip(texts, summaries, strict=True):
        expected = source_loss(theirs, manifest, text, text.with_suffix(".cache"))
        assert summary["heldout_loss_before"] == pytest.approx(expected, rel=2e-3)  # there in bf16
        assert summary["heldout_loss_after"] < summary["heldout_loss_before"]
    trained = load_model(pulled)
    assert trained.state.round >= 3
    tokens = torch.randint(0, 300, (2, CONTEXT))
    ours = trained.build(torch.device("cpu"))
    torch.testing.assert_close(load_theirs(exported)(tokens).logits, ours(tokens), rtol=0, atol=1e-4)
