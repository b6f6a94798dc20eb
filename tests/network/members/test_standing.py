"""What is known of a peer, and what rounds make of that: every row of the table."""

from dataclasses import fields
from itertools import product

import pytest

from dupt_swarm.network.members.standing import Standing

# What is known, beside that nothing is wrong: whether it is awaited, eligible, counted, coordinates.
ROWS = [
    ({}, (True, True, True, True)),
    ({"comes": False}, (False, True, True, True)),
    ({"callable": False}, (True, True, True, False)),
    ({"lives": False}, (True, True, False, True)),
    ({"admitted": False}, (True, True, False, True)),
    ({"exposed": True}, (False, False, True, False)),
    ({"decides": False}, (True, True, False, False)),
    ({"decides": False, "comes": False}, (False, False, False, False)),
    ({"decides": False, "exposed": True}, (False, False, False, False)),
    ({"decides": False, "callable": False}, (True, True, False, False)),
]


def answers(standing: Standing) -> tuple[bool, ...]:
    return standing.awaited, standing.eligible, standing.counted, standing.coordinates


@pytest.mark.parametrize(("known", "expected"), ROWS, ids=str)
def test_rows(known: dict[str, bool], expected: tuple[bool, ...]) -> None:
    assert answers(Standing(**known)) == expected


def test_nothing_bad_makes_more_of_a_peer() -> None:
    """Whatever else is known, whoever is exposed, gone, or not to be called has no more say by that."""
    names = [field.name for field in fields(Standing)]
    good = {name: name != "exposed" for name in names}
    for values in product([False, True], repeat=len(names)):
        known = dict(zip(names, values, strict=True))
        for name in names:
            better = answers(Standing(**known | {name: good[name]}))
            worse = answers(Standing(**known | {name: not good[name]}))
            assert all(after <= before for before, after in zip(better, worse, strict=True)), (known, name)
