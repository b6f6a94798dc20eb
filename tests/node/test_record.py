"""What a peer says of itself, and how peers of other versions understand it."""

from typing import Any

import pytest
from pydantic import ValidationError

from dupt_swarm.node.record import PeerRecord


def fields(role: str, state: str) -> dict[str, Any]:
    return {
        "role": role,
        "state": state,
        "time": 5.0,
        "round": 1,
        "state_digest": "a" * 64,
        "swarm_tokens": 1,
    }


@pytest.mark.parametrize(("role", "calling"), [("bootstrap", "serving"), ("evaluator", "evaluating")])
def test_who_does_not_train_says_what_it_does(role: str, calling: str) -> None:
    """Published is the word of version 0.2, whose own records are understood in the same way."""
    record = PeerRecord.model_validate(fields(role, "syncing"))
    assert record.state == calling
    assert record.published() == fields(role, "syncing")
    assert PeerRecord.model_validate(fields(role, calling)) == record
    assert PeerRecord.model_validate(record.model_dump()) == record


def test_other_states_are_what_they_are() -> None:
    """An oracle's, and those of a peer that comes or goes."""
    for role, state in (("oracle", "syncing"), ("oracle", "training"), ("bootstrap", "stopping")):
        record = PeerRecord.model_validate(fields(role, state))
        assert record.state == state
        assert record.published()["state"] == state


@pytest.mark.parametrize("role", [["bootstrap"], {"bootstrap": 1}, None, "king"])
def test_a_hostile_role_is_refused_as_ever(role: object) -> None:
    """As a record that is not valid, whatever its type."""
    with pytest.raises(ValidationError):
        PeerRecord.model_validate(fields("oracle", "syncing") | {"role": role})
