"""What members of a group sign, and what of it is refused."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.network.auditing import check_evidence
from dupt_swarm.network.averaging.group import SharingGroup, contradictions
from dupt_swarm.network.averaging.pledge import Proof, Subject, Vote
from dupt_swarm.network.averaging.reports import (
    Acceptance,
    Answer,
    AnswerMessage,
    Decision,
    DecisionMessage,
    Places,
    Report,
    ReportMessage,
)
from dupt_swarm.network.averaging.roll import Roll, Statement
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.log_entry import Input, LogEntry
from dupt_swarm.replica.signed import sign
from dupt_swarm.replica.voters import Voters
from tests.support.sharing_groups import STATE, SWARM, group_of, member_keys

NEXT = "b" * 64


@pytest.fixture(scope="module")
def keys() -> dict[str, RSAPrivateKey]:
    """Of three members, by peer id, sorted."""
    return member_keys(3)


@pytest.fixture(scope="module")
def group(keys: dict[str, RSAPrivateKey]) -> SharingGroup:
    """The three of them, each with a contribution to round 4."""
    return group_of(keys)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def entry_of(group: SharingGroup, votes: Sequence[Vote], **changes: Any) -> LogEntry:
    """The log entry of a round in which the first two contributions count."""
    inputs = [
        Input(digest=each.digest, tokens=each.claim.tokens, maker=each.maker, statement=b64(each.data))
        for each in group.statements[:2]
    ]
    fields: dict[str, Any] = {
        "round": 4,
        "before": STATE,
        "after": NEXT,
        "exchange": "share",
        "members": tuple(group.members),
        "inputs": tuple(inputs),
        "votes": tuple(b64(vote.data) for vote in votes),
    }
    return LogEntry(**fields | changes)


def signed(
    group: SharingGroup,
    keys: dict[str, RSAPrivateKey],
    choice: Places,
    accepted: Places,
    ballot: int = 1,
    after: tuple[int, Places] | None = None,
) -> Decision:
    """What these members have accepted, after another list or as their first."""
    peers = [group.members[place] for place in accepted]
    acceptance = Acceptance(ballot, choice, after)
    data = tuple(group.sign(peer, keys[peer], acceptance) for peer in peers)
    return Decision(ballot, choice, accepted, data)


def votes_of(keys: dict[str, RSAPrivateKey], **changes: Any) -> list[Vote]:
    """Of all, for the state that follows."""
    about: dict[str, Any] = {"swarm_id": SWARM, "roll": "ab" * 20, "round": 3, "before": STATE}
    after = changes.pop("after", NEXT)
    return [Vote.sign(Subject(**about | changes), after, peer, key) for peer, key in keys.items()]


def test_statements_and_lists_are_read_back(group, keys) -> None:
    """What was signed comes back as it was, and names who signed it."""
    for each in group.statements:
        assert Statement.read(each.data, SWARM) == each
    decision = signed(group, keys, (0, 1), (0, 2))
    message = DecisionMessage.model_validate_json(DecisionMessage.of(decision).model_dump_json())
    assert message.decision(3) == decision
    assert message.decision(3).signed == decision.signed
    group.check_decision(decision)
    check_evidence(entry_of(group, votes_of(keys)), SWARM, Voters())


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": 0},
        {"tokens": True},
        {"state": "x"},
        {"round": -1},
        {"contribution": "0" * 63},
        {"more": 1},
        {"callable": 1},
    ],
)
def test_malformed_statements_are_refused(keys, change) -> None:
    """A signature makes no statement of what is none."""
    peer, key = next(iter(keys.items()))
    good = {"swarm": SWARM, "round": 3, "state": STATE, "contribution": "0" * 64, "tokens": 5}
    good["callable"] = True
    assert Statement.read(sign(key, "contribution", good), SWARM).maker == peer
    with pytest.raises(ValueError, match="validation error"):
        Statement.read(sign(key, "contribution", good | change), SWARM)
    with pytest.raises(ValueError, match="another swarm"):
        Statement.read(sign(key, "contribution", good), "other-0")


def test_forged_lists_are_refused(group, keys) -> None:
    """Of another group or ballot, signed by few, by others, for another list, or of few contributions."""
    honest = signed(group, keys, (0, 1), (0, 2))
    elsewhere = group_of(keys)
    other = SharingGroup("other-0", group.roll, Voters())
    forged = [
        (signed(elsewhere, keys, (0, 1), (0, 2)), "another group"),
        (signed(other, keys, (0, 1), (0, 2)), "another group"),
        (signed(group, keys, (0, 1), (0, 2), 0, after=(0, (1, 2))), "in the first ballot"),
        (replace(honest, ballot=2), "something else"),
        (replace(honest, choice=(0, 1, 2)), "something else"),
        (replace(honest, accepted=(0, 1)), "somebody else"),
        (replace(honest, signed=(honest.signed[0],) * 2), "somebody else"),
        (replace(honest, signed=(b"", honest.signed[1])), "Unpack failed"),
        (replace(honest, signed=honest.signed[:1]), "shorter"),
        (signed(group, keys, (0, 1), (0,)), "not more than half"),
        (signed(group, keys, (0,), (0, 2)), "of few"),
    ]
    for decision, reason in forged:
        with pytest.raises(ValueError, match=reason):
            group.check_decision(decision)
    message = DecisionMessage.of(honest)
    for change in ({"choice": "9"}, {"accepted": "9"}):  # of the places 0 and 3
        with pytest.raises(ValueError, match="a member that there is not"):
            message.model_copy(update=change).decision(3)


def test_two_that_state_one_contribution(keys) -> None:
    """A list names makers: all read the same from it, whoever states the digest of another's contribution."""
    statements = [
        Statement.make(SWARM, Claim(3, STATE, 10, peer), "1" * 64, key) for peer, key in keys.items()
    ]
    roll = Roll.call(statements[0].maker, keys[statements[0].maker], statements)
    group = SharingGroup(SWARM, roll, Voters())
    lists = [signed(group, keys, choice, (0, 2)) for choice in ((0, 1), (0, 2), (1, 2))]
    for each, other in pairwise(lists):
        group.check_decision(each)
        with pytest.raises(ValueError, match="something else"):
            group.check_decision(replace(each, signed=other.signed))


