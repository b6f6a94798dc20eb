"""A liar among those who leave a state: as one that reports, and as the coordinator."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from math import inf
from typing import Any

import msgpack
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hivemind.p2p import P2P, PeerID

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.p2p.rpc import ANSWERED, Refusal
from dupt_swarm.network.rounds.ballots import Ballots
from dupt_swarm.network.rounds.deciding import Deciding
from dupt_swarm.network.rounds.messages import REPORT_BYTES_MAX, AnswerMessage, ReportMessage
from dupt_swarm.network.rounds.reports import Answer, Pace, Report
from dupt_swarm.network.rounds.round import Round
from dupt_swarm.network.rounds.session import AGAIN_AT_ONCE, AGAIN_PER_SECOND, Ended
from dupt_swarm.network.rounds.stock import OF_ONE_MAX
from dupt_swarm.network.rounds.voice import Voice
from dupt_swarm.replica.electorate import ROWS_MAX, Electorate
from dupt_swarm.replica.link import (
    BROUGHT_MAX,
    Acceptance,
    Accepted,
    Brought,
    Choice,
    Link,
    Promise,
    Proposal,
    coordinator_of,
)
from dupt_swarm.replica.signed import as_text, sign
from dupt_swarm.replica.signed_words import W, Words
from dupt_swarm.replica.state import ReplicaState
from tests.support.deciders import Decider, first_state
from tests.support.held_loop import assert_not_held
from tests.support.lies import keys_by_id
from tests.support.signed_records import id_of
from tests.support.stranger import answer_raw, call_raw, nested_extensions, stranger_beside
from tests.support.words import said

NUMEL = 1000
STATE, AFTER, OTHER = "ab" * 32, "cd" * 32, "ef" * 32
PACE = Pace(gather=10.0, exchange=20.0, silence=5.0)
LATEST = (1 << 62) - 1


@pytest.fixture
def manifest(make_manifest):
    return make_manifest(rounds={"matchmaking_seconds": 1, "chunk_seconds": 1, "allreduce_seconds": 8})


@asynccontextmanager
async def deciding(
    stations, manifest: Manifest, electorate: Electorate | None = None, tokens: int = 0, honest: int = 2
) -> AsyncIterator[tuple[list[Decider], ReplicaState]]:
    """So many peers at a state of so many tokens; they decide, or those of ``electorate`` do."""
    async with stations(honest, manifest) as started:
        peers = [Decider(manifest, station, NUMEL) for station in started]
        for each in peers:
            await each.open()
        found = electorate or Electorate().after([each.peer_id for each in peers], weak=True)
        state = replace(first_state(manifest, NUMEL, found), swarm_tokens=tokens)
        for each in peers:
            each.reach(state, [other.peer_id for other in peers])
        try:
            yield peers, state
        finally:
            for each in peers:
                await each.close()


def values(seed: int) -> torch.Tensor:
    """A contribution."""
    return torch.randn(NUMEL, generator=torch.Generator().manual_seed(seed)) * 1e-3


async def end(peers: list[Decider]) -> list[Ended]:
    """All of them bring something, and leave their state."""
    return await asyncio.gather(*(each.end(values(place)) for place, each in enumerate(peers)))


def assert_left(peers: list[Decider], ended: list[Ended]) -> None:
    """By one strong link, with what they have brought, to a state that all have; none of them is accused."""
    [link] = {each.link for each in ended}
    assert not link.choice.weak
    assert set(link.choice.makers) == {each.peer_id for each in peers}
    assert {each.computed.after.digest for each in ended if each.computed} == {link.after}
    assert all(each.computed for each in ended)
    for each in peers:
        assert not [one.maker for one, _ in each.proofs if one.maker in link.choice.makers]


def requests_of(
    swarm_id: str, state: str, key: Ed25519PrivateKey, other: Ed25519PrivateKey
) -> dict[str, bytes]:
    """What a stranger with ``key`` may report to a coordinator."""
    mine, yours = id_of(key), id_of(other)
    honest = said(swarm_id, key, Promise(mine, state, 0, Brought(mine, "1" * 64, 10)))
    stolen = said(swarm_id, other, Promise(yours, state, 0))
    accepted = said(swarm_id, other, Acceptance(yours, state, 0, "2" * 64, AFTER))
    forged = msgpack.packb([*msgpack.unpackb(honest.signed)[:2], bytes(256)])
    content = {"swarm": swarm_id, "state": state, "ballot": 0}
    heavy = sign(key, "promise", content | {"brought": {"digest": "1" * 64, "tokens": 1 << 62}})
    weightless = sign(key, "promise", content | {"brought": {"digest": "1" * 64, "tokens": 0}})

    def report(promise: bytes, **more: Any) -> bytes:
        return json.dumps({"state": state, "promise": as_text(promise), **more}).encode()

    def basis(*promises: bytes) -> dict[str, Any]:
        return {"word": as_text(honest.signed), "promises": list(map(as_text, promises))}

    return {
        "another's": report(stolen.signed),
        "with another's acceptance": report(honest.signed, acceptance=as_text(accepted.signed)),
        "of another swarm": report(said("other-0", key, Promise(mine, state, 0)).signed),
        "of another state": report(said(swarm_id, key, Promise(mine, OTHER, 0)).signed),
        "with a leave of another state": report(
            honest.signed,
            leaves=[{"promise": as_text(said(swarm_id, other, Promise(yours, OTHER, 0)).signed)}],
        ),
        "of another kind": report(accepted.signed),
        "forged": report(forged),
        "with a forged leave": report(honest.signed, leaves=[{"promise": as_text(forged)}]),
        "bound by a promise": report(honest.signed, basis=[basis()]),
        "too heavy": report(heavy),
        "of no tokens": report(weightless),
        "nested": report(nested_extensions()),
        "no base 64": json.dumps({"state": state, "promise": "?"}).encode(),
        "more": report(honest.signed, more=1),
        "too many held": report(honest.signed, held=[f"{each:064x}" for each in range(BROUGHT_MAX + 1)]),
        "too many leaves": report(b"", leaves=[{"promise": ""}] * (ROWS_MAX + 1)),
        "too many bases": report(honest.signed, basis=[basis()] * 17),
        "too many elements": report(honest.signed, leaves=[{}] * 7_000),
        "junk": b"[" * 1000,
        "nothing": b"",
    }


async def test_a_member_that_sends_nonsense(stations, manifest, identities) -> None:
    """It is answered with an error, comes onto no roll, and the others leave their state without it."""
    key, other = load_identity(identities[3]), load_identity(identities[2])
    async with (
        deciding(stations, manifest) as (peers, state),
        stranger_beside(*(each.station.address for each in peers), identity=identities[3]) as p2p,
    ):
        for name, request in requests_of(manifest.swarm_id, state.digest, key, other).items():
            for each in peers:
                each.station.p2p.limits._accounts.clear()  # a new one comes for the next
                reply = await call_raw(p2p, each.station.address, Deciding.rpc_report.name, request)
                assert reply[0] == Refusal.MALFORMED, name
        assert_left(peers, await end(peers))


async def test_a_state_that_nobody_knows(stations, manifest, identities) -> None:
    """Whoever reports how it leaves one is told so, and nothing is kept of it."""
    key = load_identity(identities[3])
    async with (
        deciding(stations, manifest) as (peers, _),
        stranger_beside(peers[0].station.address, identity=identities[3]) as p2p,
    ):
        promise = said(manifest.swarm_id, key, Promise(id_of(key), OTHER, 0))
        request = ReportMessage(state=OTHER, promise=as_text(promise.signed)).pack()
        reply = await call_raw(p2p, peers[0].station.address, Deciding.rpc_report.name, request)
        assert reply[0] == Refusal.NOT_HELD
        assert peers[0].deciding.desk_of(OTHER) is None


class Liar:
    """The coordinator of the first ballot, with what it may answer; the two others are honest.

    Attributes:
        others: their ids.
        state: that is to be left.
    """

    def __init__(self, swarm_id: str, key: Ed25519PrivateKey, others: list[str], state: str) -> None:
        self.me, self.others, self.state = id_of(key), others, state
        self._swarm_id, self._key = swarm_id, key
        self.mine = Brought(self.me, "1" * 64, 10)

    def said(self, word: W) -> W:
        """By it."""
        return said(self._swarm_id, self._key, word)

    def promise(self, **more: Any) -> Promise:
        """Its own."""
        return self.said(replace(Promise(self.me, self.state, 0, self.mine), **more))

    def proposal(self, *promises: Promise, ballot: int = 0, **choice: Any) -> Proposal:
        """Of what it brings itself."""
        chosen = Choice((self.mine,), **choice)
        return self.said(Proposal(self.me, self.state, ballot, chosen, promises))

    def link(self, **choice: Any) -> Link:
        """Of what it alone accepts."""
        chosen = Choice((self.mine,), **choice)
        word = self.said(Acceptance(self.me, self.state, 0, chosen.id, AFTER, weak=chosen.weak))
        return Link(self.state, 0, chosen, AFTER, (), (word,))

    @property
    def answers(self) -> dict[str, Callable[[Promise], bytes]]:
        """What it answers to whoever has come with a promise, by what is wrong with it."""
        roll, mine = (self.promise(),), self.promise()

        def pack(*fields: Any, **more: Any) -> bytes:
            return AnswerMessage.of(Answer(*fields, **more)).pack()

        return {
            "closed without you": lambda _: pack(0, roll=roll, closed=True),
            "what nobody has": lambda yours: pack(0, roll=(yours, mine), closed=True),
            "proposed without promises": lambda _: pack(0, roll=roll, closed=True, proposal=self.proposal()),
            "proposed by a minority": lambda _: pack(0, roll=roll, proposal=self.proposal(mine)),
            "proposed weakly": lambda yours: pack(0, proposal=self.proposal(mine, yours, weak=True)),
            "proposed for another ballot": lambda yours: pack(
                0, proposal=self.proposal(mine, yours, ballot=7)
            ),
            "a link of its own": lambda _: pack(0, link=self.link()),
            "a weak link of its own": lambda _: pack(0, link=self.link(weak=True)),
            "everybody has left": lambda _: pack(
                0, leaves=tuple(Report(replace(mine, maker=each, leaves=True)) for each in self.others)
            ),
            "far ahead": lambda _: pack(LATEST),
            "weak": lambda _: pack(0, weak=True, roll=roll, closed=True),
            "another state": lambda _: pack(0, roll=(self.promise(state=OTHER),)),
            "long": lambda _: b'{"roll": ["' + b"A" * 3_000_000 + b'"]}',
            "junk": lambda _: b"[" * 1000,
        }


KINDS = list(Liar("swarm-1", next(iter(keys_by_id(1).values())), [], STATE).answers)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_hostile_coordinator(stations, manifest, identities, kind: str) -> None:
    """Whose turn it is, and who answers what cannot be, is passed over: the others are a quorum.

    It answers at once, and they report to it no more often for that.
    """
    keys = list(map(load_identity, identities))
    honest, key, asked = sorted(map(id_of, keys[:2])), keys[3], list[str]()
    electorate = Electorate().after([*honest, id_of(key)], weak=True)
    tokens = next(
        each
        for each in count()
        if coordinator_of(electorate, _digest(manifest, electorate, each), 0) == id_of(key)
    )
    async with (
        deciding(stations, manifest, electorate, tokens) as (peers, state),
        stranger_beside(*(each.station.address for each in peers), identity=identities[3]) as p2p,
    ):
        answer = Liar(manifest.swarm_id, key, honest, state.digest).answers[kind]
        await answer_reports(p2p, manifest.swarm_id, answer, asked)
        began = time.monotonic()
        assert_left(peers, await end(peers))
        assert set(asked) == {*honest}
        again = AGAIN_AT_ONCE + AGAIN_PER_SECOND * (time.monotonic() - began)
        assert len(asked) <= len(honest) * (again + 20), "its answers keep them busy"


def _digest(manifest: Manifest, electorate: Electorate, tokens: int) -> str:
    return replace(first_state(manifest, NUMEL, electorate), swarm_tokens=tokens).digest


async def answer_reports(
    p2p: P2P, swarm_id: str, answer: Callable[[Promise], bytes], asked: list[str]
) -> None:
    """Be a coordinator."""
    words = Words(swarm_id)

    async def report(data: bytes, caller: PeerID) -> bytes:
        asked.append(str(caller))
        return ANSWERED + answer(ReportMessage.read(data).report(words, str(caller), inf).promise)

    await answer_raw(p2p, Deciding.rpc_report.name, report)


async def test_a_contribution_that_is_said_to_be_too_heavy(stations, manifest) -> None:
    """A member cannot say that it stands for more tokens than a round may have of one."""
    async with deciding(stations, manifest, honest=3) as (peers, state):
        liar, limit = peers[2], manifest.weight_limit(state.round)
        work = [asyncio.create_task(each.end(values(1), 10)) for each in peers[:2]]
        work.append(asyncio.create_task(liar.end(values(2), 1 << 61)))
        ended = await asyncio.gather(*work[:2])
        work[2].cancel()
        for each in ended:
            assert each.computed is not None
            assert each.computed.after.swarm_tokens - state.swarm_tokens <= 3 * limit


async def test_a_report_full_of_words(stations, manifest, identities, monkeypatch) -> None:
    """As long as it may be, each signature valid and new: it does not hold the event loop for long."""
    key, leavers = load_identity(identities[3]), keys_by_id(500)
    async with (
        deciding(stations, manifest) as (peers, state),
        stranger_beside(peers[0].station.address, identity=identities[3]) as p2p,
    ):
        swarm, digest = manifest.swarm_id, state.digest
        refused = tuple(f"{number:064x}" for number in range(6))
        words = {
            peer: Promise(peer, digest, 0, Brought(peer, digest, 1), None, refused, leaves=True)
            for peer in leavers
        }
        leaves = tuple(Report(said(swarm, each, words[peer])) for peer, each in leavers.items())
        promise = said(swarm, key, Promise(id_of(key), digest, 0))
        each = len(ReportMessage.of(Report(promise, leaves=leaves)).pack()) / len(leaves)
        some = leaves[: int(0.98 * REPORT_BYTES_MAX / each)]
        request = ReportMessage.of(Report(promise, leaves=some)).pack()
        assert 0.9 * REPORT_BYTES_MAX < len(request) <= REPORT_BYTES_MAX
        with assert_not_held("Deciding.rpc_report", monkeypatch):
            reply = await call_raw(p2p, peers[0].station.address, Deciding.rpc_report.name, request)
        assert reply[:1] == ANSWERED


MEMBERS = [f"{number}" * 46 for number in range(1, 4)]
ELECTORATE = Electorate().after(MEMBERS, weak=True)


def round_of(peer: str, electorate: Electorate = ELECTORATE) -> Round:
    """One member's part in leaving a state, to which it brings something; signatures are left out."""
    found = Round(Ballots(Voice(peer), STATE, electorate, PACE, 0.0))
    found.bring(Brought(peer, MEMBERS.index(peer) * "0" + (64 - MEMBERS.index(peer)) * "1", 10), 0.0)
    return found


