"""The exchange `share` between real nodes on loopback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import torch

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging import share
from dupt_swarm.network.averaging.exchange import ExchangeOutcome
from dupt_swarm.network.averaging.pledge import Proof
from dupt_swarm.network.averaging.session import Session
from tests.support.averages import Averaging, Received, open_averaging, start_round

NUMEL = 300_000
WEIGHTS = (10_000, 20_000, 5_000)


@pytest.fixture
def make_sharing(make_manifest):
    """The manifest of a swarm that shares, with time limits of seconds."""

    def make(codec: str = "fp32", seconds: float = 30, rule: str = "mean") -> Manifest:
        times = {"matchmaking_seconds": 20, "chunk_seconds": 3, "allreduce_seconds": seconds}
        return make_manifest(rounds=times, encoding={"contribution": codec}, aggregation={"rule": rule})

    return make


@pytest.fixture
def contributions() -> list[torch.Tensor]:
    """Three, whose norms have the same bits: none is clipped."""
    draws = [torch.randn(NUMEL, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    return [draws[0].abs() * draw.sign() * 1e-3 for draw in draws]


@pytest.fixture
def sharing(stations):
    """``async with sharing(manifest, 3) as averagers`` starts so many members."""

    @asynccontextmanager
    async def start(manifest: Manifest, count: int = 3, hidden: int = 0) -> AsyncIterator[list[Averaging]]:
        async with stations(count, manifest) as peers:
            yield [
                await open_averaging(manifest, peer, NUMEL, callable=number < count - hidden)
                for number, peer in enumerate(peers)
            ]

    return start


def bits_of(received: Received) -> bytes:
    assert received.values is not None, received.reason
    return received.values.numpy().tobytes()


def run(scenario: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario, 90))


def test_who_cannot_be_called_takes_part(sharing, make_sharing, contributions) -> None:
    """Members behind routers coordinate nothing; what they bring counts, and they get the average."""

    async def scenario() -> None:
        async with sharing(make_sharing(), hidden=2) as averagers:
            results = await asyncio.gather(*start_round(averagers, contributions, WEIGHTS))
            assert len({bits_of(result) for result in results}) == 1
            assert {result.tokens for result in results} == {35_000}
            assert [each.included for each in results] == [True] * 3

    run(scenario())


@pytest.mark.parametrize(
    ("codec", "rule"),
    [
        ("fp32", "mean"),
        ("two_bit", "mean"),
        ("two_bit", "agreeing_mean"),
    ],
)
def test_all_compute_the_same_average(sharing, make_sharing, contributions, codec, rule) -> None:
    """Three members get bit for bit the same average; with exact contributions, the one computed by hand."""

    async def scenario() -> None:
        async with sharing(make_sharing(codec, rule=rule)) as averagers:
            results = await asyncio.gather(*start_round(averagers, contributions, WEIGHTS))
            assert len({bits_of(result) for result in results}) == 1
            assert {result.tokens for result in results} == {35_000}
            evidence = [result.evidence for result in results if result.evidence is not None]
            assert [each.inputs for each in evidence] == [evidence[0].inputs] * 3
            if codec == "fp32":
                by_id = sorted(zip((a.peer_id for a in averagers), contributions, WEIGHTS, strict=True))
                [(_, one, w1), (_, two, w2), (_, three, w3)] = by_id
                expected = one * (w1 / 35_000) + two * (w2 / 35_000) + three * (w3 / 35_000)
                assert bits_of(results[0]) == expected.numpy().tobytes()

    run(scenario())


def test_alone(sharing, make_sharing, contributions) -> None:
    """Who is alone gets its own contribution, and what is needed to compute the round again."""

    async def scenario() -> None:
        async with sharing(make_sharing(), 1) as [averager]:
            [result] = await asyncio.gather(*start_round([averager], contributions[:1], WEIGHTS[:1]))
            assert bits_of(result) == contributions[0].numpy().tobytes()
            assert result.evidence is not None
            assert [each.maker for each in result.evidence.inputs] == [averager.peer_id]

    run(scenario())


def test_who_gives_its_contribution_to_nobody_is_left_out(sharing, make_sharing, contributions) -> None:
    """What not more than half hold does not count; its maker gets the others' average all the same."""

    async def scenario() -> None:
        async with sharing(make_sharing(seconds=10)) as averagers:
            miser = averagers[2].peer_id
            averagers[2].context.blobs._shelves.clear()
            one, two, own = await asyncio.gather(*start_round(averagers, contributions, WEIGHTS))
            assert bits_of(one) == bits_of(two) == bits_of(own)
            assert (one.tokens, one.lost) == (30_000, (miser,))
            assert [each.included for each in (one, two, own)] == [True, True, False]

    run(scenario())


def test_a_member_that_is_silent_costs_nobody_the_round(sharing, make_sharing, contributions) -> None:
    """Two of three end the round in time without the third, which was in the group and then said nothing."""

    async def scenario() -> None:
        async with sharing(make_sharing()) as averagers:
            tasks = start_round(averagers, contributions, WEIGHTS)
            silent = averagers[2].averager

            async def nothing(*_: Any) -> ExchangeOutcome:
                return await asyncio.Event().wait() and ExchangeOutcome()

            silent._average_in = nothing
            one, two = await asyncio.gather(*tasks[:2])
            assert bits_of(one) == bits_of(two)
            assert one.tokens == two.tokens == 35_000  # it had published its contribution
            tasks[2].cancel()
            await asyncio.wait([tasks[2]])

    run(scenario())


def test_few_are_asked_for_their_lists(sharing, make_sharing, contributions, monkeypatch) -> None:
    """However many have come to another state; who has the same list proves nothing, as the others' do."""
    asked: list[str] = []
    compare = Session.compare

    async def note(session: Session, peer: str, ask: Any) -> list[Proof]:
        asked.append(peer)
        return await compare(session, peer, ask)

    monkeypatch.setattr(Session, "compare", note)
    monkeypatch.setattr(share, "COMPARED_MAX", 1)

    async def scenario() -> None:
        async with sharing(make_sharing()) as averagers:
            first, *_ = await asyncio.gather(*start_round(averagers, contributions, WEIGHTS))
            others = [each.peer_id for each in averagers[1:]]
            assert first.roll is not None
            assert await averagers[0].averager._exchange.compare(first.roll, others) == []
            assert len(asked) == 1
            assert asked[0] in others

    run(scenario())
