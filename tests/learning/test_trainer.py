"""Inner steps train, accumulate and resume exactly."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dupt_swarm.errors import CheckpointError, DeviceError
from dupt_swarm.learning import device as device_module
from dupt_swarm.learning.inner import build_inner
from dupt_swarm.learning.interruptible import Abandoned
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Inner, Model, Objective

CPU = torch.device("cpu")


class Adam:
    """A plain optimizer with the two methods that a trainer needs."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.inner = build_inner(model.parameters(), Inner(optimizer="adamw", learning_rate=1e-2))
        self.tokens: list[int] = []

    def step(self, *, tokens: int) -> None:
        self.tokens.append(tokens)
        self.inner.step()

    def zero_grad(self) -> None:
        self.inner.zero_grad()


class KeepGradients:
    """Never updates and never forgets: the gradients stay to be looked at."""

    def step(self, *, tokens: int) -> None: ...

    def zero_grad(self) -> None: ...


class Source:
    """Random batches by number, of the given rows in turn."""

    tokens_per_example = 8

    def __init__(self, *rows: int, distinct: int = 1_000) -> None:
        self.rows = rows
        self.distinct = distinct
        self.position = 0

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(self.position % self.distinct)
        tokens = torch.randint(300, (self.rows[self.position % len(self.rows)], 9), generator=generator)
        self.position += 1
        return tokens[:, :-1], tokens[:, 1:]

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


def tiny(dropout: float = 0.0) -> GPT:
    shape = Model(
        vocabulary_size=300, context_length=8, layers=2, heads=2, width=32, hidden_width=64, dropout=dropout
    )
    return GPT(shape)


def test_a_model_overfits_one_batch() -> None:
    """On one batch again and again, the loss falls from that of guessing to nearly none."""
    model = tiny()
    trainer = Trainer(model, Adam(model), Source(4, distinct=1), CPU)
    losses = [trainer.step().loss.item() for _ in range(60)]
    assert losses[0] == pytest.approx(5.7, abs=0.2)  # ln 300
    assert losses[-1] < 0.2


def test_a_resumed_trainer_goes_on_exactly() -> None:
    """A trainer that is loaded with a state has the very losses of the one that was not interrupted."""
    model = tiny(dropout=0.2)
    optimizer = Adam(model)
    trainer = Trainer(model, optimizer, Source(2), CPU, micro_batches=2)
    for _ in range(3):
        trainer.step()
    saved = [{**trainer.state_dict()}, model.state_dict(), optimizer.inner.state_dict()]
    saved = [torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, state) for state in saved]
    expected = [trainer.step().loss.item() for _ in range(4)]

    model = tiny(dropout=0.2)
    optimizer = Adam(model)
    trainer = Trainer(model, optimizer, Source(2), CPU, micro_batches=2)
    trainer.step()  # it may have done something else before
    trainer.load_state_dict(saved[0])
    model.load_state_dict(saved[1])
    optimizer.inner.load_state_dict(saved[2])
    assert expected == [trainer.step().loss.item() for _ in range(4)]
    assert len(set(expected)) == 4


def test_a_state_before_the_first_step_is_a_state_too() -> None:
    """A trainer saved before it did anything starts with the first batch."""
    model = tiny()
    trainer = Trainer(model, Adam(model), Source(2), CPU)
    saved = trainer.state_dict()
    expected = trainer.step().loss.item()
    model = tiny()
    trainer = Trainer(model, Adam(model), Source(2), CPU)
    trainer.load_state_dict(saved)
    assert expected == trainer.step().loss.item()


@pytest.mark.parametrize("rows", [(3, 3), (1, 5)])
def test_micro_batches_are_one_large_batch(monkeypatch: pytest.MonkeyPatch, rows: tuple[int, ...]) -> None:
    """Loss and gradients of two micro-batches, also of unequal size, are those of both in one batch."""
    monkeypatch.setattr(device_module, "_cpu_has_bf16", lambda: False)
    source = Source(*rows)
    halves = [next(source) for _ in range(2)]
    inputs, targets = (torch.cat(parts) for parts in zip(*halves, strict=True))
    whole = tiny()
    expected = whole(inputs, targets)
    expected.backward()

    model = tiny()
    step = Trainer(model, KeepGradients(), Source(*rows), CPU, micro_batches=2).step()
    assert targets.numel() == step.tokens
    torch.testing.assert_close(step.loss, expected.detach(), rtol=0, atol=1e-6)
    for mine, theirs in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-6)


