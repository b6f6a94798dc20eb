"""L2 and L3 are what the paper says, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dupt_swarm.learning.objectives.task_model import TaskModel, auxiliary_loss
from dupt_swarm.manifest import Objective
from tests.support.tasks import small_task

LABELS = ["a", "b", "c"]
ONE = (torch.tensor([[[300, 5, 7, 9, 302, 0]], [[300, 8, 302, 0, 0, 0]]]), torch.tensor([[5], [3]]))
CHOICES = (
    torch.tensor(
        [
            [[300, 5, 301, 7, 302], [300, 5, 301, 302, 0], [0, 0, 0, 0, 0]],
            [[300, 6, 301, 8, 302], [300, 6, 301, 302, 0], [300, 6, 302, 0, 0]],
        ]
    ),
    torch.tensor([[5, 4, 0], [5, 4, 3]]),
)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def by_hand(model: TaskModel, tokens: Tensor, lengths: Tensor) -> tuple[list[list[np.ndarray]], float]:
    """h_l^m of each real sequence, and the mean over examples of the mean over sequences of −log P(u)."""
    embedding = model.backbone.wte.weight.detach().numpy().astype(np.float64)
    extracted: list[list[np.ndarray]] = []
    language = []
    for example, sizes in zip(tokens, lengths.tolist(), strict=True):
        extracted.append([])
        means = []
        for sequence, size in zip(example, sizes, strict=True):
            if size:
                real = sequence[:size]  # by itself, without any padding
                h = model.backbone.hidden(real[None])[0].detach().numpy().astype(np.float64)
                logp = log_softmax(h[:-1] @ embedding.T)
                means.append(-logp[np.arange(size - 1), real[1:].numpy()].mean())
                extracted[-1].append(h[-1])
        language.append(np.mean(means))
    return extracted, float(np.mean(language))


def head(model: TaskModel, h: np.ndarray) -> np.ndarray:
    weight, bias = (parameter.detach().numpy().astype(np.float64) for parameter in model.head.parameters())
    return np.asarray(h @ weight.T + bias)


def test_l3_of_labels_is_the_papers() -> None:
    """L3 is the mean of −log softmax(h_l^m·W_y)[y] plus λ times the sequences' mean −log P(u)."""
    _, model = small_task(
        Objective(kind="classification", labels=LABELS, lm_weight=0.7), model={"init_std": 0.3}
    )
    model.eval()
    extracted, language = by_hand(model, *ONE)
    logp = [log_softmax(head(model, h)) for (h,) in extracted]
    l2 = -(logp[0][2] + logp[1][1]) / 2
    found = model(*ONE, torch.tensor([2, 1]))
    assert found.item() == pytest.approx(l2 + 0.7 * language, abs=2e-6)
    expected = torch.tensor(np.array([head(model, h) for (h,) in extracted]), dtype=torch.float32)
    torch.testing.assert_close(model.logits(*ONE), expected, rtol=0, atol=2e-6)


def test_l2_of_choices_is_a_softmax_over_those_there() -> None:
    """Each choice has one logit; an example with fewer choices than another counts for as much."""
    _, model = small_task(Objective(kind="multiple-choice"), model={"init_std": 0.3})
    model.eval()
    extracted, language = by_hand(model, *CHOICES)
    l2 = -np.mean(
        [
            log_softmax(np.array([head(model, h)[0] for h in choices]))[label]
            for choices, label in zip(extracted, (1, 2), strict=True)
        ]
    )
    found = model(*CHOICES, torch.tensor([1, 2]))
    assert found.item() == pytest.approx(l2 + 0.5 * language, abs=2e-6)
    assert model.logits(*CHOICES)[0, 2] == -torch.inf


def test_a_score_is_the_sum_of_both_orders() -> None:
    """Similarity adds h_l^m of both orders before W_y; a score's loss is its squared error."""
    tokens = torch.tensor([[[300, 5, 301, 7, 302], [300, 7, 301, 5, 302]]])
    _, model = small_task(Objective(kind="similarity", lm_weight=0.0), model={"init_std": 0.3})
    model.eval()
    lengths = torch.tensor([[5, 5]])
    (both,), _ = by_hand(model, tokens, lengths)
    score = head(model, both[0] + both[1])[0]
    assert model.logits(tokens, lengths).item() == pytest.approx(score, abs=2e-6)
    assert model(tokens, lengths, torch.tensor([2.5])).item() == pytest.approx((score - 2.5) ** 2, abs=2e-5)
    other_way = tokens.flip(1)
    assert model.logits(other_way, lengths).item() == pytest.approx(score, abs=2e-6)


def test_a_batch_is_the_mean_of_its_examples() -> None:
    """Loss and gradients do not depend on how a batch is cut, whatever its sequences and lengths."""
    _, model = small_task(Objective(kind="multiple-choice"), model={"init_std": 0.3})
    model.eval()
    labels = torch.tensor([1, 2])
    whole = model(*CHOICES, labels)
    whole.backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    for index in range(2):
        one = slice(index, index + 1)
        part = model(*(tensor[one] for tensor in CHOICES), labels[one]) / 2
        part.backward()
        whole = whole - part
    assert abs(whole.item()) < 1e-6
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=0, atol=1e-6)


def test_without_lambda_no_word_is_predicted() -> None:
    """λ = 0 computes no logits of the vocabulary: W_e is changed by the input's tokens only."""
    _, model = small_task(Objective(kind="classification", labels=LABELS, lm_weight=0.0))
    model(*ONE, torch.tensor([2, 1])).backward()
    gradient = model.backbone.wte.weight.grad
    assert gradient is not None
    assert sorted(set(gradient.abs().sum(1).nonzero().flatten().tolist())) == [5, 7, 8, 9, 300, 302]


def test_the_auxiliary_losss_gradient_is_autograds() -> None:
    """The gradient of the memory-saving form equals that of a plain cross entropy with the same shares."""
    draw = torch.Generator().manual_seed(4)
    h, embedding = (torch.randn(shape, generator=draw) for shape in ((2, 6, 8), (303, 8)))
    tokens, lengths = ONE
    found = []
    for plain in (False, True):
        x, w = h.clone().requires_grad_(), embedding.clone().requires_grad_()
        if plain:
            each = F.cross_entropy((x @ w.T)[:, :-1].transpose(1, 2), tokens[:, 0, 1:], reduction="none")
            loss = (each[0, :4].mean() + each[1, :2].mean()) / 2
        else:
            loss = auxiliary_loss(x, w, tokens, lengths)
        (3 * loss).backward()
        found.append((loss.detach(), x.grad, w.grad))
    for ours, plain_one in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain_one, rtol=1e-5, atol=1e-6)