def strangers(number: int) -> list[str]:
    """Ids of as many as somebody cares to make."""
    return [f"{each:046d}".replace("0", "z") for each in range(number)]


def assert_goes_on(round: Round) -> None:
    """What it says can be told, as it would end its round if that could not be."""
    others = {*MEMBERS} - {round.ballots.me}
    for now in (0.5, 12.0, 40.0, 60.0):
        for each in round.stock.missing:
            round.stock.held.add(each.digest)
        round.consider(now, others)
        ReportMessage.read(ReportMessage.of(round.report()).pack())
        AnswerMessage.read(AnswerMessage.of(round.answer()).pack())


def coordinating() -> Round:
    """That of the coordinator of the first ballot, to which one other has come."""
    coordinator = coordinator_of(ELECTORATE, STATE, 0)
    found, other = round_of(coordinator), next(each for each in MEMBERS if each != coordinator)
    found.note(round_of(other).report(), 0.0)
    return found


def test_too_many_strangers_come() -> None:
    """More than an answer has room for, each with a promise: the others are answered all the same."""
    found = coordinating()
    for peer in strangers(ROWS_MAX + 10):
        found.note(Report(Promise(peer, STATE, 0)), 0.0)
    assert_goes_on(found)


def test_too_many_strangers_bring_something() -> None:
    """More than a choice has room for, each a contribution that is there."""
    found = coordinating()
    for number, peer in enumerate(strangers(BROUGHT_MAX + 10)):
        brought = Brought(peer, f"{number:064x}", 10)
        found.note(Report(Promise(peer, STATE, 0, brought), held=frozenset({brought.digest})), 0.0)
    assert_goes_on(found)


