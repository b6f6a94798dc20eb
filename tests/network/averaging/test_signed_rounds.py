"""What members of a group sign, and what of it is refused."""

import base64
from collections.abc import Sequence
from typing import Any

import msgpack
import pytest
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.network.averaging.agreement import Acceptance, Answer, Decision, Report
from dupt_swarm.network.averaging.ballots import AnswerMessage, ReportMessage, SignedList
from dupt_swarm.network.averaging.evidence import check_evidence
from dupt_swarm.network.averaging.group import SharingGroup
from dupt_swarm.network.averaging.pledge import Subject
from dupt_swarm.network.averaging.roll import Roll
from dupt_swarm.network.averaging.statement import Statement
from dupt_swarm.network.averaging.votes import Vote
from dupt_swarm.network.members.signed import SIGNED_BYTES_MAX, read_signed, sign
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.log_entry import Input, LogEntry
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


def signed(group: SharingGroup, keys: dict[str, RSAPrivateKey], decision: Decision) -> bytes:
    return group.signed_list(decision).sign(keys[group.coordinator_of(decision.ballot)])


def votes_of(keys: dict[str, RSAPrivateKey], **changes: Any) -> list[Vote]:
    """Of all, for the state that follows."""
    about: dict[str, Any] = {"swarm_id": SWARM, "roll": "ab" * 20, "round": 3, "before": STATE}
    after = changes.pop("after", NEXT)
    return [Vote.sign(Subject(**about | changes), after, peer, key) for peer, key in keys.items()]


DECISION = Decision(1, (0, 1), (0, 2))


def test_statements_and_lists_are_read_back(group, keys) -> None:
    """What was signed comes back as it was, and names who signed it."""
    for each in group.statements:
        assert Statement.read(each.data, SWARM) == each
    assert group.check_list(signed(group, keys, DECISION)) == DECISION
    check_evidence(entry_of(group, votes_of(keys)), SWARM, Voters())


def test_forged_messages_are_refused(keys) -> None:
    """Other content, another key, another kind, junk and what is too long: a ValueError each."""
    (_, one), (_, two), _ = keys.items()
    good = sign(one, "kind", {"a": 1})
    text, public, signature = msgpack.unpackb(good)
    assert read_signed(good, "kind")[1] == {"a": 1}
    for forged in (
        [text.replace(b"1", b"2"), public, signature],
        [text, two.get_public_key().to_bytes(), signature],
        [text, public, b""],
        [text, public + b" comment", signature],
        [text, b"\xff" * 2000, signature],
        [text, public],
        {"text": text},
    ):
        with pytest.raises(ValueError, match=r"signed message|signature|canonical"):
            read_signed(msgpack.packb(forged), "kind")
    with pytest.raises(ValueError, match="another kind"):
        read_signed(good, "other")
    with pytest.raises(ValueError, match="too long"):
        read_signed(bytes(SIGNED_BYTES_MAX + 1), "kind")


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
    """Of another group, of a coordinator out of turn, with too few votes, of strangers' contributions."""
    honest = group.signed_list(DECISION)
    own = keys[honest.signer]
    other = keys[next(peer for peer in keys if peer != honest.signer)]
    forged = [
        (honest.sign(other), "another coordinator"),
        (_with(honest, group="cd" * 20).sign(own), "another group"),
        (_with(honest, state=NEXT).sign(own), "another group"),
        (_with(honest, accepted=honest.accepted[:1]).sign(own), "not more than half"),
        (_with(honest, accepted=(honest.accepted[0], "QmNobody")).sign(own), "names others"),
        (_with(honest, makers=("QmNobody",)).sign(own), "names others"),
        (_with(honest, makers=honest.makers[:1]).sign(own), "of few"),
        (_with(honest, makers=honest.makers[::-1]).sign(own), "another order"),
    ]
    for data, reason in forged:
        with pytest.raises(ValueError, match=reason):
            group.check_list(data)


def test_two_that_state_one_contribution(keys) -> None:
    """All read the same places from a list, whoever states the digest of another's contribution too."""
    statements = [
        Statement.make(SWARM, Claim(3, STATE, 10, peer), "1" * 64, key) for peer, key in keys.items()
    ]
    group = SharingGroup(Roll.call(statements[0].maker, keys[statements[0].maker], statements), Voters())
    for choice in ((0, 1), (0, 2), (1, 2)):
        decision = Decision(1, choice, (0, 2))
        assert group.check_list(signed(group, keys, decision)) == decision


def _with(found: SignedList, **changes: Any) -> SignedList:
    return SignedList(**{**found.__dict__, **changes})


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
    known = SharingGroup(group.roll, Voters().after(1, [voter]))
    assert (known.electors, known.order) == (frozenset({1}), [1])
    assert known.check_list(signed(known, keys, Decision(0, (0, 1), (1,)))).accepted == (1,)
    with pytest.raises(ValueError, match="not more than half"):
        known.check_list(signed(known, keys, Decision(0, (0, 1), (0, 2))))


def test_the_votes_of_voters_count(group, keys) -> None:
    """Where members vote who are known, it is they of whom more than half must have signed."""
    first, *others = votes_of(keys)
    founder = Voters().after(1, [first.maker])
    check_evidence(entry_of(group, [first]), SWARM, founder)
    with pytest.raises(ValueError, match="not more than half"):
        check_evidence(entry_of(group, others), SWARM, founder)


def test_messages_of_an_agreement() -> None:
    """Reports and answers are read back as they were, and none that names a member that there is not."""
    report = Report(2, frozenset({0, 2}), Acceptance(1, (0,)))
    data = ReportMessage.of("ab" * 20, report).model_dump_json().encode()
    assert ReportMessage.model_validate_json(data).report(3) == report
    with pytest.raises(ValueError, match="a member that there is not"):
        ReportMessage.model_validate_json(data).report(2)
    answer = Answer(1, (0, 1), None, (frozenset({0}), frozenset(), frozenset({1, 2})))
    message = AnswerMessage.model_validate_json(AnswerMessage.of(answer, "").model_dump_json())
    assert message.answer(3) == answer
    with pytest.raises(ValueError, match="another group"):
        message.answer(2)
    for junk in (b"{}", b"[", data.replace(b"2", b"-2", 1), data.replace(b"[0", b"[true", 1)):
        with pytest.raises(ValueError, match=r"."):
            ReportMessage.model_validate_json(junk)
