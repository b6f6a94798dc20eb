"""Steps that two processes compute together, by gloo: they are those of one process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import torch

from dupt_swarm.errors import DeviceError
from dupt_swarm.learning.batches import Batches
from dupt_swarm.learning.data_parallel.workers import Workers
from dupt_swarm.learning.interruptible import Abandoned
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.learning.token_files import Split
from dupt_swarm.learning.trainer import Trainer
from tests.learning.test_trainer import Adam
from tests.support.tiny import tiny_manifest

CPU = torch.device("cpu")
MANIFEST = tiny_manifest()
TOKENS = torch.randint(300, (4000,), generator=torch.Generator().manual_seed(0)).numpy().astype("uint16")


def trainer_with(others: int, at_once: int = 8, micro_batches: int = 2) -> Trainer:
    """One of the same model and batches."""
    model = build_model(MANIFEST)
    batches = Batches(Split([TOKENS]), 16, 5, 0, "peer")
    workers = Workers(model, MANIFEST, [CPU] * others, compiled=False)
    adam = Adam(model)
    for group in adam.inner.param_groups:
        group["lr"] = 1e-3
    return Trainer(model, adam, batches, CPU, micro_batches, at_once, workers)


@pytest.fixture(autouse=True)
def fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers take the trainer's precision; bf16 would round each part of a batch on its own."""
    monkeypatch.setattr("dupt_swarm.learning.trainer.product_dtype", lambda _: torch.float32)
    monkeypatch.setattr("dupt_swarm.learning.device.product_dtype", lambda _: torch.float32)


@pytest.fixture
def two() -> Iterator[Trainer]:
    trainer = trainer_with(1)
    yield trainer
    trainer.close()


def parameters(trainer: Trainer) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


def pid_of_worker(trainer: Trainer) -> int:
    [worker] = trainer._workers._all
    return worker._process.pid


@pytest.mark.parametrize("at_once", [8, 1])
def test_two_processes_are_one(at_once: int) -> None:
    """Losses and parameters of six steps are those of one process; batches of five are cut in two."""
    one, both = trainer_with(0, at_once), trainer_with(1, at_once)
    try:
        for _ in range(6):
            ours, theirs = both.step(), one.step()
            assert ours.tokens == theirs.tokens
            torch.testing.assert_close(ours.loss, theirs.loss, rtol=0, atol=1e-5)
        torch.testing.assert_close(parameters(both), parameters(one), rtol=0, atol=1e-5)
    finally:
        both.close()


def test_whatever_else_changes_the_parameters_reaches_them(two: Trainer) -> None:
    """As a round does, or a checkpoint that is loaded."""
    one = trainer_with(0)
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
    one = trainer_with(0)

    def give_up(*_: int) -> None:
        raise Abandoned

    with pytest.raises(Abandoned):
        two.step(give_up)
    for _ in range(2):
        torch.testing.assert_close(two.step().loss, one.step().loss, rtol=0, atol=1e-5)
    torch.testing.assert_close(parameters(two), parameters(one), rtol=0, atol=1e-5)


def test_a_pause_leaves_the_devices_to_others(two: Trainer) -> None:
    """And training goes on after it."""
    one = trainer_with(0)
    two.step(), one.step()
    two.rest()
    torch.testing.assert_close(two.step().loss, one.step().loss, rtol=0, atol=1e-5)


def test_a_worker_that_dies_is_an_error(two: Trainer) -> None:
    """It is named with a remedy, and nothing has changed."""
    two.step()
    before = parameters(two)
    os.kill(pid_of_worker(two), signal.SIGKILL)
    with pytest.raises(
        DeviceError, match="cpu: the process that computed there has ended; start the oracle again"
    ):
        two.step()
    assert torch.equal(parameters(two), before)


def test_a_worker_ends_with_its_trainer(two: Trainer) -> None:
    pid = pid_of_worker(two)
    two.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_device_that_is_not_there_is_an_error() -> None:
    model = build_model(MANIFEST)
    with pytest.raises(DeviceError, match=r"cuda:7: no device `cuda:7`.*leave this device out"):
        Workers(model, MANIFEST, [torch.device("cuda:7")])
