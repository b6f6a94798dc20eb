"""A voter that turns against the others where contributions are shared.

Real nodes, as in `test_turncoats`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.leftovers import nothing_new
from tests.support.saved_models import small_tokenizer
from tests.support.tiny import tiny_manifest
from tests.support.turncoats.cluster import ROUNDS_MAX, Betrayed
from tests.support.turncoats.sharing import (
    FOR_SOME,
    GARBLED,
    LATER_BALLOTS,
    NOTHING_HELD,
    OWN_LIST,
    TWO_LISTS,
    WITHHELD,
    WITHHELD_LIST,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.system
VALUES = 700_000  # three chunks


def betrayed(folder: Path, *names: str, newcomer: bool = False) -> Betrayed:
    """These honest ones, voters since the first round, and the hostile one."""
    tokenizer = small_tokenizer()
    times = {"matchmaking_seconds": 5, "chunk_seconds": 2, "allreduce_seconds": 16}
    manifest = tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size, rounds=times)
    return Betrayed(folder, manifest, [torch.randn(VALUES // 10, 10)], names, newcomer=newcomer)


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Betrayed]:
    """Three honest ones and a hostile voter."""
    with nothing_new(), betrayed(tmp_path_factory.mktemp("swarm"), "ada", "bea", "cleo") as swarm:
        yield swarm


@pytest.fixture(autouse=True)
def well_behaved(swarm: Betrayed) -> Iterator[None]:
    """What it does in one test it does no longer in the next."""
    yield
    swarm.attack("")
    swarm.pull = None


@pytest.mark.parametrize("how", [GARBLED, FOR_SOME])
def test_who_gives_its_contribution_to_some(swarm: Betrayed, how: str) -> None:
    """The others get none of it, or garbled: whoever has it passes it on, or it is left out; none is lost."""
    swarm.attack(how)
    battle = swarm.battle()
    assert (battle.failures, battle.with_all) == (0, True), battle.attempts


def test_who_gives_its_contribution_to_nobody(swarm: Betrayed) -> None:
    """It is left out of the round, which ends with the others'."""
    swarm.attack(WITHHELD)
    battle = swarm.battle()
    assert (battle.failures, battle.with_all) == (0, True), battle.attempts
    assert swarm.turncoat.peer_id not in battle.mates


@pytest.mark.parametrize("how", [NOTHING_HELD, LATER_BALLOTS])
def test_who_lies_in_its_reports(swarm: Betrayed, how: str) -> None:
    """The others decide in spite of it: no attempt is lost."""
    swarm.attack(how)
    for _ in range(3):
        battle = swarm.battle()
        assert (battle.failures, battle.with_all) == (0, True), battle.attempts


@pytest.mark.parametrize("how", [OWN_LIST, WITHHELD_LIST])
def test_who_proposes_a_list_that_does_harm(swarm: Betrayed, how: str) -> None:
    """Of its own contribution alone, or with what it gives to nobody: the next one coordinates in the same
    attempt, and nobody's contribution is lost."""
    swarm.attack(how)
    for _ in range(ROUNDS_MAX):
        battle = swarm.battle()
        assert (battle.failures, battle.with_all) == (0, True), battle.attempts
        if swarm.has_attacked:
            return
    raise AssertionError("it was never its turn")


def test_who_contributes_too_much(swarm: Betrayed) -> None:
    """Forty times the norm the other way, for four times the tokens: the model goes where the honest pull."""
    before = swarm.honest[0].anchor.clone()
    swarm.pull = torch.randn_like(before) * 1e-3
    battle = swarm.battle()
    assert (battle.failures, battle.with_all) == (0, True), battle.attempts
    assert swarm.turncoat.peer_id in battle.mates
    step, pull = before - swarm.honest[0].anchor, swarm.pull
    assert float(step @ pull / (step.norm() * pull.norm())) > 0.5
    assert float(step.norm()) < 2 * float(pull.norm())


@pytest.mark.usefixtures("nothing_left")
def test_who_accepts_two_lists(tmp_path: Path) -> None:
    """Where it coordinates three, each of the others computes another state: that attempt is lost, they
    compare what it has signed, and leave it out for good."""
    with betrayed(tmp_path, "ada", "bea") as swarm:
        swarm.attack(TWO_LISTS)
        for _ in range(ROUNDS_MAX):
            battle = swarm.battle()
            assert battle.failures <= 1, battle.attempts
            if any(swarm.exposed_by):
                break
        else:
            raise AssertionError("it was never its turn")
        wait_until(lambda: all(swarm.exposed_by), "both have the proof")
        swarm.attack("")
        battle = swarm.battle()
        assert (battle.failures, battle.with_all) == (0, True), battle.attempts
        assert swarm.turncoat.peer_id not in battle.mates


@pytest.mark.usefixtures("nothing_left")
def test_newcomers_that_lie(tmp_path: Path) -> None:
    """Somebody whom nobody knows does the same, each time with a fresh key: no attempt is lost."""
    with betrayed(tmp_path, "ada", "bea", "cleo", newcomer=True) as swarm:
        for how in (LATER_BALLOTS, NOTHING_HELD, WITHHELD, GARBLED):
            swarm.attack(how)
            battle = swarm.battle()
            assert (battle.failures, battle.with_all) == (0, True), (how, battle.attempts)
            swarm.bring_another(f"mallory, {how}")
