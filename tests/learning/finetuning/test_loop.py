"""Fine-tuning is the paper's method, ends the same however often it is stopped, and keeps the best epoch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F

from dupt_swarm.errors import DuptError
from dupt_swarm.learning import device as device_module
from dupt_swarm.learning.finetuning.loop import DecayingAdamW, FineTuning, Moment
from dupt_swarm.learning.finetuning.settings import FinetuningSettings
from dupt_swarm.learning.interruptible import Abandoned
from dupt_swarm.learning.labelled.examples import Examples
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.labelled.load import load_examples
from dupt_swarm.learning.objectives.start import task_manifest
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.learning.safe_state import read_tree, write_tree
from dupt_swarm.learning.transformer.attention import Attention
from dupt_swarm.manifest import Objective
from tests.support.saved_models import small_tokenizer
from tests.support.tasks import small_task, two_languages, write_lines
from tests.support.tiny import tiny_manifest

TOKENIZER = small_tokenizer()
LANGUAGES = Objective(kind="classification", labels=["de", "en"])
CHOICE = Objective(kind="multiple-choice", head_dropout=0.0)
SCORE = Objective(kind="similarity", head_dropout=0.0)
CPU = torch.device("cpu")
SETTINGS = FinetuningSettings(epochs=2, learning_rate=1e-3, batch_size=8)


def examples(folder: Path, rows: list[dict[str, Any]], objective: Objective = LANGUAGES) -> Examples:
    files = LabelledFiles(write_lines(folder / "a.jsonl", rows))
    return load_examples(files, task_manifest(tiny_manifest(), objective), TOKENIZER)


def begin(folder: Path, count: int = 20, settings: FinetuningSettings = SETTINGS) -> FineTuning:
    """A model with dropout, at the beginning of a small task."""
    _, model = small_task(LANGUAGES, vocabulary_size=TOKENIZER.vocabulary_size, model={"dropout": 0.1})
    train, valid = examples(folder, two_languages(count, 1)), examples(folder, two_languages(9, 2))
    return FineTuning(model, train, valid, settings, CPU)


def score_two(folder: Path, settings: FinetuningSettings) -> FineTuning:
    """A model without dropout, at the beginning of two examples whose losses lie far apart."""
    _, model = small_task(SCORE, vocabulary_size=TOKENIZER.vocabulary_size)
    rows = [{"first": "the bear", "second": "river", "label": label} for label in (5.0, 100.0)]
    scored = examples(folder, rows, SCORE)
    return FineTuning(model, scored, scored, settings, CPU)


def test_a_killed_run_ends_with_the_same_model(tmp_path: Path) -> None:
    """Stopped again and again, and gone on with from a file, it ends with the very same bits."""
    whole = begin(tmp_path)
    best = whole.run(lambda _: None, lambda _: None)
    assert whole.updates == 6

    state: dict[str, Any] | None = None
    stops = 0
    file = tmp_path / "state"
    while True:
        part = begin(tmp_path)
        torch.manual_seed(stops)  # another process has other random numbers
        if state is not None:
            part.load_state_dict(read_tree(file))
        seen: list[Moment] = []

        def look(moment: Moment, seen: list[Moment] = seen) -> None:
            seen.append(moment)
            if len(seen) == 4:  # a validation has two batches
                raise Abandoned

        try:
            found = part.run(look, lambda _: None)
            break
        except Abandoned:
            stops += 1
            state = part.state_dict()
            write_tree(file, state)
    assert stops >= 3
    assert found == best and part.epochs == whole.epochs
    assert whole.best_parameters is not None and part.best_parameters is not None
    assert torch.equal(part.best_parameters, whole.best_parameters)
    assert all(map(torch.equal, part.model.parameters(), whole.model.parameters()))


def test_micro_batches_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model so large that a CPU takes its examples one by one learns the same."""
    monkeypatch.setattr(device_module, "_cpu_has_bf16", lambda: False)
    settings = replace(SETTINGS, epochs=1)
    models = []
    for limit in (1, 1 << 39):
        monkeypatch.setattr("dupt_swarm.learning.interruptible.BATCH_FLOP_MAX", limit)
        learning = begin(tmp_path, settings=settings)
        for module in learning.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            if isinstance(module, Attention):
                module.dropout = 0.0
        learning.model.objective = LANGUAGES.model_copy(update={"head_dropout": 0.0})
        looks: list[Moment] = []
        learning.run(looks.append, lambda _: None)
        models.append((learning, len(looks)))
    (small, many), (large, few) = models
    assert many == 20 + 9 and few == 3 + 2
    for one, other in zip(small.model.parameters(), large.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5)


