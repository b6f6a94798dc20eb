"""Real peers on loopback leave states together."""

import asyncio
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.rounds.deciding import WARY_ROUNDS, Deciding
from dupt_swarm.network.rounds.messages import AnswerMessage, ReportMessage
from dupt_swarm.network.rounds.pledges import Pledges
from dupt_swarm.network.rounds.round import Roll
from dupt_swarm.network.rounds.session import Ended, Session
from dupt_swarm.network.rounds.share import Share
from dupt_swarm.replica.codec import PART_VALUES
from dupt_swarm.replica.electorate import PROBATION_ROUNDS
from dupt_swarm.replica.link import Link
from dupt_swarm.replica.signed_words import Words
from dupt_swarm.replica.state import ReplicaState
from tests.support.contributions import encoded
from tests.support.deciders import Decider, deciding_at, state_of
from tests.support.words import STATE, choice, link

NUMEL = 3_000
ENDING_SECONDS = 10.0


@pytest.fixture
def manifest(make_manifest):
    """Of a swarm whose time limits are seconds."""
    return make_manifest(rounds={"matchmaking_seconds": 5, "chunk_seconds": 2, "allreduce_seconds": 20})


@pytest.fixture
def deciders(stations, manifest):
    """``async with deciders(3) as (peers, state)``: so many peers at one state, all of which decide."""
    return partial(deciding_at, stations, manifest=manifest, numel=NUMEL)


def values(seed: int, numel: int = NUMEL) -> torch.Tensor:
    """A contribution."""
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed)) * 1e-3


def link_of(ended: Iterable[Ended]) -> Link:
    """That by which all have left the state."""
    links = {each.link for each in ended}
    assert len(links) == 1
    return links.pop()


def reducing(manifest: Manifest) -> Manifest:
    """The same, where each member averages a share."""
    rounds = manifest.rounds.model_copy(update={"exchange": "reduce"})
    return manifest.model_copy(update={"rounds": rounds})


@pytest.fixture(params=[lambda manifest: manifest, reducing], ids=["share", "reduce"])
def either(manifest, request: pytest.FixtureRequest) -> Manifest:
    """Of a swarm with each of the exchanges."""
    return request.param(manifest)


async def test_several_rounds(deciders, either) -> None:
    """Three peers leave state after state by strong links, and have the same bits each time."""
    async with deciders(3, manifest=either) as (peers, state):
        everybody = {each.peer_id for each in peers}
        for number in range(3):
            ended = await asyncio.gather(
                *(each.end(values(3 * number + place)) for place, each in enumerate(peers))
            )
            link = link_of(ended)
            assert (link.state, link.ballot, link.choice.weak) == (state.digest, 0, False)
            assert set(link.choice.makers) == everybody and not link.dropped
            assert 2 <= len(link.makers) <= 3
            [digest] = {each.computed.after.digest for each in ended if each.computed is not None}
            assert digest == link.after
            link.check(state.electorate)
            state = ended[0].computed.after
            assert state.round == number + 2 and state.swarm_tokens == 30 * (number + 1)
            assert state.electorate.members == everybody
            for each in peers:
                each.reach(state, everybody)
        assert [each.proofs for each in peers] == [[]] * 3


@pytest.mark.usefixtures("no_garbage_collected")
async def test_a_state_that_was_left_takes_no_memory(deciders, either) -> None:
    """Nothing of its session stays, whose states have gigabytes: not even until garbage is looked for."""
    async with deciders(3, manifest=either) as (peers, _):
        everybody, left = {each.peer_id for each in peers}, []
        for number in range(3):
            left += [weakref.ref(each.deciding.present) for each in peers]
            ended = await asyncio.gather(
                *(each.end(values(3 * number + place)) for place, each in enumerate(peers))
            )
            for each, one in zip(peers, ended, strict=True):
                each.reach(state_of(one), everybody)
            del ended, one
        async with asyncio.timeout(ENDING_SECONDS):  # their last reports are cancelled and waited for
            while any(each() is not None for each in left):
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("first", [False, True])
async def test_one_dies_in_an_all_reduce(deciders, manifest, first: bool) -> None:
    """The next ballot is without it, be it the coordinator or another."""
    numel = 3 * PART_VALUES  # a share for each
    async with deciders(3, manifest=reducing(manifest), numel=numel) as (peers, _):
        coordinator = peers[0].deciding.present.round.ballots.coordinator
        dying = next(each for each in peers if (each.peer_id == coordinator) is first)
        others = [each for each in peers if each is not dying]
        dead = asyncio.Event()

        async def dies(roll: Roll) -> bool:
            del roll
            dying.deciding.rest()
            dying.seen.refused = {each.peer_id for each in others}
            for each in others:
                each.seen.gone = {dying.peer_id}
            dead.set()
            return False

        dying.context.exchange._reduce = dies
        ending = asyncio.create_task(dying.end(values(0, numel)))
        ended = await asyncio.gather(*(each.end(values(1, numel)) for each in others))
        assert dead.is_set()
        link = link_of(ended)
        assert set(link.choice.makers) == {each.peer_id for each in others}
        assert link.ballot > 0 and not link.choice.weak
        ending.cancel()


