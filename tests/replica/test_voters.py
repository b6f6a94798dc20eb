"""Who votes, as it follows from the rounds."""

import pytest

from dupt_swarm.replica.voters import MEMORY_ROUNDS, PROBATION_ROUNDS, STANDINGS_MAX, Voters

FOUNDERS = ["a", "b", "c"]


def after(voters: Voters, *rolls: list[str], first: int = 1) -> Voters:
    """The table after rounds with these members."""
    for round, members in enumerate(rolls, first):
        voters = voters.after(round, members)
    return voters


def test_those_of_the_first_round_vote() -> None:
    """Somebody has to begin."""
    assert set(Voters()) == set()
    assert set(after(Voters(), FOUNDERS)) == set(FOUNDERS)


def test_a_newcomer_is_on_probation() -> None:
    """It votes after so many rounds, and not before."""
    rounds = [[*FOUNDERS, "new"]] * PROBATION_ROUNDS
    assert "new" not in after(Voters(), FOUNDERS, *rounds[1:])
    assert "new" in after(Voters(), FOUNDERS, *rounds)


def test_newcomers_become_voters_one_by_one() -> None:
    """However many come at once: the others have as many rounds to notice."""
    crowd = [f"new{number}" for number in range(9)]
    voters = after(Voters(), FOUNDERS, *[[*FOUNDERS, *crowd]] * PROBATION_ROUNDS)
    for count in range(1, 10):
        assert len(voters) == len(FOUNDERS) + count
        voters = voters.after(PROBATION_ROUNDS + 1 + count, [*FOUNDERS, *crowd])


def test_who_stays_away_votes_no_longer() -> None:
    """After so many rounds without it; then it is a newcomer again."""
    voters = after(Voters(), FOUNDERS, *[["a", "b"]] * (MEMORY_ROUNDS - 1))
    assert set(voters) == set(FOUNDERS)
    voters = voters.after(MEMORY_ROUNDS + 1, ["a", "b"])
    assert set(voters) == {"a", "b"}
    assert "c" not in voters.after(MEMORY_ROUNDS + 2, FOUNDERS)


def test_a_part_of_a_swarm_makes_no_voters() -> None:
    """Without more than half of the voters nobody becomes one, until the others are forgotten."""
    voters = after(Voters(), [*FOUNDERS, "d"], *[["a", "b", "new"]] * 20)
    assert set(voters) == {*FOUNDERS, "d"}
    rolls = [["a", "new"]] * (MEMORY_ROUNDS + PROBATION_ROUNDS)
    assert set(after(Voters(), ["a", "b"], *rolls)) == {"a", "new"}


def test_the_table_is_bounded() -> None:
    """Of all that come, the voters stay, and of the others those who came last."""
    voters = after(Voters(), FOUNDERS)
    for round in range(2, 8):
        voters = voters.after(round, [*FOUNDERS, *(f"new{round}x{number}" for number in range(200))])
    assert len(voters.standings) == STANDINGS_MAX
    assert set(FOUNDERS) <= set(voters)


def test_it_is_read_back() -> None:
    """As it stands in a header; its order does not depend on who tells it."""
    voters = after(Voters(), FOUNDERS, ["c", "b", "new", "a"])
    assert Voters.parse(voters.to_json()) == voters
    assert after(Voters(), FOUNDERS, ["new", "a", "b", "c"]).to_json() == voters.to_json()


@pytest.mark.parametrize(
    "tree",
    [
        None,
        {},
        [["a"]],
        [["a", 1, True]],
        [["a", 0, 1]],
        [["a", PROBATION_ROUNDS + 1, 1]],
        [["a", 1, -1]],
        [["a b", 1, 1]],
        [["b", 1, 1], ["a", 1, 1]],
        [["a", 1, 1], ["a", 1, 1]],
        [["a", 1, 1.0]],
        [[f"a{number:04d}".replace("0", "z"), 1, 1] for number in range(STANDINGS_MAX + 1)],
    ],
)
def test_what_is_no_table_is_refused(tree: object) -> None:
    """Another peer may send anything."""
    with pytest.raises(ValueError, match="table of voters"):
        Voters.parse(tree)
