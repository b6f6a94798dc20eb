"""Steps that two processes compute together, each on a part: they are those of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psutil
import pytest
import torch

from dupt_swarm.errors import DeviceError
from dupt_swarm.learning.batches import Batches
from dupt_swarm.learning.data_parallel.orders import Answer, Done, Failed
from dupt_swarm.learning.data_parallel.workers import Workers, _Worker
from dupt_swarm.learning.interruptible import Abandoned
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.token_files import Split
from dupt_swarm.learning.trainer import Trainer
from tests.learning.test_trainer import Adam
from tests.support.encoders import encoder_manifest, encoder_tokenizer
from tests.support.tiny import tiny_manifest

CPU = torch.device("cpu")
MANIFEST = tiny_manifest()
TOKENS = torch.randint(300, (4000,), generator=torch.Generator().manual_seed(0)).numpy().astype("uint16")


def trainer_of(
    model: torch.nn.Module, workers: Workers | None = None, at_once: int = 8, batch: int = 5
) -> Trainer:
    """From the first weights on, on the same batches as any other."""
    with torch.no_grad():
        for parameter, first in zip(model.parameters(), build_model(MANIFEST).parameters(), strict=True):
            parameter.copy_(first)
    adam = Adam(model)
    for group in adam.inner.param_groups:
        group["lr"] = 1e-3
    return Trainer(model, adam, Batches([Split([TOKENS])], 16, batch, 0, "peer"), CPU, 2, at_once, workers)


def alone(at_once: int = 8, batch: int = 5) -> Trainer:
    return trainer_of(build_model(MANIFEST), None, at_once, batch)


@pytest.fixture(scope="module")
def helped() -> Iterator[tuple[torch.nn.Module, Workers]]:
    """A model, and a worker for it, which computes activations again."""
    model = build_model(MANIFEST)
    workers = Workers(model, MANIFEST, [CPU, CPU], compiled=False, checkpointing=True)
    yield model, workers
    workers.close()


@pytest.fixture
def two(helped: tuple[torch.nn.Module, Workers]) -> Trainer:
    return trainer_of(*helped)


@pytest.fixture(autouse=True)
def fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers take the trainer's precision; bf16 would round each part of a batch on its own."""
    monkeypatch.setattr("dupt_swarm.learning.trainer.product_dtype", lambda _: torch.float32)
    monkeypatch.setattr("dupt_swarm.learning.device.product_dtype", lambda _: torch.float32)


def parameters(trainer: Trainer) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


def process_of_worker(trainer: Trainer) -> psutil.Process:
    [worker] = trainer._workers._all
    return psutil.Process(worker._process.pid)


@pytest.mark.parametrize(("at_once", "batch"), [(8, 5), (1, 5), (8, 1)])
def test_two_processes_are_one(helped: tuple[torch.nn.Module, Workers], at_once: int, batch: int) -> None:
    """Losses and parameters of six steps are those of one process; batches of five are cut in two.

    Of one example a worker gets nothing.
    """
    one, both = alone(at_once, batch), trainer_of(*helped, at_once, batch)
    for _ in range(6):
        ours, theirs = both.step(), one.step()
        assert ours.tokens == theirs.tokens
        torch.testing.assert_close(ours.loss, theirs.loss, rtol=0, atol=1e-5)
    torch.testing.assert_close(parameters(both), parameters(one), rtol=0, atol=1e-5)


def test_whatever_else_changes_the_parameters_reaches_them(two: Trainer) -> None:
    """As a round does, or a checkpoint that is loaded."""
    one = alone()
    for trainer in (one, two):
        trainer.step()
        with torch.no_grad():
            for parameter in trainer.model.parameters():
                parameter.mul_(0.5)
        trainer.step()
    torch.testing.assert_close(parameters(two), parameters(one), rtol=0, atol=1e-5)


def test_a_resume_goes_on_alike(two: Trainer) -> None:
    """From the trainer's state alone; workers keep nothing."""
    two.step()
    saved, values = two.state_dict(), parameters(two)
    expected = two.step().loss
    torch.nn.utils.vector_to_parameters(values, two.model.parameters())
    two.load_state_dict(saved)
    torch.testing.assert_close(two.step().loss, expected, rtol=0, atol=1e-6)


def test_an_abandoned_step_is_dropped_by_all(two: Trainer) -> None:
    """The next one does the same again."""
    one = alone()

    def give_up(*_: int) -> None:
        raise Abandoned

    with pytest.raises(Abandoned):
        two.step(give_up)
    for _ in range(2):
        torch.testing.assert_close(two.step().loss, one.step().loss, rtol=0, atol=1e-5)
    torch.testing.assert_close(parameters(two), parameters(one), rtol=0, atol=1e-5)