async def test_alone(deciders) -> None:
    """Who is alone leaves its state by itself, and at once."""
    async with deciders(1) as ([peer], state):
        ended = await peer.end(values(1))
        assert ended.computed is not None and ended.computed.after.round == state.round + 1
        assert ended.link.makers == {peer.peer_id} and not ended.link.choice.weak


async def test_newcomers_bring_and_do_not_decide(deciders) -> None:
    """What two newcomers bring is in the state that one peer decides upon, and they compute it too."""
    async with deciders(3, electing=1) as (peers, _):
        ended = await asyncio.gather(*(each.end(values(place)) for place, each in enumerate(peers)))
        link = link_of(ended)
        assert link.makers == {peers[0].peer_id}
        assert set(link.choice.makers) == {each.peer_id for each in peers}
        after = ended[2].computed.after
        assert after.digest == link.after and after.electorate.members == {peers[0].peer_id}
        rounds = {peer: row[0] for peer, row in after.electorate.services.items()}
        assert rounds.pop(peers[0].peer_id) > PROBATION_ROUNDS
        assert set(rounds.values()) <= {1}


async def test_the_first_round(deciders) -> None:
    """Nobody decides yet: those who are there go on together, and are the electorate from then on."""
    async with deciders(3, electing=0) as (peers, state):
        assert not state.electorate.members
        ended = await asyncio.gather(*(each.end(values(place)) for place, each in enumerate(peers)))
        [link] = {each.link.after: each.link for each in ended}.values()
        assert link.choice.weak and link.makers == {each.peer_id for each in peers}
        assert ended[0].computed.after.electorate.members == link.makers


async def test_a_coordinator_that_is_silent(deciders) -> None:
    """The others turn to the next ballot, and who comes back hears what they have decided."""
    async with deciders(3) as (peers, state):
        first = peers[0].deciding.present.round.ballots.coordinator
        [silent] = [each for each in peers if each.peer_id == first]
        others = [each for each in peers if each is not silent]
        silent.deciding.rest()
        silent.seen.refused = {each.peer_id for each in others}
        ended = await asyncio.gather(*(each.end(values(place)) for place, each in enumerate(others)))
        link = link_of(ended)
        assert link.ballot > 0 and not link.choice.weak
        silent.seen.refused.clear()
        silent.deciding._desks.clear()
        silent.reach(state, [each.peer_id for each in peers])
        late = await silent.end(values(7))
        assert late.link == link
        assert late.computed is not None and late.computed.after.digest == link.after


def coordinator_first(peers: Iterable[Decider]) -> list[Decider]:
    """These, whoever it is: the coordinator hears what is decided, also while it trains."""

    def is_another(peer: Decider) -> bool:
        assert peer.deciding.present is not None
        return peer.peer_id != peer.deciding.present.round.ballots.coordinator

    return sorted(peers, key=is_another)


async def left_without(last: Decider, others: Sequence[Decider]) -> tuple[Link, Session]:
    """By which link the ``others`` have left their state, and how the ``last`` one stands to that."""
    session = last.deciding.present
    assert session is not None
    for each in others:
        each.seen.at[session.state] = {other.peer_id for other in others}
    ended = await asyncio.gather(*(each.end(values(place)) for place, each in enumerate(others)))
    assert last.deciding.next_state == ""
    return ended[0].link, session


async def test_a_peer_that_is_told_the_link_goes_on_by_it(deciders) -> None:
    """The others have ended a round while one still trains: it gets what they brought, and computes."""
    async with deciders(3) as (peers, _):
        *others, last = coordinator_first(peers)
        link, session = await left_without(last, others)
        deciding = last.deciding
        assert not deciding.follow(replace(link, state=link.after)) and session.round.link is None
        assert deciding.follow(link) and deciding.next_state == link.after
        ended = await session.ended
        assert ended.link == link
        assert ended.computed is not None and ended.computed.after.digest == link.after
        assert deciding.follow(link)  # another tells it again


async def test_what_leads_elsewhere_here_is_not_taken(deciders) -> None:
    """Whoever has signed for it, nobody goes on from a state that is not its chain's."""
    async with deciders(3) as (peers, _):
        *others, last = coordinator_first(peers)
        link, session = await left_without(last, others)
        assert last.deciding.follow(replace(link, after="f" * 64))
        assert (await session.ended).computed is None


async def test_what_cannot_be_computed_is_not_tried_again(deciders) -> None:
    """What the others brought is not to be had any more: the state has to come in another way."""
    async with deciders(3) as (peers, state):
        *others, last = coordinator_first(peers)
        link, session = await left_without(last, others)
        for each in others:
            exchange = each.context.exchange
            assert isinstance(exchange, Share)
            exchange._shelf._rounds.clear()
        deciding, ballots = last.deciding, session.round.ballots
        ballots.pace = replace(ballots.pace, exchange=0.5)
        assert deciding.follow(link)
        assert (await session.ended).computed is None
        assert deciding.present is None and not deciding.follow(link)
        last.reach(state, [])
        assert not deciding.follow(link) and deciding.next_state == ""