def test_it_learns(tmp_path: Path) -> None:
    """It learns to tell two kinds of text apart, and says of each epoch how well."""
    learning = begin(tmp_path, 240, replace(SETTINGS, epochs=3, learning_rate=3e-3))
    saved: list[dict[str, Any]] = []
    best = learning.run(lambda _: None, saved.append)
    assert [epoch.number for epoch in learning.epochs] == [1, 2, 3] and len(saved) == 3
    assert best.scores["accuracy"] > 0.8, learning.epochs
    assert learning.epochs[-1].train_loss < learning.epochs[0].train_loss


def found_in_turn(monkeypatch: pytest.MonkeyPatch, *results: tuple[float, float]) -> None:
    """Accuracy and loss of each epoch's validation: what training gives cannot be chosen."""
    coming = iter(results)

    def evaluate(*_: object) -> Any:
        accuracy, loss = next(coming)
        return type("Found", (), {"loss": loss, "scores": {"accuracy": accuracy}})

    monkeypatch.setattr("dupt_swarm.learning.finetuning.loop.evaluate_task", evaluate)


def test_it_saves_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each epoch, and within one as soon as more than five minutes' work could be lost."""
    now, saved, losses = 0.0, list[int](), list[float | None]()
    monkeypatch.setattr("dupt_swarm.learning.finetuning.loop.time", SimpleNamespace(monotonic=lambda: now))
    found_in_turn(monkeypatch, (0.5, 1.0), (0.6, 1.0))

    def look(moment: Moment) -> None:
        nonlocal now
        now += 200.0
        losses.append(moment.loss)

    begin(tmp_path).run(look, lambda state: saved.append(state["done"]))
    assert saved == [2, 3, 5, 6]
    assert [loss is None for loss in losses] == 2 * [True, False, False], "the loss is of this epoch"


def test_the_seed_decides(tmp_path: Path) -> None:
    """On dropout, and on the order of the examples."""
    first: set[float] = set()
    for seed in range(6):
        learning = score_two(tmp_path, replace(SETTINGS, batch_size=1, seed=seed))
        assert torch.initial_seed() == seed

        def look(moment: Moment) -> None:
            if moment.loss is not None:
                first.add(round(moment.loss, -2))
                raise Abandoned

        with pytest.raises(Abandoned):
            learning.run(look, lambda _: None)
    assert len(first) == 2


def test_the_best_epoch_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best score wins, among equal ones the lower loss, and a score that is no number never."""
    nan = float("nan")
    found_in_turn(monkeypatch, (nan, 9.0), (0.5, 9.0), (0.7, 3.0), (nan, 0.1), (0.7, 2.0), (0.6, 0.5))
    learning = begin(tmp_path, 4, replace(SETTINGS, epochs=6))
    parameters: list[torch.Tensor] = []
    best = learning.run(lambda _: None, lambda state: parameters.append(state["parameters"]))
    assert best.number == 5
    assert learning.best_parameters is not None
    assert [torch.equal(each, learning.best_parameters) for each in parameters] == [False] * 4 + [True, False]


def test_a_loss_that_is_no_number(tmp_path: Path) -> None:
    """Training that has blown up ends with a remedy, and does not count as a result."""
    learning = begin(tmp_path)
    with torch.no_grad():
        learning.model.head.bias.fill_(torch.inf)
    with pytest.raises(DuptError, match="lower learning rate") as caught:
        learning.run(lambda _: None, lambda _: None)
    assert caught.value.settings == ("learning_rate",)
    assert learning.epochs == []


def test_the_last_update_blows_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the loss was finite while training, and only the validation tells."""
    found_in_turn(monkeypatch, (0.5, float("inf")))
    with pytest.raises(DuptError, match="lower learning rate"):
        begin(tmp_path, 4).run(lambda _: None, lambda _: None)


