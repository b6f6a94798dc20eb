"""How long rounds hold the trainer up, on a clock that only the test moves."""

import pytest
import torch

from dupt_swarm.optimizer.costs import ROUNDS, RoundCosts


class Trainer:
    """Does one thing after another, each for so many seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("dupt_swarm.optimizer.costs.time.monotonic", lambda: self.now)
        self.costs = RoundCosts(torch.device("cpu"))

    def train(self, seconds: float) -> None:
        self.now += seconds
        self.costs.train()

    def wait(self, seconds: float) -> None:
        with self.costs.waiting():
            self.now += seconds

    def work(self, seconds: float) -> None:
        with self.costs.holding_up():
            self.now += seconds

    @property
    def known(self) -> dict[str, float | None]:
        return self.costs.update().given


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    return Trainer(monkeypatch)


def test_waiting_and_work_for_a_round_are_no_training(trainer: Trainer) -> None:
    """Utilization is what is left; the seconds waited are told by themselves."""
    trainer.train(99.0)
    assert trainer.known == {"utilization": None, "round_waiting_seconds": None, "waiting_seconds": 0.0}
    trainer.train(6.0)
    trainer.work(1.0)
    trainer.wait(3.0)
    assert trainer.known["waiting_seconds"] == 3.0, "at once; the rest when the round has ended"
    trainer.costs.end_round()
    assert trainer.known == {"utilization": 0.6, "round_waiting_seconds": 3.0, "waiting_seconds": 3.0}
    trainer.train(10.0)
    trainer.costs.end_round()
    assert trainer.known == {"utilization": 0.8, "round_waiting_seconds": 0.0, "waiting_seconds": 3.0}


def test_only_the_last_rounds_count(trainer: Trainer) -> None:
    """One that took for ever is forgotten after so many better ones, but for the seconds waited in all."""
    trainer.train(0.0)
    trainer.wait(1000.0)
    trainer.costs.end_round()
    for _ in range(ROUNDS):
        assert trainer.known["utilization"] < 0.1  # type: ignore[operator]
        trainer.train(10.0)
        trainer.costs.end_round()
    assert trainer.known == {"utilization": 1.0, "round_waiting_seconds": 0.0, "waiting_seconds": 1000.0}


def test_progress_that_is_given_up_was_no_training(trainer: Trainer) -> None:
    """All the time since the last round is lost, and what follows counts again."""
    trainer.train(1.0)
    trainer.train(5.0)
    trainer.work(1.0)
    trainer.costs.give_up()
    trainer.train(6.0)
    trainer.costs.end_round()
    assert trainer.known["utilization"] == 0.5


def test_a_pause_is_neither(trainer: Trainer) -> None:
    """Whatever happens in it; after it, rounds are measured anew."""
    trainer.train(1.0)
    trainer.wait(1.0)
    trainer.costs.end_round()
    trainer.costs.pause()
    trainer.wait(100.0)
    trainer.costs.end_round()
    trainer.costs.give_up()
    assert trainer.known == {"utilization": None, "round_waiting_seconds": None, "waiting_seconds": 1.0}
    trainer.train(50.0)
    trainer.train(3.0)
    trainer.wait(1.0)
    trainer.costs.end_round()
    assert trainer.known == {"utilization": 0.75, "round_waiting_seconds": 1.0, "waiting_seconds": 2.0}


class Late:
    """A span that the device is through with when the test says so."""

    seconds: float | None = None

    def end(self) -> None:
        """Nothing is known yet."""


def test_work_that_a_gpu_does_later_counts_then(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round's end does not wait for it: its seconds are the next round's."""
    span = Late()
    monkeypatch.setattr("dupt_swarm.optimizer.costs.begin_span", lambda _: span)
    trainer.train(1.0)
    trainer.work(0.0)
    trainer.train(10.0)
    trainer.costs.end_round()
    assert trainer.known["utilization"] == 1.0
    span.seconds = 2.0
    trainer.train(10.0)
    trainer.costs.end_round()
    assert trainer.known["utilization"] == 0.9
    trainer.train(20.0)
    trainer.costs.end_round()
    assert trainer.known["utilization"] == 0.95, "and only once"