@pytest.mark.parametrize("ballot", [1, 2])
def test_two_lists(group, keys, ballot) -> None:
    """Whoever has accepted both contradicts itself, in one ballot or denying the first, and somebody has."""
    one, other = signed(group, keys, (0, 1), (0, 2)), signed(group, keys, (0, 1, 2), (1, 2), ballot)
    group.check_decision(one)
    group.check_decision(other)
    [proof] = contradictions(one, other)
    assert proof == Proof.read(proof.data, SWARM)
    assert proof.offender == group.members[2]
    assert contradictions(one, one) == []


def test_one_list_after_another(group, keys) -> None:
    """Who says which one it has accepted before contradicts nothing; it signs that, and no other."""
    one, after = signed(group, keys, (0, 1), (0, 2)), (1, (0, 1))
    other = signed(group, keys, (0, 1, 2), (1, 2), 2, after)
    group.check_decision(other)
    assert contradictions(one, other) == []
    acceptance = Acceptance(2, (0, 1, 2), after, other.signed[0])
    group.check_acceptance(1, acceptance)
    for denied in (None, (0, (0, 1)), (1, (0, 2))):
        with pytest.raises(ValueError, match="after another one"):
            group.check_acceptance(1, replace(acceptance, after=denied))


def test_forged_entries_are_refused(group, keys) -> None:
    """An audit believes no entry that claims other tokens, makers or votes than were signed."""
    votes = votes_of(keys)
    honest = entry_of(group, votes)
    first, second = honest.inputs

    def voted(*chosen: Vote) -> dict[str, Any]:
        return {"votes": tuple(b64(vote.data) for vote in chosen)}

    forged: list[tuple[dict[str, Any], str]] = [
        ({"inputs": (first.model_copy(update={"tokens": 99}), second)}, "not the one that its maker"),
        ({"inputs": (first.model_copy(update={"digest": "9" * 64}), second)}, "not the one that its maker"),
        (
            {"inputs": (first.model_copy(update={"maker": second.maker}), second)},
            "not the one that its maker",
        ),
        ({"inputs": (first.model_copy(update={"statement": ""}), second)}, "Unpack failed"),
        ({"inputs": (first, first)}, "twice"),
        ({"before": NEXT}, "not the one that its maker"),
        ({"members": (second.maker, first.maker)}, "nobody in the group"),
        ({"votes": ()}, "not more than half"),
        (voted(votes[0]), "not more than half"),
        (voted(votes[0], votes[0]), "not more than half"),
        (voted(*votes_of(keys, after="c" * 64)), "for another state"),
        (voted(*votes_of(keys, before="c" * 64)), "for another state"),
        (voted(*votes_of(keys, round=4)), "for another state"),
        (voted(*votes_of(keys, swarm_id="other-0")), "for another state"),
        (voted(*votes_of(member_keys(3))), "nobody in the group"),
    ]
    for change, reason in forged:
        with pytest.raises(ValueError, match=reason):
            check_evidence(honest.model_copy(update=change), SWARM, Voters())
    average = honest.model_copy(update={"exchange": "reduce"})
    with pytest.raises(ValueError, match="one average"):
        check_evidence(average, SWARM, Voters())


