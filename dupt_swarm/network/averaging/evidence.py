"""Whether a log entry is what the members of its group signed."""

from __future__ import annotations

import base64
import binascii

from dupt_swarm.network.averaging.ballots import SignedList
from dupt_swarm.network.averaging.statement import Statement
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.log_entry import Input, LogEntry


def check_evidence(entry: LogEntry, swarm_id: str) -> None:
    """Refuse an entry whose signatures do not say what it says. (Averages are not signed.)

    Raises:
        ValueError: says why.
    """
    {"share": _check_shared, "reduce": _check_reduced}[entry.exchange](entry, swarm_id)


def _check_reduced(entry: LogEntry, swarm_id: str) -> None:
    del swarm_id
    if len(entry.inputs) != 1 or entry.inputs[0].maker:
        raise ValueError("a round that was reduced has one average")


def _check_shared(entry: LogEntry, swarm_id: str) -> None:
    for each in entry.inputs:
        _check_statement(each, entry, swarm_id)
    if len({each.maker for each in entry.inputs}) != len(entry.inputs):
        raise ValueError("a member contributed twice")
    if not entry.agreement:
        if len(entry.members) != 1:
            raise ValueError("nobody has signed for the list of contributions")
        return
    found, members = SignedList.read(_bytes(entry.agreement)), list(entry.members)
    said = (found.round, found.state, list(found.contributions))
    if said != (entry.round - 1, entry.before, entry.digests) or found.signer not in members:
        raise ValueError("the signed list of contributions is another")
    accepted = set(found.accepted)
    if not accepted <= set(members) or 2 * len(accepted) <= len(members):
        raise ValueError("not more than half of the group have accepted the list of contributions")


def _check_statement(each: Input, entry: LogEntry, swarm_id: str) -> None:
    statement = Statement.read(_bytes(each.statement), swarm_id)
    claim = Claim(entry.round - 1, entry.before, each.tokens, each.maker)
    if (statement.claim, statement.digest) != (claim, each.digest) or each.maker not in entry.members:
        raise ValueError("a contribution is not the one that its maker has signed for")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("a signed message is malformed") from error
