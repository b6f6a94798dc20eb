"""Oracles train an encoder together, each on text of its own, in a real swarm."""

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from dupt_swarm import Swarm, audit
from dupt_swarm.evaluator import Evaluator
from dupt_swarm.learning.objectives import first_model
from dupt_swarm.manifest import Manifest
from dupt_swarm.models.saved_model import SavedModel
from dupt_swarm.oracle.oracle import Oracle
from dupt_swarm.settings import EvaluatorSettings, OracleSettings
from tests.support.driven_swarm import Cluster
from tests.support.encoders import encoder_manifest, encoder_tokenizer, manual_in
from tests.support.sessions import train_in_sessions, train_together
from tests.support.tiny import settings

TOKENIZER = encoder_tokenizer()
ROUNDS = 10


def manifest_of(dropout: float = 0.0) -> Manifest:
    """An encoder of two blocks, with short rounds."""
    changes: dict[str, dict[str, Any]] = {
        "model": {"context_length": 32, "layers": 2, "dropout": dropout},
        "rounds": {"tokens_per_step": 512, "tokens_per_round": 4096},
        "schedule": {"warmup_updates": 5, "total_updates": 500},
    }
    return encoder_manifest(TOKENIZER, nsp=True, **changes)


def weights(manifest: Manifest) -> list[Tensor]:
    return list(first_model(manifest).parameters())


def settings_for(data: Path, rounds: int | None = None) -> OracleSettings:
    return OracleSettings(data, device="cpu", batch_size=16, rounds=rounds)


@pytest.mark.usefixtures("nothing_left")
def test_three_oracles_train_an_encoder(tmp_path: Path) -> None:
    """What is held out is predicted better, all have the same state, and a late joiner trains on from it.

    Somebody who only looks computes the rounds again and comes to the same states.
    """
    manifest, data = manifest_of(), TOKENIZER.to_bytes()
    texts = [manual_in(tmp_path / f"text {letters}", *letters) for letters in ("ab", "cd", "ef", "lm")]
    names = ("one", "two", "three")
    with Cluster(tmp_path, manifest, weights(manifest), names, tokenizer=data) as cluster:
        first, swarms = cluster.first, cluster.oracles
        oracles = [
            Oracle(swarm, settings_for(text, ROUNDS)) for swarm, text in zip(swarms, texts, strict=False)
        ]
        ended = train_together(oracles)
        audited = audit(first.addresses)
        with Swarm.join(first.addresses, tmp_path / "judge", settings("evaluator")) as judging:
            found = Evaluator(judging, EvaluatorSettings(texts[3], device="cpu")).measure()
            record = found.record if found else None
        for swarm in swarms:
            swarm.close()
        late = Oracle(cluster.add("late"), settings_for(texts[3], rounds=2))
        late.run(lambda _status: None)
    states = [SavedModel.load(next((tmp_path / name).glob("test-*"))).state for name in names]

    for status in ended:
        assert status.failed_rounds == 0 and status.round >= ROUNDS
        assert status.first is not None and status.latest is not None
        assert status.latest.loss_nats < status.first.loss_nats - 0.5
        assert status.latest.accuracy is not None and status.latest.nsp_accuracy is not None
        assert status.latest.bits_per_byte is None
    assert audited and {each.verdict for each in audited} == {"equal"}
    assert late.status().round >= ROUNDS + 2
    assert record is not None and record.accuracy is not None and record.nsp_accuracy is not None
    same = {state.digest for state in states if state.round == ROUNDS}
    assert len(same) == 1


def losses_of(folder: Path, data: Path, sessions: list[int], identity: Path) -> list[float]:
    """A single oracle that is stopped and started again after each number of steps."""
    manifest = manifest_of(dropout=0.1)
    tokenizer, wish = TOKENIZER.to_bytes(), settings_for(data)
    losses, _ = train_in_sessions(manifest, tokenizer, weights(manifest), wish, folder, sessions, identity)
    return losses


@pytest.mark.usefixtures("nothing_left")
def test_a_stopped_oracle_goes_on_with_its_next_masks(tmp_path: Path) -> None:
    """The losses are the same bits, whether it was stopped in between or not."""
    data = manual_in(tmp_path / "text", "a")
    whole = losses_of(tmp_path / "a", data, [11], tmp_path / "identity")
    parts = losses_of(tmp_path / "b", data, [6, 5], tmp_path / "identity")
    assert len(whole) == 11
    assert parts == whole
