"""The exchange `share` between real peers on loopback."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.host import background
from dupt_swarm.network.rounds import share
from dupt_swarm.network.rounds.reduce import Reduce
from dupt_swarm.network.rounds.session import Ended
from dupt_swarm.network.rounds.share import SHELF_ROUNDS, RoundShelf, Share, _Fetching
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Brought
from dupt_swarm.replica.state import ReplicaState
from tests.support.contributions import encoded
from tests.support.deciders import Decider, deciding_at, state_of, step

NUMEL = 300_000
WEIGHTS = (10_000, 20_000, 5_000)


@pytest.fixture
def make_sharing(make_manifest):
    """The manifest of a swarm that shares, with time limits of seconds."""

    def make(codec: str = "fp32", seconds: float = 30, rule: str = "mean", gather: float = 20) -> Manifest:
        times = {"matchmaking_seconds": gather, "chunk_seconds": 3, "allreduce_seconds": seconds}
        return make_manifest(rounds=times, encoding={"contribution": codec}, aggregation={"rule": rule})

    return make


@pytest.fixture
def contributions() -> list[torch.Tensor]:
    """Three, whose norms have the same bits: none is clipped."""
    draws = [torch.randn(NUMEL, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    return [draws[0].abs() * draw.sign() * 1e-3 for draw in draws]


@pytest.fixture
def sharing(stations):
    """``async with sharing(3, manifest=manifest) as (peers, state)`` starts so many members."""
    return partial(deciding_at, stations, numel=NUMEL)


async def end_all(peers: Sequence[Decider], contributions: Sequence[torch.Tensor]) -> list[Ended]:
    """All bring what they have, and leave the state."""
    return await asyncio.gather(
        *(
            each.end(values, tokens)
            for each, values, tokens in zip(peers, contributions, WEIGHTS, strict=True)
        )
    )


async def test_a_peer_that_cannot_be_called_takes_part(sharing, make_sharing, contributions) -> None:
    """Members behind routers coordinate nothing; what they bring counts, and they get the average."""
    async with sharing(manifest=make_sharing(), hidden=(1, 2)) as (peers, _):
        ended = await end_all(peers, contributions)
        [link] = {each.link for each in ended}
        assert set(link.counted) == {each.peer_id for each in peers} and not link.choice.weak
        assert {state_of(each).swarm_tokens for each in ended} == {35_000}
        for each in peers:
            assert each.deciding._desks[link.state].round.ballots.coordinator == peers[0].peer_id


@pytest.mark.parametrize(
    ("codec", "rule"),
    [
        ("fp32", "mean"),
        ("two_bit", "mean"),
        ("two_bit", "agreeing_mean"),
    ],
)
async def test_all_compute_the_same_average(sharing, make_sharing, contributions, codec, rule) -> None:
    """Three members get bit for bit the same state; with exact contributions, the one computed by hand."""
    manifest = make_sharing(codec, rule=rule)
    async with sharing(manifest=manifest) as (peers, state):
        ended = await end_all(peers, contributions)
        [digest] = {state_of(each).digest for each in ended}
        assert {state_of(each).swarm_tokens for each in ended} == {35_000}
        averaged = [each.computed.averaged for each in ended if each.computed is not None]
        assert [list(each.blobs) for each in averaged] == [list(averaged[0].blobs)] * 3
        assert {each.counted for each in averaged} == {tuple(sorted(peer.peer_id for peer in peers))}
        if codec == "fp32":
            by_id = sorted(zip((each.peer_id for each in peers), contributions, WEIGHTS, strict=True))
            [(_, one, w1), (_, two, w2), (_, three, w3)] = by_id
            expected = one * (w1 / 35_000) + two * (w2 / 35_000) + three * (w3 / 35_000)
            makers = [each.peer_id for each in peers]
            assert step(manifest, state, expected, 35_000, makers).digest == digest


def test_strangers_take_few_places() -> None:
    """However slow they are, there is room for what the electorate brings; where nobody votes, for all."""
    electorate = Electorate().after("ab", weak=True)
    wanted = [Brought(maker, f"{maker}1", 1) for maker in "axyz"]

    def fetching(voters: Electorate) -> _Fetching:
        before = SimpleNamespace(electorate=voters)
        return _Fetching(SimpleNamespace(before=before, wanted=wanted, donors=lambda _: []))

    found = fetching(electorate)
    assert found.rarest(members=False) == found.rarest(members=True) == wanted[0]
    found.under_way.add("a1")
    assert found.rarest(members=True) is None
    assert found.rarest(members=False) in wanted[1:]
    found.failures.update(["x1", "y1"])
    for _ in range(30):  # what could not be had comes last
        assert found.rarest(members=False) == wanted[3]
    assert fetching(Electorate()).rarest(members=True) in wanted


async def test_alone(sharing, make_sharing, contributions) -> None:
    """Who is alone gets its own contribution, and what is needed to compute the round again."""
    manifest = make_sharing()
    async with sharing(1, manifest=manifest) as ([peer], state):
        ended = await peer.end(contributions[0], WEIGHTS[0])
        expected = step(manifest, state, contributions[0], WEIGHTS[0], [peer.peer_id])
        assert state_of(ended).digest == expected.digest
        assert ended.computed is not None
        [brought] = ended.link.choice.brought
        assert list(ended.computed.averaged.blobs) == [brought.digest]


async def test_a_peer_that_gives_its_contribution_to_nobody_is_left_out(
    sharing, make_sharing, contributions
) -> None:
    """What not more than half hold does not count; its maker gets the others' state all the same."""
    async with sharing(manifest=make_sharing(seconds=10)) as (peers, _):
        miser = peers[2].peer_id
        peers[2].blobs._shelves.clear()
        ended = await end_all(peers, contributions)
        [link] = {each.link for each in ended}
        assert set(link.choice.makers) == {peers[0].peer_id, peers[1].peer_id}
        assert miser not in link.counted and not link.choice.weak
        assert {state_of(each).digest for each in ended} == {link.after}
        assert {state_of(each).swarm_tokens for each in ended} == {30_000}


