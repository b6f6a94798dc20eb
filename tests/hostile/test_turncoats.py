"""Four honest oracles, and a fifth that has become a voter as they have and then turns against them.

They are real nodes, and the hostile one runs the real code with one thing changed. What it does to the
others is shown by what these do: each ends its rounds as an oracle would, trying again where one failed.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dupt_swarm.network.members.attendance import BROKEN, TOLERATED_OF_MATES
from dupt_swarm.replica.codec import PART_VALUES
from tests.support.leftovers import nothing_new
from tests.support.saved_models import small_tokenizer
from tests.support.tiny import reduced_tables, tiny_manifest
from tests.support.turncoats.cluster import Betrayed
from tests.support.turncoats.coordinating import EACH_WITH_ME, ERRORS, NOT_YET, PAIRS, WITHOUT_ONE
from tests.support.turncoats.reducing import (
    ANOTHER_AVERAGE,
    ANOTHER_RECEIPT,
    HUGE_AVERAGE,
    MOST_RECEIPTS,
    NO_AVERAGE,
    SILENCE,
    SLOW_AVERAGES,
    SLOW_PARTS,
    spared_of,
    victim_of,
)
from tests.support.turncoats.voting import BOTH_VOTES, NO_VOTE, TWO_VOTES, VOTE_FOR_NOTHING
from tests.support.waiting import wait_until

# How long a group waits for its last members.
PATIENCE = 10.0
VALUES = 1_400_000  # so many that each member reduces some
OUTVOTED = {"rejected", "no_quorum"}
ROUNDS = 12
LARGEST = 10.0  # of them, whatever honest rounds make of normal ones


def betrayed(
    folder: Path,
    values: int = VALUES,
    names: tuple[str, ...] = ("ada", "bea", "cleo", "dora"),
    chunk_seconds: float = 5.0,
) -> Betrayed:
    """The five, after the round that made voters of them."""
    tokenizer = small_tokenizer()
    times = {"matchmaking_seconds": PATIENCE, "chunk_seconds": chunk_seconds, "allreduce_seconds": 12}
    manifest = tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size, **reduced_tables(rounds=times))
    return Betrayed(folder, manifest, [torch.randn(values // 10, 10)], names)


def betrayed_three(folder: Path) -> Betrayed:
    """Shares have so many parts that each just in time would take all the time that there is."""
    return betrayed(folder, 4 * 8 * PART_VALUES, ("ada", "bea", "cleo"), chunk_seconds=2.0)


def victim_in(swarm: Betrayed) -> str:
    """Whom it deceives, if one."""
    return victim_of(swarm.turncoat.peer_id, [each.peer_id for each in swarm.oracles])


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
def test_a_voter_that_sends_each_part_just_in_time(tmp_path: Path) -> None:
    """No round fails: the others go on without it when it has cost half of their time, and wait for
    it no longer once it has done so eight times."""
    with betrayed_three(tmp_path) as swarm:
        swarm.attack(SLOW_PARTS)
        for number in range(TOLERATED_OF_MATES + 2):
            battle = swarm.battle()
            assert (battle.failures, battle.with_all) == (0, True), battle.attempts
            came = swarm.turncoat.peer_id in battle.mates
            assert came == (number < TOLERATED_OF_MATES), number


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("how", "reason"), [(SLOW_AVERAGES, "timeout"), (SILENCE, "peer_lost")])
def test_a_reducer_that_returns_nothing_in_time(tmp_path: Path, how: str, reason: str) -> None:
    """It may be slow, or dying, as far as the others know: twice, and they go on without it."""
    with betrayed_three(tmp_path) as swarm:
        swarm.attack(how)
        battles = [swarm.battle() for _ in range(3)]
        assert sum(battle.failures for battle in battles) == TOLERATED_OF_MATES // BROKEN
        assert {why for peer in battles[0].attempts for why in battles[0].failed(peer)} == {reason}
        assert [battle.with_all for battle in battles] == [True] * 3
        assert battles[-1].failures == 0
        assert swarm.turncoat.peer_id not in battles[-1].mates


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("how", "reasons"), [(HUGE_AVERAGE, OUTVOTED), (NO_AVERAGE, {"peer_lost"})])
def test_a_reducer_that_returns_what_cannot_be(tmp_path: Path, how: str, reasons: set[str]) -> None:
    """1e37 in its share, to all alike, is what no mean can be, nor NaN: they go on without it."""
    with betrayed(tmp_path) as swarm:
        swarm.attack(how)
        battles = [swarm.battle() for _ in range(3)]
        assert [(battle.failures, battle.with_all) for battle in battles] == [(1, True), (0, True), (0, True)]
        assert {battles[0].failed(oracle.peer_id)[0] for oracle in swarm.honest} <= reasons
        assert all("implausible" in oracle.traffic.refused for oracle in swarm.honest)
        assert swarm.turncoat.peer_id not in {mate for battle in battles for mate in battle.mates}
        assert float(swarm.honest[0].anchor.abs().max()) < LARGEST


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
def test_a_reducer_whose_receipt_is_of_something_else(tmp_path: Path) -> None:
    """As if it had returned nothing to whom it sends that: one attempt of one member, and it is named."""
    with betrayed(tmp_path) as swarm:
        swarm.attack(ANOTHER_RECEIPT)
        battle, victim = swarm.battle(), victim_in(swarm)
        assert (battle.failures, battle.failed(victim)) == (1, ["peer_lost"])
        [deceived] = [each for each in swarm.honest if each.peer_id == victim]
        log = deceived.folder.log.read_text()
        assert f"{swarm.turncoat.peer_id} did not return its share: ValueError('a receipt of other" in log
        assert "implausible" in deceived.traffic.refused
        swarm.attack("")
        for _ in range(ROUNDS):  # in some of them it coordinates, although one of them leaves it out
            battle = swarm.battle()
            assert (battle.failures, battle.with_all) == (0, True), battle.attempts


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
def test_a_reducer_that_deceives_all_but_one(tmp_path: Path) -> None:
    """The deceived abstain, so that the other one waits for nobody, and is there when they try again."""
    with betrayed(tmp_path) as swarm:
        spared = spared_of(swarm.turncoat.peer_id, [each.peer_id for each in swarm.oracles])
        swarm.until_turn_of(victim_in(swarm), 1)
        swarm.attack(MOST_RECEIPTS)
        battle = swarm.battle(persistent=True)
        assert (battle.failures, battle.with_all) == (1, True), battle.attempts
        assert battle.failed(spared) == ["no_quorum"]
        assert swarm.turncoat.peer_id not in battle.mates


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
def test_a_voter_that_tells_each_collector_another_vote(tmp_path: Path) -> None:
    """There is one state, and no round is lost, whoever of the others has seen both votes by then."""
    with betrayed(tmp_path) as swarm:
        swarm.attack(TWO_VOTES)
        for _ in range(6):
            assert swarm.battle().failures == 0


@pytest.mark.usefixtures("nothing_left")
def test_a_reducer_that_tells_one_something_else(tmp_path: Path) -> None:
    """Whoever was told it loses one attempt, compares receipts with those who have outvoted it, and has
    proof: all leave the reducer out from then on, although it behaves."""
    with betrayed(tmp_path) as swarm:
        assert swarm.battle().failures == 0
        assert not any(swarm.exposed_by)
        swarm.attack(ANOTHER_AVERAGE)
        battle = swarm.battle()
        assert (battle.failures, battle.failed(victim_in(swarm))) == (1, ["no_quorum"])
        wait_until(lambda: all(swarm.exposed_by), "all have both receipts")
        swarm.attack("")
        for _ in range(2):
            battle = swarm.battle()
            assert (battle.failures, battle.with_all) == (0, True), battle.attempts
            assert swarm.turncoat.peer_id not in battle.mates
            assert battle.seconds < PATIENCE
