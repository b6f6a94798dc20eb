"""What a hostile voter does where contributions are shared: with its own, and with the list that counts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2PContext

from dupt_swarm.network.averaging.agreement import Decision
from dupt_swarm.network.averaging.ballots import AnswerMessage, ReportMessage
from dupt_swarm.network.averaging.session import Session
from dupt_swarm.network.members.signed import as_text
from dupt_swarm.network.p2p.plain_json import load
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.replica.contribution import CONTRIBUTION
from tests.support.turncoats.orders import Orders

WITHHELD, FOR_SOME, GARBLED = "withheld", "for some", "garbled for some"
TWO_LISTS, OWN_LIST = "two lists", "own list"


def prepare(orders: Orders) -> None:
    """Be ready to do it."""
    attacks = {WITHHELD: _withhold, FOR_SOME: _give_some, GARBLED: _garble}
    orders.change(Exchange, "rpc_chunks", {name: _of_contributions(each) for name, each in attacks.items()})
    orders.change(Session, "answer", {TWO_LISTS: _tell_another, OWN_LIST: _tell_own})


def _of_contributions(attack: Callable[[int, bytes, str], bytes | None]) -> Callable[..., Any]:
    """What ``attack`` makes of each chunk of a contribution, by its number, for a peer; None: no more."""

    async def chunks(
        real: Callable[..., Any], exchange: Exchange, request: BytesValue, context: P2PContext
    ) -> AsyncIterator[BytesValue]:
        wanted = load(request.value)
        blob = exchange._find(wanted["digest"])
        hostile = blob is not None and blob.index.header.get("kind") == CONTRIBUTION
        numbers = iter(dict.fromkeys(wanted["numbers"]))
        async for reply in real(exchange, request, context):
            given = attack(next(numbers), reply.value, str(context.remote_id)) if hostile else reply.value
            if given is None:
                return
            yield BytesValue(value=given)

    return chunks


def _withhold(number: int, chunk: bytes, peer: str) -> bytes | None:
    del peer
    return None if number else chunk


def _give_some(number: int, chunk: bytes, peer: str) -> bytes | None:
    return chunk if _is_chosen(peer) else _withhold(number, chunk, peer)


def _garble(number: int, chunk: bytes, peer: str) -> bytes | None:
    del number
    return chunk if _is_chosen(peer) else chunk[::-1]


async def _tell_another(
    real: Callable[..., Any], session: Session, member: str, message: ReportMessage
) -> AnswerMessage:
    """As the coordinator of the agreement, sign a shorter list for every other member."""
    reply: AnswerMessage = await real(session, member, message)
    decision = _decided(session, reply)
    if decision is None or session.group.members.index(member) % 2:
        return reply
    return _with_list(session, reply, replace(decision, choice=decision.choice[1:]))


async def _tell_own(
    real: Callable[..., Any], session: Session, member: str, message: ReportMessage
) -> AnswerMessage:
    """As the coordinator of the agreement, sign a list of nothing but the own contribution."""
    reply: AnswerMessage = await real(session, member, message)
    decision = _decided(session, reply)
    if decision is None:
        return reply
    return _with_list(session, reply, replace(decision, choice=(session.agreement.me,)))


def _decided(session: Session, reply: AnswerMessage) -> Decision | None:
    """What was decided under it as the coordinator, if that is told."""
    coordinates = session.agreement.coordinator == session.agreement.me
    return session.decision if reply.decided and coordinates else None


def _with_list(session: Session, reply: AnswerMessage, decision: Decision) -> AnswerMessage:
    signed = session.group.signed_list(decision).sign(session._key)
    return reply.model_copy(update={"decided": as_text(signed)})


def _is_chosen(peer: str) -> bool:
    """Every other peer, by its id."""
    return sum(peer.encode()) % 2 == 0