@pytest.mark.parametrize("first", [False, True])
async def test_a_member_that_is_silent_costs_nobody_the_round(
    sharing, make_sharing, contributions, first
) -> None:
    """Two of three end the round in time without the third, which had everything and then said nothing.

    If it does not coordinate, its own counts: they had it. Else they choose again, from what is there then.
    """
    async with sharing(manifest=make_sharing(gather=3)) as (peers, _):
        coordinator = peers[0].deciding.present.round.ballots.coordinator
        silent = next(each for each in peers if (each.peer_id == coordinator) is first)
        others = [each for each in peers if each is not silent]
        fell_silent = asyncio.Event()

        async def says_no_more(_: ReplicaState) -> bool:
            silent.seen.refused = {each.peer_id for each in others}
            silent.deciding.rest()
            fell_silent.set()
            return await asyncio.Event().wait()

        async def accepts_later(_: ReplicaState) -> bool:
            return await fell_silent.wait()

        silent.deciding.accepts = says_no_more
        for each in others:  # else both may have decided before the third looks at anything
            each.deciding.accepts = accepts_later
        tasks = [
            asyncio.create_task(each.end(values, tokens))
            for each, values, tokens in zip((*others, silent), contributions, WEIGHTS, strict=True)
        ]
        ended = await asyncio.gather(*tasks[:2])
        [link] = {each.link for each in ended}
        assert {state_of(each).digest for each in ended} == {link.after}
        assert link.makers == {each.peer_id for each in others} and not link.choice.weak
        if not first:
            assert link.ballot == 0 and state_of(ended[0]).swarm_tokens == 35_000
        await asyncio.wait([tasks[2]])
        assert tasks[2].cancelled()


async def test_what_is_not_what_its_maker_has_signed_for_is_left_out(
    sharing, make_sharing, contributions
) -> None:
    """A contribution that claims more tokens than its maker states is held by nobody, and does not count."""
    async with sharing(manifest=make_sharing(seconds=10)) as (peers, _):
        liar = peers[2]
        prepare = liar.context.exchange.prepare

        async def with_more_tokens(contribution: bytes | memoryview, claim: Claim) -> Brought:
            return replace(await prepare(contribution, claim), tokens=claim.tokens + 1)

        liar.context.exchange.prepare = with_more_tokens
        ended = await end_all(peers, contributions)
        [link] = {each.link for each in ended}
        assert set(link.choice.makers) == {peers[0].peer_id, peers[1].peer_id}
        assert {state_of(each).digest for each in ended} == {link.after}


async def test_what_is_unusable_is_asked_for_once(make_sharing, monkeypatch) -> None:
    """No honest member will hold it, so nobody is kept busy by it."""
    monkeypatch.setattr(share, "RETRY_SECONDS", 0.0)
    idle, asked = asyncio.Event(), list[str]()

    async def fetch_index(digest: str, _: object) -> None:
        asked.append(digest)
        raise ValueError("of another form")

    async def change(_: float) -> None:
        idle.set()
        await asyncio.Event().wait()

    before, wanted = SimpleNamespace(electorate=Electorate()), [Brought("a", "a1", 1)]
    floor = SimpleNamespace(before=before, wanted=wanted, donors=lambda _: [], change=change)
    fetching = Share(make_sharing(), 10, cast(Any, SimpleNamespace(fetch_index=fetch_index)))
    async with background(fetching._fetch_forever(_Fetching(floor), members=False)), asyncio.timeout(5):
        await idle.wait()
    assert asked == ["a1"]


@pytest.mark.parametrize("exchange", [Share, Reduce])
async def test_what_is_brought_stays_as_it_was(make_sharing, exchange) -> None:
    """The trainer writes its next contribution where this one was."""
    manifest = make_sharing()
    written = bytearray(encoded(torch.ones(10), manifest))
    before = bytes(written)
    bringing = exchange(manifest, 10, SimpleNamespace(peer_id="a"))
    brought = await bringing.prepare(written, Claim(1, "0" * 64, 10, "a"))
    written[:] = bytes(len(written))
    if exchange is Share:
        [kept] = bringing._held(brought.digest).sections
    else:
        _, kept = bringing._given[brought.digest]
    assert bytes(kept) == before


def test_a_shelf_has_the_last_rounds() -> None:
    """Contributions of earlier ones take no memory any more."""
    shelf, blobs = RoundShelf(), [Blob.build({}, [bytes([number])]) for number in range(SHELF_ROUNDS + 1)]
    for number, blob in enumerate(blobs):
        shelf.add(f"{number}" * 64, blob)
    assert shelf.blobs == blobs[1:]
    assert [shelf.get(blob.digest) for blob in blobs] == [None, *blobs[1:]]
