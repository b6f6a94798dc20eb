"""The end of a round on a node: what its result tells the trainer."""

import asyncio
import weakref
from collections.abc import Collection
from contextlib import asynccontextmanager

import pytest
import torch

from dupt_swarm.network.averaging.exchange import ExchangeOutcome, Offer, RoundContext
from dupt_swarm.network.averaging.rounds import Rounds, SwarmAverager
from dupt_swarm.network.members.attendance import Attendance
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.replaying import RoundLog
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.node.messages import Traffic
from dupt_swarm.node.reasons import FAILURES, REJECTIONS, Failure, by_reason
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.state import ReplicaState
from tests.support.averages import Anybody
from tests.support.contributions import encoded

NUMEL = 10


@pytest.fixture
def manifest(make_manifest):
    return make_manifest(outer={"optimizer": "nesterov", "momentum": 0.9, "learning_rate": 0.7})


@pytest.fixture
def store(manifest) -> StateStore:
    store = StateStore(manifest, None)  # type: ignore[arg-type]
    anchor = torch.ones(NUMEL)
    store.replace(ReplicaState(3, 300, ((NUMEL,),), anchor, {"velocity": torch.zeros(NUMEL)}))
    return store


class NoMember:
    """A peer that is alone suspects nobody."""

    def __init__(self) -> None:
        self.attendance = Attendance()

    def suspect(self, peer_ids) -> None:
        assert not peer_ids

    def expected(self, companions: Collection[str]) -> Collection[str]:
        return companions

    def note_attempt(self, *, found_quorum: bool, rejected: bool) -> None:
        assert found_quorum and not rejected


@asynccontextmanager
async def one_peer(manifest, store, stations, averager_type=SwarmAverager, traffic=None):
    """The rounds of a peer that is alone, and its averager; ``traffic`` takes the place of its meter."""
    async with stations(1, manifest) as [peer]:
        blobs = Exchange(peer.p2p)
        averager = averager_type(RoundContext(manifest, peer.p2p, peer.key, NUMEL, blobs), Anybody())
        await averager.open()
        meter = traffic or (lambda: peer.p2p.counts)
        rounds = Rounds(manifest, store, NoMember(), averager, RoundLog(1, 0), meter)  # type: ignore[arg-type]
        yield rounds, averager


def end_round(manifest, store, stations, contribution, averager_type=SwarmAverager):
    async def scenario():
        async with one_peer(manifest, store, stations, averager_type) as (rounds, _):
            return await rounds.end(encoded(contribution, manifest), 10, ())

    return asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_good_round(manifest, store, stations) -> None:
    """The state that follows has one more round and the tokens of the contribution."""
    state, average, _ = end_round(manifest, store, stations, torch.ones(NUMEL))
    assert (state.round, state.swarm_tokens, average.reason) == (4, 310, None)


def test_what_is_not_finite_is_counted(manifest, store, stations) -> None:
    """An empty contribution is one that was not finite: the round fails for this reason, and says so."""

    async def scenario() -> None:
        async with one_peer(manifest, store, stations) as (rounds, _):
            for companions in ((), ("somebody",)):
                state, average, _ = await rounds.end(b"", 10, companions)
                assert (state, average.reason) == (None, "not_finite")
            assert sum(rounds.told.failures) == 2

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_what_the_record_tells_of_rounds(manifest, store, stations) -> None:
    """Why rounds failed; of the last good one length and bytes, those of failed attempts before it too."""
    meter = iter([Traffic(received=5000, sent=10), Traffic(5100, 40), Traffic(5900, 240)])
    good = encoded(torch.ones(NUMEL), manifest)

    async def scenario() -> None:
        async with one_peer(manifest, store, stations, traffic=lambda: next(meter)) as (rounds, averager):
            averager.rejected["norm"] += 2
            assert "round_sent_bytes" not in rounds.told.given
            await rounds.end(good, 10, ())
            told = rounds.told
            assert (told.round_received_bytes, told.round_sent_bytes, told.group_size) == (100, 30, 1)
            await rounds.end(b"", 10, ())
            assert rounds.told.round_sent_bytes == 30
            await rounds.end(good, 10, ())
            told = rounds.told
            assert (told.round_received_bytes, told.round_sent_bytes, told.averaged_rounds) == (800, 200, 2)
            assert told.round_seconds is not None
            assert told.averaging_seconds is not None
            assert told.round_seconds > told.averaging_seconds > 0
            assert by_reason(told.failures, FAILURES) == dict.fromkeys(FAILURES, 0) | {Failure.NOT_FINITE: 1}
            assert by_reason(told.rejections, REJECTIONS)["norm"] == 2

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_bytes_of_another_vector_fail_the_round(manifest, store, stations) -> None:
    """A contribution that does not have the model's size costs the round, and nothing is averaged."""
    state, average, _ = end_round(manifest, store, stations, torch.ones(NUMEL + 1024))  # a block more
    assert (state, average.reason) == (None, "network")