def test_a_pause_leaves_the_devices_to_others(two: Trainer) -> None:
    """And training goes on after it."""
    one = alone()
    two.step(), one.step()
    two.rest()
    torch.testing.assert_close(two.step().loss, one.step().loss, rtol=0, atol=1e-5)


def test_too_little_memory_on_one_device_makes_all_compute_with_fewer(
    two: Trainer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What a worker says then stands in for a card that is full. The step is the same."""
    one, answer = alone(), _Worker.answer
    failed: list[Answer] = []

    def fail_once(worker: _Worker, look: Callable[[], object]) -> Answer:
        found = answer(worker, look)
        if isinstance(found, Done) and not failed:
            failed.append(found)
            return Failed("CUDA out of memory", of_memory=True)
        return found

    monkeypatch.setattr(_Worker, "answer", fail_once)
    torch.testing.assert_close(two.step().loss, one.step().loss, rtol=0, atol=1e-5)
    assert "training on 1 sequences at once" in caplog.text
    torch.testing.assert_close(parameters(two), parameters(one), rtol=0, atol=1e-5)


def test_a_worker_that_stands_still_holds_up_nobody_who_stops(two: Trainer) -> None:
    """The trainer looks around while it waits; afterwards the step is done again."""
    one, process = alone(), process_of_worker(two)
    process.suspend()

    def give_up(done: int, total: int) -> None:
        if done == total:
            raise Abandoned

    with pytest.raises(Abandoned):
        two.step(give_up)
    process.resume()
    torch.testing.assert_close(two.step().loss, one.step().loss, rtol=0, atol=1e-5)


def test_weights_that_nothing_uses_have_no_gradient_either() -> None:
    """An encoder without pairs has a pooler that its loss does not use: no optimizer may let it decay."""
    tokenizer = encoder_tokenizer()
    manifest = encoder_manifest(tokenizer, nsp=False)
    model = build_model(manifest)
    tokens = torch.randint(4, tokenizer.vocabulary_size, (3, 16))
    places = torch.tensor([[1, 5]] * 3)
    batch = (tokens, places, tokens.gather(1, places))
    model(*batch).backward()
    used = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad()
    workers = Workers(model, manifest, [CPU, CPU], compiled=False)
    try:
        own, others = workers.deal(batch)
        with workers.computing([[others]], 3, 8, torch.float32, 1.0, lambda: None) as gather:
            loss = model(*own)
            loss.backward()
            gather(loss.detach())
    finally:
        workers.close()
    assert {name for name, parameter in model.named_parameters() if parameter.grad is not None} == used
    assert "h.0.ln_1.weight" in used and "pooler.weight" not in used


def test_a_workers_gradients_are_scaled_as_the_trainers(helped: tuple[torch.nn.Module, Workers]) -> None:
    """As fp16 needs it."""
    model, workers = helped
    rows = torch.from_numpy(TOKENS[: 4 * 17].astype("int64")).view(4, 17)
    own, others = workers.deal((rows[:, :-1].contiguous(), rows[:, 1:].contiguous()))
    found = []
    for scale in (1.0, 4.0):
        model.zero_grad()
        with workers.computing([[others]], 4, 8, torch.float32, scale, lambda: None) as gather:
            (model(*own) * scale / 2).backward()
            gather(torch.zeros(()))
        found.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    model.zero_grad()
    torch.testing.assert_close(found[1], 4 * found[0])


def test_a_device_that_is_not_there_is_an_error() -> None:
    model = build_model(MANIFEST)
    with pytest.raises(DeviceError, match=r"cuda:7: no device `cuda:7`.*leave this device out"):
        Workers(model, MANIFEST, [CPU, torch.device("cuda:7")])


def test_a_worker_that_dies_is_an_error(helped: tuple[torch.nn.Module, Workers]) -> None:
    """It is named with a remedy, and nothing has changed: the trainer may do that step by itself.

    This test is the last: it leaves no worker.
    """
    one, trainer = alone(), trainer_of(*helped)
    for each in (one, trainer):
        each.step()
    before = parameters(trainer)
    process = process_of_worker(trainer)
    process.kill()
    with pytest.raises(DeviceError, match=r"cpu: the process that computed there has ended \(exit code -9\)"):
        trainer.step()
    assert torch.equal(parameters(trainer), before)
    trainer.close()
    assert not process.is_running()
    torch.testing.assert_close(trainer.step().loss, one.step().loss, rtol=0, atol=1e-5)