def test_too_many_strangers_leave() -> None:
    """More than a report has room for: who decides nothing need not say that it leaves."""
    found = coordinating()
    leaves = tuple(Report(Promise(peer, STATE, 0, leaves=True)) for peer in strangers(2 * ROWS_MAX))
    for some in (leaves[:ROWS_MAX], leaves[ROWS_MAX:]):
        found.note(Report(Promise("y" * 46, STATE, 0), leaves=some), 0.0)
    assert_goes_on(found)


def test_one_that_brings_something_else_each_time() -> None:
    """It makes nobody fetch, or remember, more than a few of them."""
    found = coordinating()
    for number in range(4 * BROUGHT_MAX):
        brought = Brought("y" * 46, f"{number:064x}", 10)
        found.note(Report(Promise("y" * 46, STATE, 0, brought)), 0.0)
        for each in found.stock.missing:
            found.stock.held.add(each.digest)
    assert len(found.stock.held) <= OF_ONE_MAX + len(MEMBERS)


def test_what_strangers_bring_hides_nothing_of_the_electorates() -> None:
    """Of more contributions than can be told, those of the electorate are."""
    found = coordinating()
    found.stock.learn([Brought(MEMBERS[1], "f" * 64, 10)])
    for digest in ("f" * 64, *(f"{number:064x}" for number in range(BROUGHT_MAX))):
        found.stock.held.add(digest)
    assert "f" * 64 in found.stock.told
    assert len(found.stock.told) == BROUGHT_MAX