def test_only_voters_decide_on_the_list(group, keys) -> None:
    """And coordinate, as far as they can be called; strangers in the group hold up nobody."""
    voter = group.members[1]
    known = SharingGroup(SWARM, group.roll, Voters().after(1, [voter]))
    assert (known.electors, known.order) == (frozenset({1}), [1])
    known.check_decision(signed(known, keys, (0, 1), (1,)))
    with pytest.raises(ValueError, match="others than electors"):
        known.check_decision(signed(known, keys, (0, 1), (0, 2)))
    with pytest.raises(ValueError, match="not more than half"):
        known.check_decision(signed(known, keys, (0, 1), ()))


def test_the_votes_of_voters_count(group, keys) -> None:
    """Where members vote who are known, it is they of whom more than half must have signed."""
    first, *others = votes_of(keys)
    founder = Voters().after(1, [first.maker])
    check_evidence(entry_of(group, [first]), SWARM, founder)
    with pytest.raises(ValueError, match="not more than half"):
        check_evidence(entry_of(group, others), SWARM, founder)


def test_messages_of_an_agreement() -> None:
    """Reports and answers are read back as they were, and none that names a member that there is not."""
    report = Report(2, frozenset({0, 2}), Acceptance(1, (0,), (0, (1, 2)), b"signed"))
    data = ReportMessage.of("ab" * 20, report).model_dump_json().encode()
    read = ReportMessage.model_validate_json(data).report(3)
    assert read == report
    assert read.accepted is not None
    assert (read.accepted.after, read.accepted.signed) == ((0, (1, 2)), b"signed")
    with pytest.raises(ValueError, match="a member that there is not"):
        ReportMessage.model_validate_json(data).report(2)
    decision = Decision(1, (0, 1), (0, 2), (b"one", b"two"))
    answer = Answer(1, (0, 1), decision, (frozenset({0}), frozenset(), frozenset({1, 2})))
    message = AnswerMessage.model_validate_json(AnswerMessage.of(answer).model_dump_json())
    assert message.answer(3) == answer
    with pytest.raises(ValueError, match="another group"):
        message.answer(2)
    for junk in (b"{}", b"[", data.replace(b"2", b"-2", 1), data.replace(b"[0", b"[true", 1)):
        with pytest.raises(ValueError, match=r"."):
            ReportMessage.model_validate_json(junk)
