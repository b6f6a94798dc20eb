"""The figures that fit each kind of answer."""

from __future__ import annotations

import math
import re
import sys

import pytest
import torch

from dupt_swarm.errors import CorpusError, UsageError, install
from dupt_swarm.learning import device as device_module
from dupt_swarm.learning.answers import build_answer
from dupt_swarm.learning.objectives.scores import TaskEvaluation, ask, evaluate_task
from dupt_swarm.manifest import Objective
from tests.support.tasks import small_task

TWO = Objective(kind="classification", labels=["no", "yes"])
THREE = Objective(kind="entailment", labels=["a", "b", "c"])
CHOICE = Objective(kind="multiple-choice")
NUMBER = Objective(kind="similarity")


def one_hot(labels: list[int], outputs: int) -> torch.Tensor:
    return torch.eye(outputs)[torch.tensor(labels)]


def test_scores_of_two_labels() -> None:
    """Of 2 true, 1 false positive, 1 missed and 1 true negative: F1 is that of the second label."""
    found = build_answer(TWO).scores(one_hot([1, 1, 1, 0, 0], 2), torch.tensor([1, 1, 0, 1, 0]))
    matthews = (2 * 1 - 1 * 1) / math.sqrt(3 * 3 * 2 * 2)
    assert found == pytest.approx({"accuracy": 0.6, "f1": 4 / 6, "matthews": matthews})


def test_scores_of_three_labels() -> None:
    """With more labels F1 is the mean of theirs, also of one that is neither there nor found."""
    found = build_answer(THREE).scores(one_hot([0, 0, 1, 1], 3), torch.tensor([0, 1, 1, 1]))
    assert found["accuracy"] == 0.75
    assert found["f1"] == pytest.approx((2 / 3 + 4 / 5 + 0) / 3)


def test_scores_of_choices_and_numbers() -> None:
    """Choices have an accuracy; numbers have correlations, none where all are alike."""
    logits = torch.tensor([[0.0, 1.0, -math.inf], [0.0, 1.0, 2.0]])
    assert build_answer(CHOICE).scores(logits, torch.tensor([1, 0])) == {"accuracy": 0.5}
    rising = build_answer(NUMBER).scores(torch.tensor([[1.0], [2.0], [9.0]]), torch.tensor([1.0, 2.0, 3.0]))
    assert rising["spearman"] == pytest.approx(1.0)
    assert 0.9 < rising["pearson"] < 1.0
    constant = build_answer(NUMBER).scores(torch.zeros(3, 1), torch.tensor([1.0, 2.0, 3.0]))
    assert all(map(math.isnan, constant.values()))


def test_answers_in_words() -> None:
    """An answer has its probabilities by label, or by choice without those that are not there."""
    assert build_answer(TWO).describe([0.0, math.log(3)]) == {
        "label": "yes",
        "probabilities": pytest.approx({"no": 0.25, "yes": 0.75}),
    }
    assert build_answer(CHOICE).describe([math.log(3), 0.0, -math.inf]) == {
        "label": 0,
        "probabilities": pytest.approx([0.75, 0.25]),
    }
    assert build_answer(NUMBER).describe([3.5]) == {"label": 3.5}


@pytest.mark.parametrize("objective", [TWO, CHOICE, NUMBER], ids=lambda objective: objective.kind)
def test_evaluation(objective: Objective, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is L2's over all examples, whatever the batches; the model's mode is restored."""
    monkeypatch.setattr(device_module, "_cpu_has_bf16", lambda: False)
    _, model = small_task(objective, model={"init_std": 0.3})
    sequences = {"classification": 1, "multiple-choice": 3, "similarity": 2}[objective.kind]
    tokens = torch.randint(300, (5, sequences, 6), generator=torch.Generator().manual_seed(1))
    lengths = torch.full((5, sequences), 6)
    if objective is CHOICE:
        lengths[0, 2] = 0
    labels = torch.tensor([0, 1, 1, 0, 1], dtype=model.answer.dtype)
    # The third choice of the first example is no part of its batch.
    first = tokens[:1, : max(1, sequences - 1)] if objective is CHOICE else tokens[:1]
    batches = [(first, lengths[:1, : first.size(1)], labels[:1]), (tokens[1:], lengths[1:], labels[1:])]
    model.train()
    found = evaluate_task(model, batches, torch.device("cpu"))
    assert model.training
    model.eval()
    with torch.no_grad():
        expected = model.answer.loss(model.logits(tokens, lengths), labels)
    assert found.loss == pytest.approx(expected.item(), rel=1e-5)
    assert found.examples == 5
    assert found.accuracy == found.scores.get("accuracy")


def test_no_examples() -> None:
    """There is nothing to say of no examples."""
    _, model = small_task(TWO)
    with pytest.raises(CorpusError, match="no labelled examples"):
        ask(model, [], torch.device("cpu"))


def test_missing_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without scikit-learn or scipy it is said what to install; accuracy needs neither."""
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "scipy", None)
    evaluation = TaskEvaluation(build_answer(TWO), 0.5, one_hot([1, 0], 2), torch.tensor([1, 1]))
    assert evaluation.accuracy == 0.5
    with pytest.raises(UsageError, match=re.escape(install("model"))):
        _ = evaluation.scores
    with pytest.raises(UsageError, match=re.escape(install("model"))):
        build_answer(NUMBER).scores(torch.zeros(2, 1), torch.zeros(2))
