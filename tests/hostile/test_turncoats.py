"""Four honest oracles, and a fifth that has become a voter as they have and then turns against them.

They are real nodes, and the hostile one runs the real code with one thing changed. What it does to the
others is shown by what these do: each ends its rounds as an oracle would, trying again where one failed.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.leftovers import nothing_new
from tests.support.saved_models import small_tokenizer
from tests.support.tiny import tiny_manifest
from tests.support.turncoats.cluster import Betrayed
from tests.support.turncoats.coordinating import EACH_WITH_ME, ERRORS, NOT_YET, PAIRS, WITHOUT_ONE
from tests.support.turncoats.voting import BOTH_VOTES, NO_VOTE, TWO_VOTES, VOTE_FOR_NOTHING
from tests.support.waiting import wait_until

# How long a group waits for its last members.
PATIENCE = 10.0
VALUES = 700_000  # three chunks


def betrayed(folder: Path) -> Betrayed:
    """The five, after the round that made voters of them."""
    tokenizer = small_tokenizer()
    times = {"matchmaking_seconds": PATIENCE, "chunk_seconds": 5, "allreduce_seconds": 12}
    manifest = tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size, rounds=times)
    return Betrayed(folder, manifest, [torch.randn(VALUES // 10, 10)])


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Betrayed]:
    """Where it does one thing after another."""
    with nothing_new(), betrayed(tmp_path_factory.mktemp("swarm")) as swarm:
        yield swarm


@pytest.fixture(autouse=True)
def well_behaved(swarm: Betrayed) -> Iterator[None]:
    """What it does in one test it does no longer in the next."""
    yield
    swarm.attack("")


@pytest.mark.parametrize("how", [NO_VOTE, VOTE_FOR_NOTHING])
def test_a_voter_whose_vote_is_missing(swarm: Betrayed, how: str) -> None:
    """It never votes, or for a state that nobody has computed: the others are enough, at no cost."""
    swarm.attack(how)
    for _ in range(2):
        battle = swarm.battle()
        assert (battle.failures, battle.with_all) == (0, True), battle.attempts
        assert battle.seconds < PATIENCE


@pytest.mark.system
def test_a_voter_that_comes_no_longer(swarm: Betrayed) -> None:
    """It says that it is at work, and never comes: each round waits for it as long as it may, and ends."""
    for _ in range(2):
        battle = swarm.battle(absent=True)
        assert (battle.failures, battle.with_all) == (0, True), battle.attempts
        assert battle.seconds >= PATIENCE


@pytest.mark.system
@pytest.mark.parametrize("how", [PAIRS, EACH_WITH_ME])
def test_a_coordinator_that_splits_the_group(swarm: Betrayed, how: str) -> None:
    """It signs another roll for each member: one attempt is lost and the next one, which another coordinates,
    ends the round; who took somebody for gone that was on no roll of its own waits for it in the next."""
    swarm.until_its_turn()
    swarm.attack(how)
    battle = swarm.battle()
    assert battle.failures == 1, battle.attempts
    swarm.attack("")
    battle = swarm.battle()
    assert (battle.failures, battle.with_all) == (0, True), battle.attempts


@pytest.mark.system
def test_a_coordinator_that_refuses(swarm: Betrayed) -> None:
    """It answers with errors: the next one coordinates, in the same attempt."""
    swarm.until_its_turn()
    swarm.attack(ERRORS)
    battle = swarm.battle()
    assert (battle.failures, battle.with_all) == (0, True), battle.attempts


@pytest.mark.system
def test_a_coordinator_that_stalls(swarm: Betrayed) -> None:
    """It says "not yet" for ever: the next one coordinates, in the same attempt."""
    swarm.until_its_turn()
    swarm.attack(NOT_YET)
    battle = swarm.battle()
    assert (battle.failures, battle.with_all) == (0, True), battle.attempts


@pytest.mark.system
def test_a_coordinator_that_leaves_one_out(swarm: Betrayed) -> None:
    """One honest member is on no roll: the round ends all the same, and it is in the next one."""
    swarm.until_its_turn()
    swarm.attack(WITHOUT_ONE)
    assert swarm.battle().failures <= 1
    swarm.attack("")
    battle = swarm.battle()
    assert (battle.failures, battle.with_all) == (0, True), battle.attempts


def test_who_has_seen_both_votes_goes_on_without_it(swarm: Betrayed) -> None:
    """Nobody counts it or waits for it from then on, although it comes to each round and behaves."""
    swarm.attack(BOTH_VOTES)
    assert swarm.battle().failures == 0
    wait_until(lambda: all(swarm.exposed_by), "all have seen both")
    swarm.attack("")
    for _ in range(3):
        battle = swarm.battle()
        assert (battle.failures, battle.with_all) == (0, True), battle.attempts
        assert swarm.turncoat.peer_id not in battle.mates
        assert battle.seconds < PATIENCE


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
def test_a_voter_that_tells_each_collector_another_vote(tmp_path: Path) -> None:
    """There is one state, and no round is lost, whoever of the others has seen both votes by then."""
    with betrayed(tmp_path) as swarm:
        swarm.attack(TWO_VOTES)
        for _ in range(6):
            assert swarm.battle().failures == 0