def test_only_the_outer_step_overflows(manifest, store, stations) -> None:
    """A contribution with which the anchor would not be finite is to be given up, and is called so."""
    huge = torch.full((NUMEL,), 3.4e38)
    store.replace(ReplicaState(3, 300, ((NUMEL,),), -huge, {"velocity": huge.clone()}))
    state, average, _ = end_round(manifest, store, stations, huge)
    assert (state, average.reason) == (None, "outer_overflow")


def test_an_overflow_on_the_way_is_a_failed_round(manifest, store, stations) -> None:
    """Numbers of others that overflow before the outer step cost the round, and no progress."""

    class Overflowing(SwarmAverager):
        """As with an infinite weight that nobody checked."""

        async def average(self, *_, **__) -> ExchangeOutcome:
            return ExchangeOutcome(round(float("inf")))

    state, average, _ = end_round(manifest, store, stations, torch.ones(NUMEL), Overflowing)
    assert (state, average.reason) == (None, "network")


@pytest.mark.parametrize("raises", [False, True])
def test_a_failed_round_keeps_no_state(manifest, store, stations, monkeypatch, caplog, raises) -> None:
    """The state that it had begun is gone at once, whoever still holds the offer; late parts go nowhere."""
    caplog.set_level("CRITICAL", "dupt_swarm")  # pytest would keep the error, and so its traceback
    begun: list[weakref.ref] = []
    offers: list[Offer] = []
    begin = store.following

    class Lingering(SwarmAverager):
        """Fails, and does not forget the offer."""

        async def average(self, offer: Offer, companions: Collection[str]) -> ExchangeOutcome:
            del companions
            offers.append(offer)
            if raises:
                raise OSError("the daemon is gone")
            return ExchangeOutcome(reason=Failure.TIMEOUT)

    def following() -> NextState:
        state = begin()
        begun.append(weakref.ref(state))
        return state

    monkeypatch.setattr(store, "following", following)
    state, _, _ = end_round(manifest, store, stations, torch.ones(NUMEL), Lingering)
    assert state is None
    assert [each() for each in begun] == [None]
    offers[0].take(0, torch.ones(NUMEL))


def test_a_round_that_is_given_up_before_it_begins(manifest, store, stations) -> None:
    """Who says so while it is looked whether the others have ended it is heard, and only for this round."""

    async def scenario() -> None:
        async with one_peer(manifest, store, stations) as (rounds, _):
            rounds.begin()
            rounds.cancel()
            contribution = encoded(torch.ones(NUMEL), manifest)
            state, average, _ = await rounds.end(contribution, 10, ())
            assert (state, average.reason) == (None, "cancelled")
            rounds.begin()
            state, _, _ = await rounds.end(contribution, 10, ())
            assert state is not None

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_search_that_the_others_have_overtaken(manifest, store, stations) -> None:
    """It is given up as behind, and is no failed round; without a search there is nothing to give up."""

    async def scenario() -> None:
        async with one_peer(manifest, store, stations) as (rounds, averager):
            rounds.overtaken()
            ending = asyncio.create_task(
                rounds.end(encoded(torch.ones(NUMEL), manifest), 10, ("a companion",))
            )
            while not averager.searching:
                await asyncio.sleep(0.01)
            rounds.overtaken()
            state, average, _ = await ending
            assert (state, average.reason) == (None, "behind")
            assert rounds.told.failures == ()

    asyncio.run(asyncio.wait_for(scenario(), 60))