def test_no_example_is_lost_to_fp16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of scores are beyond fp16 at first; each example is learnt all the same, however few."""
    found = []
    for dtype in (torch.float32, torch.float16):
        monkeypatch.setattr(device_module, "product_dtype", lambda _, dtype=dtype: dtype)
        learning = score_two(tmp_path, replace(SETTINGS, batch_size=1))
        found.append(learning.run(lambda _: None, lambda _: None))
    fp32, fp16 = found
    assert fp16.loss == pytest.approx(fp32.loss, rel=1e-4)
    assert fp16.train_loss == pytest.approx(fp32.train_loss, rel=1e-4)


def test_learning_rate() -> None:
    """It rises over the warm-up, then falls linearly; each update counts, and after the last it is 0."""

    def rates(updates: int, warmup: int) -> list[float]:
        settings = FinetuningSettings(learning_rate=1.0, warmup_ratio=warmup / updates)
        weight = nn.Parameter(torch.zeros(1))
        weight.grad = torch.zeros(1)
        optimizer, found = DecayingAdamW([weight], settings, updates), []
        for _ in range(updates + 1):
            found.append(optimizer.learning_rate)
            optimizer.step(tokens=1)
        return found

    assert rates(6, 2) == [1 / 3, 2 / 3, 1.0, 0.75, 0.5, 0.25, 0.0]
    assert rates(2, 0) == [1.0, 0.5, 0.0]
    rate = DecayingAdamW([nn.Parameter(torch.zeros(1))], FinetuningSettings(), 1000).learning_rate
    assert rate == pytest.approx(6.25e-5 / 3)  # a thousand updates begin with two of warm-up


def double_heads(model: TaskModel) -> Any:
    """The model of transformers for GPT-1's multiple choice, with the weights of ``model``."""
    shape = model.backbone.config
    reference = transformers.OpenAIGPTDoubleHeadsModel(
        transformers.OpenAIGPTConfig(
            vocab_size=shape.vocabulary_size,
            n_positions=shape.context_length,
            n_embd=shape.width,
            n_layer=shape.layers,
            n_head=shape.heads,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            summary_first_dropout=0,
            num_labels=1,
        )
    )
    names = {"wte.weight": "tokens_embed.weight", "wpe.weight": "positions_embed.weight"}
    state = {}
    for name, weight in model.backbone.state_dict().items():
        transposed = weight.ndim == 2 and name not in names  # its Conv1D stores [in, out]
        state["transformer." + names.get(name, name)] = (weight.T if transposed else weight).clone()
    state["lm_head.weight"] = state["transformer.tokens_embed.weight"]
    for name, weight in model.head.state_dict().items():
        state[f"multiple_choice_head.summary.{name}"] = weight.clone()
    reference.load_state_dict(state)
    return reference


def test_a_step_is_that_of_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One update of a post-norm model equals L3 and AdamW written with OpenAIGPTDoubleHeadsModel."""
    monkeypatch.setattr(device_module, "_cpu_has_bf16", lambda: False)
    _, model = small_task(
        CHOICE,
        vocabulary_size=TOKENIZER.vocabulary_size,
        model={"placement": "post", "init_std": 0.1, "hidden_width": 128},
    )
    rows = [
        {"context": "the bear", "choices": ["walks over", "bridge"], "label": 0},
        {"context": "Der Bär", "choices": ["the", "läuft über die Brücke"], "label": 1},
        {"context": "the", "choices": ["river", "the the"], "label": 1},
    ]
    train = examples(tmp_path, rows, CHOICE)
    reference = double_heads(model)
    settings = FinetuningSettings(epochs=1, learning_rate=1e-2, batch_size=3)
    FineTuning(model, train, train, settings, CPU).run(lambda _: None, lambda _: None)

    tokens, lengths, labels = train.batch(range(3))
    decayed = [parameter for parameter in reference.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in reference.parameters() if parameter.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=1e-2
    )
    output = reference.train()(tokens, mc_token_ids=lengths - 1)
    per_token = F.cross_entropy(
        output.logits[:, :, :-1].permute(0, 3, 1, 2), tokens[:, :, 1:], reduction="none"
    )
    real = torch.arange(1, tokens.size(2)) < lengths.unsqueeze(2)
    language = ((per_token * real).sum(2) / real.sum(2)).mean()
    (F.cross_entropy(output.mc_logits, labels) + 0.5 * language).backward()
    nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
    optimizer.step()
    expected = double_heads(model).state_dict()  # ours, by their names
    found = reference.state_dict()
    for name, weight in found.items():
        difference = (weight - expected[name]).abs()
        # Softmax sees neither the keys' bias nor that of all choices: their gradients are rounding, which
        # Adam makes large.
        if name.endswith("c_attn.bias"):
            difference[model.backbone.config.width : 2 * model.backbone.config.width] = 0
        elif name == "multiple_choice_head.summary.bias":
            continue
        assert difference.max() < 1e-5, name
