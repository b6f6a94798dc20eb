"""What leaves a private oracle, in rounds of a real swarm."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dupt_swarm import GPT, CollaborativeOptimizer, Swarm
from dupt_swarm.errors import FileError
from dupt_swarm.optimizer.feedback import ErrorFeedback
from dupt_swarm.privacy.accountant import PrivacySpent
from dupt_swarm.privacy.ledger import Ledger
from dupt_swarm.privacy.mechanism import Private
from dupt_swarm.replica.codec import build_codec
from dupt_swarm.settings import PrivacySettings
from tests.support.tiny import settings, tiny_manifest

pytestmark = pytest.mark.usefixtures("nothing_left")

TOKENIZER = b"not used by these tests"
ROUNDS = {"tokens_per_round": 64, "overlap": False}
DILOCO: dict[str, dict[str, Any]] = {
    "rounds": ROUNDS,
    "inner": {"optimizer": "adamw"},
}
GRADIENT: dict[str, dict[str, Any]] = {
    "rounds": ROUNDS | {"strategy": "gradient"},
    "inner": {"optimizer": "none", "clip_norm": 1.0},
    "outer": {"optimizer": "adamw", "learning_rate": 0.01, "momentum": 0.0},
}


class Told:
    """Releases vectors of the test's own, so that nothing that was trained should show."""

    spent = PrivacySpent(0.0, 1e-5, 0)

    def release(self, values: Tensor, round: int) -> None:
        """One vector for each round."""
        values.copy_(told(round, values.numel()))


def told(round: int, numel: int) -> Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(round)) * 1e-3


def feedback_of(swarm: Swarm) -> ErrorFeedback:
    """As an oracle begins with."""
    encoding = swarm.manifest.encoding
    return ErrorFeedback(build_codec(encoding.contribution, encoding), encoding.feedback)


@pytest.fixture
def swarm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Swarm]:
    """An oracle alone with its first peer; the parameter has the manifest's tables."""
    manifest = tiny_manifest(hashlib.sha256(TOKENIZER).hexdigest(), **getattr(request, "param", DILOCO))
    parameters = list(GPT(manifest.model).parameters())
    with (
        Swarm.create(manifest, TOKENIZER, parameters, tmp_path / "first", settings("bootstrap")) as first,
        Swarm.join(first.addresses, tmp_path / "oracle", settings(name="oracle")) as joined,
    ):
        yield joined


def train(model: GPT, optimizer: CollaborativeOptimizer) -> None:
    """An inner step on random tokens, which ends a round."""
    batch = torch.randint(model.config.vocabulary_size, (4, model.config.context_length + 1))
    model(batch[:, :-1], batch[:, 1:]).backward()
    optimizer.step(tokens=batch[:, 1:].numel())
    optimizer.zero_grad()


def private(swarm: Swarm, **numbers: float) -> tuple[GPT, CollaborativeOptimizer]:
    model = GPT(swarm.manifest.model)
    mechanism = Private(PrivacySettings(**numbers), swarm.manifest, swarm.anchor.numel(), swarm.folder.ledger)
    return model, CollaborativeOptimizer(model.parameters(), swarm, mechanism=mechanism)


def test_what_leaves_follows_from_what_was_released_alone(swarm: Swarm) -> None:
    """Neither what was trained nor what encoding lost of it goes past the mechanism, after a restart too."""
    model = GPT(swarm.manifest.model)
    optimizer = CollaborativeOptimizer(model.parameters(), swarm, mechanism=Told())
    expected = feedback_of(swarm)
    for round in range(4):
        if round == 2:
            saved = optimizer.state_dict()
            optimizer = CollaborativeOptimizer(model.parameters(), swarm, mechanism=Told())
            optimizer.load_state_dict(saved)
        train(model, optimizer)
        data = expected.encode(told(round, swarm.anchor.numel()))
        expected.commit()
        assert swarm.state.round == round + 1
        assert bytes(swarm.contribution[: len(data)]) == data


def test_what_was_lost_of_open_contributions_does_not_leave_with_private_ones(swarm: Swarm) -> None:
    """An oracle that becomes private begins without it."""
    model = GPT(swarm.manifest.model)
    openly = CollaborativeOptimizer(model.parameters(), swarm)
    train(model, openly)
    saved = openly.state_dict()
    assert saved["feedback"] != {}
    optimizer = CollaborativeOptimizer(model.parameters(), swarm, mechanism=Told())
    optimizer.load_state_dict(saved)
    train(model, optimizer)
    data = feedback_of(swarm).encode(told(1, swarm.anchor.numel()))
    assert bytes(swarm.contribution[: len(data)]) == data


@pytest.mark.parametrize("swarm", [DILOCO, GRADIENT], indirect=True, ids=["diloco", "gradient"])
def test_an_exhausted_oracle_ends_no_more_rounds(swarm: Swarm) -> None:
    """It trains on if told to, and nothing of that leaves; ε stays below the limit."""
    model, optimizer = private(swarm, noise=10.0, epsilon=1.5)
    for _ in range(6):
        train(model, optimizer)
    spent = optimizer.privacy
    assert spent is not None
    assert spent.epsilon <= 1.5
    assert optimizer.exhausted
    assert swarm.state.round == spent.contributions < 6
    assert Ledger(swarm.folder.ledger).made == {10.0: spent.contributions}


def test_the_round_ends_without_what_cannot_be_counted(swarm: Swarm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner hears which file it is, and no state has the contribution."""
    model, optimizer = private(swarm)
    train(model, optimizer)
    # Root may write anywhere, so the folder goes.
    ledger = swarm.folder.path / "gone" / "privacy.json"
    monkeypatch.setattr(optimizer._mechanism, "_ledger", Ledger(ledger))
    with pytest.raises(FileError, match=r"gone/privacy\.json"):
        train(model, optimizer)
    assert swarm.state.round == 1
