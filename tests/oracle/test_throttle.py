"""An oracle rests while its GPUs are too hot, or draw too much; the cards are made up."""

from __future__ import annotations

import sys
from typing import cast

import pytest
import torch

from dupt_swarm.errors import DeviceError
from dupt_swarm.learning.driver import Card, cards_of
from dupt_swarm.oracle.throttle import REST_SECONDS, Throttle
from tests.support.fake_nvml import FakeNVML

COMPUTE_SECONDS = 0.7


class Heated:
    """A card that gets warmer and draws 300 W while it computes, and 60 W at rest, and its clock."""

    def __init__(self) -> None:
        self.now = self.joules = 0.0
        self.degrees = 60.0

    def temperature(self) -> float | None:
        return self.degrees

    def energy(self) -> float | None:
        return self.joules

    def compute(self) -> None:
        self._pass(COMPUTE_SECONDS, watts=300, degrees=1.0)

    def rest(self) -> None:
        self._pass(REST_SECONDS, watts=60, degrees=-0.5)

    def _pass(self, seconds: float, watts: float, degrees: float) -> None:
        self.now += seconds
        self.joules += watts * seconds
        self.degrees += degrees


def throttle(*heated: Heated, temperature: float | None = None, power: float | None = None) -> Throttle:
    def rest() -> None:
        for one in heated:
            one.rest()

    cards = cast(list[Card], list(heated))
    return Throttle(cards, temperature, power, clock=lambda: heated[0].now, rest=rest)


def test_a_hot_card_cools_down_by_some_degrees() -> None:
    """It computes up to the limit, and again only three degrees below it."""
    card = Heated()
    limit = throttle(card, temperature=70)
    seen = []
    for _ in range(60):
        card.compute()
        rests = len(list(limit.look()))
        seen.append((card.degrees, rests))
    assert max(degrees for degrees, _ in seen) == 70
    assert {rests for _, rests in seen} == {0, 8}, "from 71 to 67"


@pytest.mark.parametrize("power", [250, 150])
def test_power_is_limited_in_the_mean(power: float) -> None:
    """However much it draws while it computes; it does not rest more than that takes."""
    card = Heated()
    limit = throttle(card, power=power)
    for _ in range(200):
        card.compute()
        for _ in limit.look():
            pass
    assert card.joules / card.now == pytest.approx(power, rel=0.03)


def test_an_idle_hour_is_not_saved_up() -> None:
    """Nor does a card that rests make room for another one."""
    idle, busy = Heated(), Heated()
    limit = throttle(idle, busy, power=150)
    for card in (idle, busy):
        card._pass(3600, watts=0, degrees=0)
    assert list(limit.look()) == []
    for _ in range(200):
        busy.compute()
        idle._pass(COMPUTE_SECONDS, watts=60, degrees=0)
        list(limit.look())
    assert busy.joules / (busy.now - 3600) == pytest.approx(150, rel=0.03)


def test_a_card_that_does_not_tell_for_a_moment() -> None:
    """What it has drawn since its driver was loaded is not taken for what it draws now."""
    card = Heated()
    card.joules = 5e8
    limit = throttle(card, power=250)
    for number in range(200):
        told, card.energy = card.energy, (lambda: None) if number % 20 == 19 else card.energy  # type: ignore[method-assign]
        card.compute()
        assert len(list(limit.look())) < 10
        card.energy = told  # type: ignore[method-assign]
    assert (card.joules - 5e8) / card.now == pytest.approx(250, rel=0.05)


def test_the_hottest_of_several_counts() -> None:
    cold, hot = Heated(), Heated()
    hot.degrees = 90
    limit = throttle(cold, hot, temperature=80)
    assert len(list(limit.look())) == 26
    assert hot.degrees == 77


def test_a_card_within_its_limits_never_rests() -> None:
    card = Heated()
    limit = throttle(card, temperature=200, power=400)
    for _ in range(100):
        card.compute()
        assert list(limit.look()) == []
    card.degrees = 300
    card.temperature = lambda: None  # type: ignore[method-assign]
    assert next(limit.look(), "none") == "none", "it does not tell for a moment"


def test_a_limit_that_nobody_can_tell_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, and on a card whose driver does not know its temperature; its energy it knows."""
    with pytest.raises(DeviceError, match="no driver tells how hot"):
        Throttle(cards_of([torch.device("cpu")]), 80, None)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNVML())
    card = Card("GPU-1")
    with pytest.raises(DeviceError, match="leave the limit out") as error:
        Throttle([card], 80, 200)
    assert error.value.settings == ("max_temperature",)
    assert list(Throttle([card], None, 200).look()) == []
    told = Heated()
    with pytest.raises(DeviceError, match="no driver tells how hot"):
        throttle(told, card, temperature=80)  # type: ignore[arg-type]
