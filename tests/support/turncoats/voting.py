"""What a hostile voter does with its votes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from dupt_swarm.network.averaging.pledge import Vote
from dupt_swarm.network.averaging.polls import BallotBox, PollResult, Polls, VoteMessage, VotesMessage
from dupt_swarm.network.averaging.roll import Roll
from dupt_swarm.replica.signed import as_text, from_text
from tests.support.turncoats.orders import Orders

NOBODYS = "f" * 64  # a digest that nobody has computed

# To each another one; both to everybody.
TWO_VOTES, BOTH_VOTES = "two votes", "both votes"
NO_VOTE, VOTE_FOR_NOTHING = "no vote", "vote for nothing"


def prepare(orders: Orders) -> None:
    """Be ready to do it."""
    orders.change(Polls, "_ask", {TWO_VOTES: _tell_one, NO_VOTE: _tell_nothing})
    orders.change(Polls, "rpc_vote", {TWO_VOTES: _answer_one, NO_VOTE: _refuse})
    orders.change(Polls, "certify", {BOTH_VOTES: _tell_both, VOTE_FOR_NOTHING: _vote_for_nothing})


def _votes(polls: Polls, box: BallotBox, true: str) -> list[Vote]:
    context = polls._context
    return [Vote.sign(box.subject, after, context.me, context.key) for after in (true, NOBODYS)]


def _one_of(votes: Sequence[Vote], box: BallotBox, peer: str) -> Vote:
    """Every other member hears the truth."""
    return votes[sorted(box.members).index(peer) % 2]


async def _tell_one(real: Callable[..., Any], polls: Polls, peer: str, box: BallotBox, mine: Vote) -> bool:
    found: bool = await real(polls, peer, box, _one_of(_votes(polls, box, mine.digest), box, peer))
    return found


async def _answer_one(_: object, polls: Polls, request: VoteMessage, caller: str) -> VotesMessage:
    box, theirs = polls._boxes[request.roll], Vote.read(from_text(request.vote))
    vote = _one_of(_votes(polls, box, theirs.digest), box, caller)
    return VotesMessage(votes=() if vote.id in request.known else (as_text(vote.data),))


async def _tell_both(_: object, polls: Polls, roll: Roll, after: str, *, accepted: bool) -> PollResult:
    del accepted
    box = polls._boxes[roll.id]
    telling = [
        polls._ask(peer, box, vote)
        for peer in roll.mates_of(polls._context.me)
        for vote in _votes(polls, box, after)
    ]
    await asyncio.shield(asyncio.gather(*telling, return_exceptions=True))  # the others end the round soon
    return PollResult()


async def _tell_nothing(*_: object) -> bool:
    return False


async def _refuse(*_: object) -> VotesMessage:
    raise ValueError("no vote")


async def _vote_for_nothing(
    real: Callable[..., Any], polls: Polls, roll: Roll, after: str, *, accepted: bool
) -> Any:
    del after
    return await real(polls, roll, NOBODYS, accepted=accepted)