def test_one_that_holds_something_else_each_time() -> None:
    """What it says that it holds is remembered as far as a round may have contributions."""
    found = coordinating()
    for number in range(16):
        held = frozenset(f"{number * BROUGHT_MAX + each:064x}" for each in range(BROUGHT_MAX))
        found.note(Report(Promise("y" * 46, STATE, 0), held=held), 0.0)
    assert len(found.stock.held_by["y" * 46]) <= 2 * BROUGHT_MAX


@pytest.mark.parametrize("count", [2, 3])
def test_one_that_is_far_ahead(count: int) -> None:
    """Nobody follows one liar to a ballot beyond which there is none."""
    electorate = Electorate().after(MEMBERS[:count], weak=True)
    found = round_of(MEMBERS[0], electorate)
    liar, last = MEMBERS[1], LATEST - 1
    found.note(Report(Promise(liar, STATE, last)), 0.0)
    found.hear(liar, Answer(last), 0.0)
    assert found.ballots.ballot < 1 << 31
    assert_goes_on(found)


def test_a_leave_that_is_not_its_makers() -> None:
    """A promise that is said to be a leave, and is none, counts for nothing."""
    found, other = coordinating(), MEMBERS[2]
    found.note(Report(Promise("y" * 46, STATE, 0), leaves=(Report(Promise(other, STATE, 0)),)), 0.0)
    assert not found.ballots._who_left


def test_a_leave_with_words_of_others() -> None:
    """What its maker need not show, as it has accepted nothing, is not repeated in each message."""
    found, other, liar = coordinating(), MEMBERS[2], MEMBERS[1]
    junk = tuple(Promise(liar, STATE, 0, Brought(liar, f"{each:064x}", 10)) for each in range(ROWS_MAX))
    leave = Promise(other, STATE, 0, leaves=True)
    found.note(Report(leave, Proposal(other, STATE, 0, Choice(()), junk)), 0.0)
    assert found.answer().leaves == found.report().leaves == (Report(leave),)
    assert_goes_on(found)


def test_an_acceptance_that_nobody_can_show() -> None:
    """Who says that it has accepted something earlier, and shows no proposal, has not come."""
    coordinator = coordinator_of(ELECTORATE, STATE, 0)
    found, liar = round_of(coordinator), next(each for each in MEMBERS if each != coordinator)
    forged = Accepted(0, Choice((Brought(liar, OTHER, 10),)).id, AFTER)
    found.note(Report(Promise(liar, STATE, 0, accepted=forged)), 0.0)
    assert liar not in {each.maker for each in found.answer().roll}
