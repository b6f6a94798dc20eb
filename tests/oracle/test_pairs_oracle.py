"""Oracles with pairs of texts of their own learn to write one for the other together, in a real swarm."""

from pathlib import Path

import pytest
import torch

from dupt_swarm import audit
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.tokenizer import Tokenizer, train_tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.oracle.oracle import Oracle
from dupt_swarm.settings import OracleSettings
from tests.support.driven_swarm import Cluster
from tests.support.pairs import sentences, seq2seq_tables
from tests.support.sessions import train_in_sessions, train_together
from tests.support.tasks import write_lines
from tests.support.tiny import tiny_manifest

SENTENCES = sentences()
CONTEXT, PAIRS_PER_STEP = 64, 8


def swarm_of(dropout: float = 0.0, steps: int = 12) -> tuple[Manifest, Tokenizer]:
    """A swarm that restores case and punctuation, with short rounds."""
    texts = (text for row in SENTENCES[:800] for text in row.values())
    tokenizer = train_tokenizer(texts, 600)
    step = PAIRS_PER_STEP * CONTEXT
    tables = seq2seq_tables(
        tokenizer={"end_of_text": tokenizer.end_of_text},
        model={
            "width": 64,
            "hidden_width": 128,
            "context_length": CONTEXT,
            "init_std": 0.1,
            "dropout": dropout,
        },
        inner={"learning_rate": 0.02},
        rounds={"tokens_per_step": step, "tokens_per_round": steps * step},
    )
    return tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size, **tables), tokenizer


def settings_for(folder: Path, first: int, count: int = 400, rounds: int | None = None) -> OracleSettings:
    """Every third sentence from the ``first`` on, which no other oracle has."""
    data = write_lines(folder / f"{first}.jsonl", SENTENCES[first::3][:count])
    return OracleSettings(data, device="cpu", batch_size=8, rounds=rounds)


@pytest.mark.usefixtures("nothing_left")
def test_three_oracles_learn_a_text_for_a_text(tmp_path: Path) -> None:
    """The loss on held-out pairs falls, all have the same state, and so has who computes the rounds again."""
    manifest, tokenizer = swarm_of()
    parameters = list(build_model(manifest).parameters())
    with Cluster(tmp_path, manifest, parameters, "abc", tokenizer=tokenizer.to_bytes()) as cluster:
        swarms = cluster.oracles
        oracles = [Oracle(swarm, settings_for(tmp_path, n, rounds=3)) for n, swarm in enumerate(swarms)]
        statuses = train_together(oracles)
        digests = {swarm.state.digest for swarm in swarms}
        audited = audit(cluster.first.addresses)
        for swarm in swarms:
            swarm.close()

    assert len(digests) == 1
    assert [(each.round, each.verdict) for each in audited] == [(n, "equal") for n in (1, 2, 3)]
    for status in statuses:
        before, after = status.first, status.latest
        assert status.failed_rounds == 0 and before is not None and after is not None
        assert after.loss_nats < before.loss_nats - 1
        assert before.accuracy is not None and after.accuracy is not None and after.bits_per_byte is None
        assert after.accuracy > before.accuracy


def train(folder: Path, sessions: list[int], identity: Path) -> list[float]:
    """The losses of a single oracle that is stopped and started again after each number of steps."""
    manifest, tokenizer = swarm_of(dropout=0.1, steps=4)
    torch.manual_seed(0)
    parameters = list(build_model(manifest).parameters())
    folder.mkdir()
    wish = settings_for(folder, 0, 40)
    losses, _ = train_in_sessions(
        manifest, tokenizer.to_bytes(), parameters, wish, folder, sessions, identity
    )
    return losses


@pytest.mark.usefixtures("nothing_left")
def test_a_stopped_oracle_goes_on_with_its_next_pairs(tmp_path: Path) -> None:
    """The losses are the same bits, whether it was stopped in between or not."""
    whole = train(tmp_path / "a", [11], tmp_path / "identity")
    assert len(whole) == 11
    assert train(tmp_path / "b", [6, 5], tmp_path / "identity") == whole
