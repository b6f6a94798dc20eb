"""What a peer says of itself."""

import math
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from dupt_swarm.node.record import JOINED, PeerRecord, PeerState, RecordUpdate
from dupt_swarm.settings import PublishedRole

FIELDS: dict[str, Any] = {
    "role": "oracle",
    "state": "training",
    "time": 5.0,
    "round": 1,
    "state_digest": "a" * 64,
    "swarm_tokens": 1,
}

COSTS = (
    "round_sent_bytes",
    "round_received_bytes",
    "utilization",
    "round_waiting_seconds",
    "waiting_seconds",
)


def test_published_is_short_and_plain() -> None:
    """Defaults are left out, tuples are lists: other types of msgpack are refused at the door."""
    record = PeerRecord.model_validate(FIELDS | {"addresses": ("/ip4/1.2.3.4/tcp/5",)})
    assert record.published() == FIELDS | {"addresses": ["/ip4/1.2.3.4/tcp/5"]}


def test_every_role_says_something_from_joining_on() -> None:
    """A first peer serves and an evaluator evaluates; neither is syncing for ever."""
    assert set(JOINED) == set(get_args(PublishedRole))
    assert set(JOINED.values()) <= set(get_args(PeerState))
    assert (JOINED["bootstrap"], JOINED["evaluator"]) == ("serving", "evaluating")


@pytest.mark.parametrize("role", [["bootstrap"], {"bootstrap": 1}, None, "king"])
def test_a_hostile_role_is_refused(role: object) -> None:
    """Whatever its type."""
    with pytest.raises(ValidationError):
        PeerRecord.model_validate(FIELDS | {"role": role})


def test_a_record_may_say_nothing_of_what_rounds_cost() -> None:
    """As those of older peers do: nothing is known then, which is not nothing."""
    record = PeerRecord.model_validate(FIELDS)
    assert {getattr(record, name) for name in COSTS} == {None}
    known = dict.fromkeys(COSTS, 0) | {"utilization": 1.0}
    assert PeerRecord.model_validate(FIELDS | known).published() == FIELDS | known


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("value", [-1, -0.5, 1 << 62, 1e10, math.inf, math.nan, "1", [1]])
def test_hostile_costs_are_refused(name: str, value: object) -> None:
    """None is negative, beyond all bounds, infinite or not a number."""
    with pytest.raises(ValidationError):
        PeerRecord.model_validate(FIELDS | {name: value})


def test_a_utilization_is_a_ratio() -> None:
    """Nobody trains for more than all of the time."""
    with pytest.raises(ValidationError):
        PeerRecord.model_validate(FIELDS | {"utilization": 1.001})


def test_whatever_a_stranger_calls_itself(make_peer) -> None:
    """Nothing in its name, version or device is obeyed by a terminal, from the moment that it is read."""
    record = make_peer(name="\x1b[2J\u202eeve\n", version="1\x07", device="\x9bGPU").record
    assert (record.name, record.version, record.device) == ("�[2J�eve�", "1�", "�GPU")
    assert type(record).model_validate(record.model_dump()) == record


def test_an_update_is_of_the_fields_that_it_was_given() -> None:
    """None of the others is touched; of two that follow each other the later one counts."""
    both = RecordUpdate(loss=2.0, state="training") | RecordUpdate(loss=None)
    assert both.given == {"loss": None, "state": "training"}
    record = PeerRecord.model_validate(FIELDS | {"name": "eve"}) | RecordUpdate(state="paused")
    assert record == PeerRecord.model_validate(FIELDS | {"name": "eve", "state": "paused"})


def test_an_update_is_checked_where_it_is_made() -> None:
    """Not in the node, where nobody would hear of it."""
    with pytest.raises(ValidationError):
        RecordUpdate(utilization=1.5)


def test_a_record_is_whole() -> None:
    """A peer says who it is and where it stands in every record."""
    for name in FIELDS:
        with pytest.raises(ValidationError, match=name):
            PeerRecord.model_validate({key: value for key, value in FIELDS.items() if key != name})
