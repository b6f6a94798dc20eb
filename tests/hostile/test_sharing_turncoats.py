"""A voter that turns against the others where contributions are shared.

Real nodes, as in `test_turncoats`.
"""

from collections.abc import Iterator

import pytest
import torch

from tests.support.leftovers import nothing_new
from tests.support.saved_models import small_tokenizer
from tests.support.tiny import tiny_manifest
from tests.support.turncoats.cluster import ROUNDS_MAX, Betrayed
from tests.support.turncoats.sharing import FOR_SOME, GARBLED, OWN_LIST, TWO_LISTS, WITHHELD

pytestmark = pytest.mark.system
VALUES = 700_000  # three chunks
ROUNDS = 12  # it coordinates one of four


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Betrayed]:
    """Three honest ones and the hostile one, after the round that made voters of them."""
    tokenizer = small_tokenizer()
    times = {"matchmaking_seconds": 5, "chunk_seconds": 2, "allreduce_seconds": 16}
    manifest = tiny_manifest(
        tokenizer.sha256, tokenizer.vocabulary_size, rounds={"exchange": "share", **times}
    )
    names = ("ada", "bea", "cleo")
    folder = tmp_path_factory.mktemp("swarm")
    with nothing_new(), Betrayed(folder, manifest, [torch.randn(VALUES // 10, 10)], names) as swarm:
        yield swarm


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


def test_who_signs_a_list_of_its_own_contribution(swarm: Betrayed) -> None:
    """Nobody takes it, and the next one coordinates: no attempt is lost, and nobody's contribution."""
    swarm.attack(OWN_LIST)
    for _ in range(ROUNDS):
        battle = swarm.battle()
        assert (battle.failures, battle.with_all) == (0, True), battle.attempts


def test_who_signs_another_list_for_some(swarm: Betrayed) -> None:
    """It coordinates the agreement: two states are computed, of which one at most has a quorum."""
    swarm.attack(TWO_LISTS)
    for _ in range(ROUNDS_MAX):
        battle = swarm.battle()
        assert battle.failures <= 1, battle.attempts
        if battle.failures:
            break
    else:
        raise AssertionError("it was never its turn")
    swarm.attack("")
    battle = swarm.battle()
    assert (battle.failures, battle.with_all) == (0, True), battle.attempts
