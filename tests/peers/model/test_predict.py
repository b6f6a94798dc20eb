"""How `dupt-model predict` asks a model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dupt_swarm.learning.labelled.examples import Examples
from dupt_swarm.manifest import Objective
from peers.model.predict import _ask
from tests.support.tasks import small_task


@pytest.mark.parametrize(("batch_size", "examples"), [(8, 4), (3, 1), (1, 1)])
def test_no_more_sequences_at_once_than_are_wished_for(
    monkeypatch: pytest.MonkeyPatch, batch_size: int, examples: int
) -> None:
    """Of a task with two sequences an example, half as many examples; one at least."""
    _, model = small_task(Objective(kind="similarity"))
    sequence = np.array([300, 5, 301, 6, 302], dtype=np.int32)
    questions = Examples([(sequence, sequence)] * 9, 16, 0, 0, torch.zeros(9))
    asked, logits = [], model.logits

    def noted(tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        asked.append(len(tokens))
        return logits(tokens, lengths)

    monkeypatch.setattr(model, "logits", noted)
    saved: Any = SimpleNamespace(build=lambda _: model)
    assert len(_ask(saved, questions, batch_size, torch.device("cpu"))) == sum(asked) == 9
    assert max(asked) == examples
