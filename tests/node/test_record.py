"""What a peer says of itself."""

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from dupt_swarm.node.record import JOINED, PeerRecord, PeerState, Role

FIELDS: dict[str, Any] = {
    "role": "oracle",
    "state": "training",
    "time": 5.0,
    "round": 1,
    "state_digest": "a" * 64,
    "swarm_tokens": 1,
}


def test_published_is_short_and_plain() -> None:
    """Defaults are left out, tuples are lists: other types of msgpack are refused at the door."""
    record = PeerRecord.model_validate(FIELDS | {"addresses": ("/ip4/1.2.3.4/tcp/5",)})
    assert record.published() == FIELDS | {"addresses": ["/ip4/1.2.3.4/tcp/5"]}


def test_every_role_says_something_from_joining_on() -> None:
    """A first peer serves and an evaluator evaluates; neither is syncing for ever."""
    assert set(JOINED) == set(get_args(Role))
    assert set(JOINED.values()) <= set(get_args(PeerState))
    assert (JOINED["bootstrap"], JOINED["evaluator"]) == ("serving", "evaluating")


@pytest.mark.parametrize("role", [["bootstrap"], {"bootstrap": 1}, None, "king"])
def test_a_hostile_role_is_refused(role: object) -> None:
    """Whatever its type."""
    with pytest.raises(ValidationError):
        PeerRecord.model_validate(FIELDS | {"role": role})
