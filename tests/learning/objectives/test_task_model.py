"""A task model is a decoder with a head, and begins from a pretrained one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dupt_swarm.errors import ManifestError
from dupt_swarm.learning.objectives import OBJECTIVES, build_model, decoder_of
from dupt_swarm.learning.objectives.start import begin_from, task_manifest
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Objective
from dupt_swarm.manifest.tables import MODEL_OF
from dupt_swarm.tasks import TASKS
from tests.support.tasks import small_task
from tests.support.tiny import tiny_manifest

TWO = Objective(kind="classification", labels=["a", "b"])


def weights(model: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, one, other))


def test_every_objective_has_a_class() -> None:
    """What a manifest may name besides tasks can be learnt."""
    assert set(OBJECTIVES) == set(MODEL_OF)
    assert OBJECTIVES.keys().isdisjoint(TASKS)


def test_the_head_fits_the_answers() -> None:
    """W_y has a row for each label, one for a score and for choices; the decoder has three more tokens."""
    for objective, rows in (
        (TWO, 2),
        (Objective(kind="entailment", labels=["a", "b", "c"]), 3),
        (Objective(kind="similarity", labels=["no", "yes"]), 2),
        (Objective(kind="similarity"), 1),
        (Objective(kind="multiple-choice"), 1),
    ):
        manifest, model = small_task(objective)
        assert model.head.weight.shape == (rows, 32)
        assert len(model.backbone.wte.weight) == manifest.model.vocabulary_size == 303
        assert decoder_of(model) is model.backbone
    assert isinstance(build_model(tiny_manifest()), GPT)


def test_weights_follow_from_the_seed() -> None:
    """The same seed draws the same weights, another one others, W_y included; biases are zero."""
    _, model = small_task(TWO)
    first = weights(model)
    model.init_weights(1)
    assert not torch.equal(first[-2], model.head.weight)
    model.init_weights(0)
    assert equal(first, weights(model))
    assert not first[-1].any()
    assert 0.01 < first[-2].std() < 0.03
    assert not torch.equal(first[-2], first[0][:2]), "W_y repeats W_e"


@pytest.mark.parametrize("tied", [True, False])
def test_a_task_begins_with_the_pretrained_weights(tied: bool) -> None:
    """All weights are the base's but for three rows for special tokens and W_y, drawn with the seed."""
    before = tiny_manifest(model={"tie_embeddings": tied}, offer={"digest": "a" * 64})
    before = before.model_copy(update={"initial_digest": "b" * 64})
    base = build_model(before)
    base.init_weights(9)  # type: ignore[operator]
    manifest = task_manifest(before, TWO)
    assert (manifest.name, manifest.initial_digest, manifest.offer) == (
        "test-classification",
        "",
        tiny_manifest().offer,
    )
    model, again, other = (begin_from(base, manifest, seed) for seed in (1, 1, 2))
    assert equal(weights(model), weights(again))
    for (name, ours), theirs in zip(decoder_of(model).named_parameters(), base.parameters(), strict=True):
        assert torch.equal(ours[: len(theirs)], theirs), name
    assert [not torch.equal(a, b) for a, b in zip(weights(model), weights(other), strict=True)] == [
        name in ("backbone.wte.weight", "backbone.lm_head.weight", "head.weight")
        for name, _ in model.named_parameters()
    ]


def test_a_second_task_keeps_what_the_first_learnt() -> None:
    """From a fine-tuned model come its special tokens, and its W_y if the answers are the same ones."""
    first, base = small_task(TWO)
    base.init_weights(5)
    same = task_manifest(first, TWO.model_copy(update={"lm_weight": 0.0}))
    assert same.name == "test-classification"
    assert equal(weights(base), weights(begin_from(base, same, 1)))
    others = task_manifest(first, Objective(kind="entailment", labels=["a", "b"]))
    assert others.name == "test-entailment"
    model = begin_from(base, others, 1)
    assert isinstance(model, TaskModel)
    assert torch.equal(model.backbone.wte.weight, base.backbone.wte.weight)
    assert not torch.equal(model.head.weight, base.head.weight)
    turned = begin_from(base, task_manifest(first, TWO.model_copy(update={"labels": ["b", "a"]})), 1)
    assert isinstance(turned, TaskModel)
    assert not torch.equal(turned.head.weight, base.head.weight)


def test_a_long_name_is_cut() -> None:
    """The task is in the result's name however long the base's is."""
    base = tiny_manifest().model_copy(update={"name": "x" * 40})
    assert task_manifest(base, TWO).name == "x" * 25 + "-classification"


def test_a_manifest_for_a_task_is_checked() -> None:
    """What cannot be is refused as a wrong manifest."""
    with pytest.raises(ManifestError, match="labels"):
        task_manifest(tiny_manifest(), Objective.model_construct(kind="classification", labels=["a"]))


def test_dropout_hits_all_sequences_of_an_example_alike() -> None:
    """In training one mask of h_l^m serves all choices of an example; in evaluation there is none."""
    _, model = small_task(Objective(kind="multiple-choice", head_dropout=0.5))
    tokens = torch.tensor([[[300, 5, 301, 7, 302]] * 2])
    lengths = torch.tensor([[5, 5]])
    model.train()
    with torch.no_grad():
        drawn = [model.logits(tokens, lengths)[0] for _ in range(8)]
        model.eval()
        still = [model.logits(tokens, lengths)[0] for _ in range(2)]
    assert all(one[0].item() == pytest.approx(one[1].item(), abs=1e-6) for one in drawn)
    assert len({round(one[0].item(), 4) for one in drawn}) > 1
    assert torch.equal(*still)


def test_padding_changes_nothing() -> None:
    """Tokens after the extract token have no influence on the answer or the loss."""
    _, model = small_task(TWO, model={"init_std": 0.3})
    model.eval()
    tokens, lengths = torch.tensor([[[300, 5, 7, 302]]]), torch.tensor([[4]])
    padded: Any = torch.cat([tokens, torch.tensor([[[9, 301, 0]]])], dim=2)
    label = torch.tensor([1])
    torch.testing.assert_close(
        model.logits(padded, lengths), model.logits(tokens, lengths), rtol=0, atol=1e-6
    )
    torch.testing.assert_close(
        model(padded, lengths, label), model(tokens, lengths, label), rtol=0, atol=1e-6
    )