class Ragged:
    """Two batches of labelled examples in turn: of another number, and as wide as their longest each."""

    tokens_per_example = 8

    def __init__(self) -> None:
        self.position = 0
        generator = torch.Generator().manual_seed(3)
        self.batches = [
            (
                torch.randint(300, (examples, 1, width), generator=generator),
                torch.randint(2, width + 1, (examples, 1), generator=generator),
                torch.randint(2, (examples,), generator=generator),
            )
            for examples, width in ((3, 5), (2, 8))
        ]

    def __next__(self) -> tuple[torch.Tensor, ...]:
        self.position += 1
        return self.batches[(self.position - 1) % 2]

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


@pytest.mark.parametrize("room", [100, 1])
def test_each_example_of_a_task_counts_alike(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Loss and gradients are the mean over examples, whatever their lengths and however they are cut."""
    monkeypatch.setattr(device_module, "_cpu_has_bf16", lambda: False)
    source = Ragged()
    objective = Objective(kind="classification", labels=["a", "b"], head_dropout=0.0)
    whole, model = (TaskModel(tiny().config, objective) for _ in range(2))
    rows = [(batch, row) for batch in source.batches for row in range(len(batch[0]))]
    alone = [whole(*(tensor[row : row + 1] for tensor in batch)) for batch, row in rows]
    expected = torch.stack(alone).mean()
    expected.backward()
    trainer = Trainer(model, KeepGradients(), source, CPU, micro_batches=2)
    trainer._examples = room
    step = trainer.step()
    assert step.tokens == 5 * 8
    torch.testing.assert_close(step.loss, expected.detach(), rtol=0, atol=1e-5)
    for mine, theirs in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-5)


def test_the_optimizer_learns_how_many_tokens_a_step_had() -> None:
    """Each step tells its tokens to the optimizer and in what it returns, with a loss free of any graph."""
    model = tiny()
    optimizer = Adam(model)
    step = Trainer(model, optimizer, Source(2, 3), CPU, micro_batches=2).step()
    assert 5 * 8 == step.tokens == optimizer.tokens[0]
    assert not step.loss.requires_grad
    assert step.loss.shape == ()


@pytest.mark.parametrize(
    "state", [{}, {"batches": {"position": 0}, "random": {}}, {"batches": 1, "random": 2}]
)
def test_another_state_is_refused(state: dict[str, Any]) -> None:
    """What is no trainer's state gives an error that says so."""
    model = tiny()
    with pytest.raises(CheckpointError, match="not the state of a trainer"):
        Trainer(model, Adam(model), Source(2), CPU).load_state_dict(state)


class Cramped(GPT):
    """Has memory for so many sequences only."""

    room = 2

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        if len(inputs) > self.room:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return super().forward(inputs, targets)


@pytest.mark.parametrize("sizes", [(5, 3), (2, 6)])
def test_out_of_memory_makes_micro_batches_smaller(
    caplog: pytest.LogCaptureFixture, sizes: tuple[int, int]
) -> None:
    """When the memory does not suffice, the step is done in smaller pieces, with the same result.

    What was computed until then, of the first of two batches, does not count.
    """
    config = Model(
        vocabulary_size=300, context_length=8, layers=1, heads=2, width=16, hidden_width=32, dropout=0.0
    )
    results = []
    for kind in (GPT, Cramped):
        model = kind(config)
        model.init_weights(0)
        optimizer = KeepGradients()
        trainer = Trainer(model, optimizer, Source(*sizes), CPU, micro_batches=2)
        optimizer.zero_grad = model.zero_grad  # type: ignore[method-assign]
        step = trainer.step
        kept: list[torch.Tensor] = []

        def keep(*, tokens: int, model: GPT = model, kept: list[torch.Tensor] = kept) -> None:
            assert tokens == 64
            kept.extend(parameter.grad.clone() for parameter in model.parameters())  # type: ignore[union-attr]

        optimizer.step = keep  # type: ignore[method-assign]
        results.append((step().loss, kept))
    (loss, gradients), (loss_in_pieces, gradients_in_pieces) = results
    torch.testing.assert_close(loss_in_pieces, loss)
    for in_pieces, whole in zip(gradients_in_pieces, gradients, strict=True):
        assert (in_pieces - whole).norm() <= 0.02 * whole.norm()  # bf16 rounds each piece by itself
    assert f"a batch size of {2 if sizes == (5, 3) else 1} avoids this" in caplog.text


def test_no_room_for_one_sequence_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """If not even one sequence fits, the device does not suit the model; other errors stay what they are."""
    monkeypatch.setattr(Cramped, "room", 0)
    config = Model(vocabulary_size=300, context_length=8, layers=1, heads=2, width=16, hidden_width=32)
    trainer = Trainer(Cramped(config), KeepGradients(), Source(4), CPU)
    with pytest.raises(DeviceError, match="out of memory training on one sequence"):
        trainer.step()
    broken = Trainer(GPT(config), KeepGradients(), Source(4), CPU)
    broken.model = torch.nn.Linear(1, 1)
    with pytest.raises(TypeError):
        broken.step()


class CrampedLater(Cramped):
    """Fails in the backward pass, when dropout has drawn."""

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        loss = GPT.forward(self, inputs, targets)
        if len(inputs) > self.room:
            loss.register_hook(fail_for_memory)
        return loss


def fail_for_memory(_: torch.Tensor) -> None:
    raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")


def test_dropout_after_out_of_memory_is_that_of_smaller_pieces() -> None:
    """What was drawn before the memory ran out is drawn again: as if it had begun with such pieces."""
    config = Model(
        vocabulary_size=300, context_length=8, layers=1, heads=2, width=16, hidden_width=32, dropout=0.3
    )
    losses = []
    for kind, at_once in ((GPT, CrampedLater.room), (CrampedLater, 2 * CrampedLater.room)):
        torch.manual_seed(3)
        model = kind(config)
        trainer = Trainer(model, Adam(model), Source(2 * CrampedLater.room), CPU, 1, at_once)
        losses.append([trainer.step().loss.item() for _ in range(3)])
    assert losses[0] == losses[1]


@pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'>:DeprecationWarning")
def test_a_model_that_cannot_be_compiled_runs_as_written(caplog: pytest.LogCaptureFixture) -> None:
    """The step is done again without compiling, with the same losses, and one warning says so."""
    losses = []
    for broken in (False, True):
        torch.manual_seed(3)
        model = tiny(dropout=0.1)
        if broken:
            model.compile(backend=cannot_compile)
        trainer = Trainer(model, Adam(model), Source(4), CPU)
        losses.append([trainer.step().loss.item() for _ in range(3)])
    assert losses[0] == losses[1]
    [warning] = [line for line in caplog.messages if "could not be compiled" in line]
    assert "no compiler for this card" in warning


def cannot_compile(_: torch.fx.GraphModule, __: list[torch.Tensor]) -> Any:
    raise RuntimeError("no compiler for this card")


class Impatient:
    """Wants no more after a number of looks; keeps what it was told."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.seen: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.seen.append((done, total))
        if len(self.seen) > self.after:
            raise Abandoned


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("looks", [0, 1, 3])
def test_an_abandoned_step_leaves_no_trace(looks: int, before: int) -> None:
    """Nothing is skipped: weights, gradients, position and dropout are those from before the step."""
    expected: list[float] = []
    again: list[float] = []
    for losses, impatient in ((expected, None), (again, Impatient(looks))):
        torch.manual_seed(5)
        model = tiny(dropout=0.2)
        model.init_weights(0)
        trainer = Trainer(model, Adam(model), Source(2), CPU, micro_batches=4)
        losses += [trainer.step().loss.item() for _ in range(before)]
        if impatient is not None:
            position = trainer.state_dict()["batches"]
            with pytest.raises(Abandoned):
                trainer.step(impatient)
            assert impatient.seen == [(done, 4) for done in range(looks + 1)]
            assert trainer.state_dict()["batches"] == position
            assert all(parameter.grad is None for parameter in model.parameters())
        losses += [trainer.step().loss.item() for _ in range(3)]
    assert again == expected


@pytest.fixture
def fp16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are in fp16, as on a card before Ampere; this CPU can do that, only slowly."""
    monkeypatch.setattr(device_module, "product_dtype", lambda _: torch.float16)


def losses_of_steps(count: int) -> list[float]:
    """Of a tiny model that begins the same each time."""
    torch.manual_seed(0)
    model = tiny()
    trainer = Trainer(model, Adam(model), Source(4, distinct=4), CPU)
    return [trainer.step().loss.item() for _ in range(count)]


def test_fp16_learns_as_fp32_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The losses differ by the rounding."""
    found = {}
    for dtype in (torch.float32, torch.float16):
        monkeypatch.setattr(device_module, "product_dtype", lambda _, dtype=dtype: dtype)
        found[dtype] = losses_of_steps(30)
    assert found[torch.float16] == pytest.approx(found[torch.float32], rel=0.02)
    assert found[torch.float16] != found[torch.float32]


class Loud(torch.nn.Module):
    """Its loss has gradients as large as ``factor``."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.linear, self.factor = torch.nn.Linear(8, 1, bias=False), factor

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        del targets
        return (self.linear(tokens / 300) * self.factor).float().mean()


@pytest.mark.usefixtures("fp16")
def test_faint_gradients_are_not_lost_in_fp16() -> None:
    """They are below the least number that fp16 has."""
    model = Loud(1e-9)
    Trainer(model, KeepGradients(), Source(8), CPU).step()
    tokens, _ = next(Source(8))
    assert model.linear.weight.grad is not None
    torch.testing.assert_close(
        model.linear.weight.grad, (tokens / 300 * 1e-9).mean(0, keepdim=True), rtol=0.05, atol=0
    )


@pytest.mark.usefixtures("fp16")
def test_gradients_beyond_fp16_are_no_step() -> None:
    """Nothing is learnt and no tokens count until the scale is low enough; a checkpoint has that scale."""
    model = Loud(30.0)
    optimizer = Adam(model)
    trainer = Trainer(model, optimizer, Source(1), CPU)
    first = model.linear.weight.detach().clone()
    assert trainer.step().tokens == 0
    assert torch.equal(model.linear.weight, first)
    tokens = [trainer.step().tokens for _ in range(8)]
    assert 0 in tokens
    assert tokens[-1] == Source.tokens_per_example
    assert optimizer.tokens == [each for each in tokens if each]
    assert not torch.equal(model.linear.weight, first)
    other = Loud(30.0)
    resumed = Trainer(other, Adam(other), Source(1), CPU)
    resumed.load_state_dict(trainer.state_dict())
    assert resumed.step().tokens > 0


class Beyond(GPT):
    """What it computes on the way is more than fp16 has."""

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        big = 300 + 0 * self.output_weight[:2, :2]
        return super().forward(inputs, targets) + 0 * (big @ big).float().square().sum()


def test_a_model_beyond_fp16_goes_on_in_fp32(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing that is not finite comes to its parameters, and it learns soon."""
    monkeypatch.setattr(device_module, "FP32_ONLY", only := set[torch.device]())
    monkeypatch.setattr(
        device_module, "product_dtype", lambda each: torch.float32 if each in only else torch.float16
    )
    model = Beyond(tiny().config)
    optimizer = Adam(model)
    trainer = Trainer(model, optimizer, Source(4), CPU)
    tokens = [trainer.step().tokens for _ in range(20)]
    assert tokens[:10] == [0] * 10
    assert tokens[-1] > 0
    assert all(bool(each.isfinite().all()) for each in model.parameters())
    assert "fp16 does not suffice" in caplog.text


def test_a_checkpoint_goes_from_fp16_to_fp32_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from card to card: the scale is there or it is not."""
    for dtypes in ((torch.float16, torch.float32), (torch.float32, torch.float16)):
        trainers = []
        for dtype in dtypes:
            monkeypatch.setattr(device_module, "product_dtype", lambda _, dtype=dtype: dtype)
            model = tiny()
            trainers.append(Trainer(model, Adam(model), Source(4), CPU))
        trainers[0].step()
        trainers[1].load_state_dict(trainers[0].state_dict())
        assert trainers[1].step().tokens > 0
