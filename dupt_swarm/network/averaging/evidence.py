"""Whether a log entry is what the members of its group signed."""

from __future__ import annotations

from dupt_swarm.network.averaging.pledge import Vote
from dupt_swarm.network.averaging.roll import Statement
from dupt_swarm.network.members.signed import from_text
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.log_entry import Input, LogEntry
from dupt_swarm.replica.voters import Voters


def check_evidence(entry: LogEntry, swarm_id: str, voters: Voters) -> None:
    """Refuse an entry whose signatures do not say what it says. (Averages are not signed.)

    ``voters`` are those of the state before; who of them was not there is not known afterwards.

    Raises:
        ValueError: says why.
    """
    {"share": _check_shared, "reduce": _check_reduced}[entry.exchange](entry, swarm_id)
    voted = {_check_vote(each, entry, swarm_id) for each in entry.votes}
    there = [peer for peer in entry.members if peer in voters] or entry.members
    if 2 * len(voted.intersection(there)) <= len(there):
        raise ValueError("not more than half of the voters have signed for the state that follows")


def _check_reduced(entry: LogEntry, swarm_id: str) -> None:
    del swarm_id
    if len(entry.inputs) != 1 or entry.inputs[0].maker:
        raise ValueError("a round that was reduced has one average")


def _check_shared(entry: LogEntry, swarm_id: str) -> None:
    for each in entry.inputs:
        _check_statement(each, entry, swarm_id)
    if len({each.maker for each in entry.inputs}) != len(entry.inputs):
        raise ValueError("a member contributed twice")


def _check_vote(text: str, entry: LogEntry, swarm_id: str) -> str:
    """Who has voted."""
    vote = Vote.read(from_text(text))
    subject = vote.subject
    if (subject.swarm_id, subject.round, subject.before, vote.digest) != (
        swarm_id,
        entry.round - 1,
        entry.before,
        entry.after,
    ):
        raise ValueError("a vote is for another state")
    if vote.maker not in entry.members:
        raise ValueError("a vote of nobody in the group")
    return vote.maker


def _check_statement(each: Input, entry: LogEntry, swarm_id: str) -> None:
    statement = Statement.read(from_text(each.statement), swarm_id)
    claim = Claim(entry.round - 1, entry.before, each.tokens, each.maker)
    if (statement.claim, statement.digest) != (claim, each.digest) or each.maker not in entry.members:
        raise ValueError("a contribution is not the one that its maker has signed for")