async def test_a_peer_that_leaves_is_not_missed(deciders) -> None:
    """One of two says that it leaves: the other decides alone, by a strong link that names the leave."""
    async with deciders(2) as ((one, other), state):
        await one.deciding.leave()
        other.seen.at[state.digest] = set()
        ended = await other.end(values(1))
        assert not ended.link.choice.weak
        assert ended.link.choice.left == (one.peer_id,) and ended.link.left == {one.peer_id}
        assert ended.computed.after.electorate.members == {other.peer_id}


async def test_half_are_gone(deciders) -> None:
    """Where nobody listens any more: who is left goes on with a weak link, once that is seen."""
    async with deciders(2) as ((one, other), _):
        one.deciding.rest()
        one.seen.refused = {other.peer_id}
        other.seen.gone = {one.peer_id}
        ended = await other.end(values(1))
        assert ended.link.choice.weak and ended.link.makers == {other.peer_id}
        assert ended.computed.after.electorate.members == {other.peer_id}


async def test_what_does_harm_is_refused(deciders) -> None:
    """Two of three refuse what all have brought: the next ballot goes on without the newcomer's."""
    async with deciders(4, electing=3) as (peers, _):
        newcomer = peers[3].peer_id

        for each in peers[:2]:

            async def accepts(after: ReplicaState) -> bool:
                return newcomer not in after.electorate.services

            each.deciding.accepts = accepts
        ended = await asyncio.gather(*(each.end(values(place)) for place, each in enumerate(peers)))
        link = link_of(ended)
        assert newcomer not in link.choice.makers and link.ballot > 0
        assert not any(each.proofs for each in peers)


async def test_a_rejection_is_remembered(deciders) -> None:
    """For some rounds ballots take no more than what the electorate brings."""
    async with deciders(1) as ([peer], state):

        async def refuses(_: ReplicaState) -> bool:
            return False

        peer.deciding.accepts = refuses
        assert await peer.deciding.end(encoded(values(1), peer.manifest), 10) is None
        wary = []
        for rounds in (1, WARY_ROUNDS - 1, WARY_ROUNDS):
            peer.reach(replace(state, round=state.round + rounds), [])
            assert peer.deciding.present is not None
            wary.append(peer.deciding.present.round.ballots._wary)
        assert wary == [True, True, False]


async def test_a_crash_makes_no_liar(deciders, manifest, tmp_path) -> None:
    """One of three is started again after it has accepted, and goes on with its word: no proof against it."""
    async with deciders(3) as (peers, state):
        everybody = {each.peer_id for each in peers}
        first = peers[0].deciding.present.round.ballots.coordinator
        one = next(each for each in peers if each.peer_id != first)
        others = [each for each in peers if each is not one]
        one.context.pledges._path = tmp_path / "pledges.json"
        ask, accepted = one.deciding.ask, asyncio.Event()

        async def until_it_accepts(peer: str, message: ReportMessage) -> AnswerMessage:
            if message.acceptance:
                accepted.set()
                await asyncio.sleep(60)
            return await ask(peer, message)

        async def later(_: ReplicaState) -> bool:
            await accepted.wait()
            return True

        for each in others:
            each.deciding.accepts = later
        await one.close()
        one.context.pledges._kept.clear()  # nobody has heard of them yet
        one.deciding._desks.clear()
        one.deciding.ask = until_it_accepts
        one.reach(state, everybody)
        ending = [asyncio.create_task(each.end(values(3))) for each in (one, *others)]
        await accepted.wait()
        before = one.deciding.present.round.report()
        await one.close()  # it crashes
        one.deciding._desks.clear()
        one.deciding.ask = ask
        again = Pledges(tmp_path / "pledges.json").of(state.digest, Words(manifest.swarm_id))
        assert again is not None and again.accepted == before.acceptance.accepted
        one.reach(state, everybody)
        assert one.deciding.present.round.ballots.ballot > before.promise.ballot
        ended = await asyncio.gather(one.end(values(3)), *ending[1:])
        link = link_of(ended)
        assert link.after == before.acceptance.after
        assert [each.proofs for each in peers] == [[]] * 3
        ending[0].cancel()


def test_who_has_signed_otherwise_than_for_our_link() -> None:
    """It is exposed by what it signed for another, also by the leave that ours has; a desk compares too."""
    ours, proofs, compared = link("abc", choice("abc"), left="d"), list[str](), list[Any]()
    deciding = Deciding(
        cast(Any, SimpleNamespace(manifest=SimpleNamespace(swarm_id="swarm"))),
        cast(Any, None),
        {STATE: ours}.get,
        lambda one, _: proofs.append(one.maker),
    )
    other = link("ade", choice("de"), after="ef" * 32)
    for each in (ours, replace(other, state="f" * 64), other):
        deciding.compare(each)
    assert sorted(proofs) == ["a", "d"]
    deciding._desks[STATE] = cast(Any, SimpleNamespace(evidence=SimpleNamespace(note=compared.append)))
    deciding.compare(other)
    assert compared == [other.words]
