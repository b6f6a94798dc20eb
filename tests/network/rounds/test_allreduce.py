"""An all-reduce: between real peers that leave a state, and among those of a roll that is given."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hivemind.proto import averaging_pb2

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.host import background
from dupt_swarm.network.rounds import reduce as reduce_module
from dupt_swarm.network.rounds.allreduce import AllReduce
from dupt_swarm.network.rounds.reduce import Reduce, Reducers
from dupt_swarm.network.rounds.round import Roll
from dupt_swarm.network.rounds.session import Ended
from dupt_swarm.replica.aggregation import weighted_mean
from dupt_swarm.replica.codec import PART_VALUES, build_codec
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Choice, Promise
from tests.support.contributions import encoded
from tests.support.deciders import deciding_at, first_state, state_of, step
from tests.support.tiny import reduced_tables
from tests.support.vectors import decode_parts, encode_parts

NUMEL = 700_000  # three parts of an all-reduce with two bytes per value


@pytest.fixture(scope="session")
def make_manifest(make_manifest):
    """Manifests of swarms that reduce."""
    return lambda **changes: make_manifest(**reduced_tables(**changes))


@pytest.fixture
def manifest(make_manifest):
    """Time limits of a second or two; rounds of 20480 tokens, weights of at most four times that."""
    times = {"matchmaking_seconds": 5, "chunk_seconds": 1, "allreduce_seconds": 15}
    return make_manifest(rounds=times, limits={"max_weight_ratio": 4.0, "max_norm_ratio": 10.0})


@pytest.fixture
def contributions() -> list[torch.Tensor]:
    """Pseudo-gradients of three peers."""
    return [torch.randn(NUMEL, generator=torch.Generator().manual_seed(seed)) * 1e-3 for seed in range(3)]


class Runners:
    """All-reduces as they are begun, by the ids of the peers: ``kinds`` puts another kind in one's place."""

    def __init__(self) -> None:
        self.kinds: dict[str, Any] = {}
        self.last: dict[str, AllReduce] = {}

    def build(self, manifest: Manifest, roll: Roll, claim: Claim, *arguments: Any) -> AllReduce:
        """As `AllReduce`."""
        kind = self.kinds.get(claim.maker, AllReduce)
        self.last[claim.maker] = run = kind(manifest, roll, claim, *arguments)
        return run


@pytest.fixture(autouse=True)
def runners(monkeypatch) -> Runners:
    """Those of the test."""
    found = Runners()
    monkeypatch.setattr(reduce_module, "AllReduce", found.build)
    return found


@pytest.fixture
def deciders(stations, manifest):
    """``async with deciders(3) as (peers, state)``: so many peers at one state."""
    return partial(deciding_at, stations, manifest=manifest, numel=NUMEL)


@dataclass(frozen=True)
class Received:
    """How an all-reduce has ended for one.

    Attributes:
        values: the average: fp32 ``[numel]``; None if it has failed.
        tokens: in it.
        encoded: it, as all have it.
        rejected: what was left out here, by reason.
        missing: ids of those whose shares have not come.
    """

    values: torch.Tensor | None = None
    tokens: int = 0
    encoded: bytes = b""
    rejected: Counter[str] = field(default_factory=Counter)
    missing: Collection[str] = frozenset()


class GivenRoll:
    """In place of a session: those who end the ballot together are known, and it is seen how that ends."""

    proposed = None

    def __init__(self, roll: Roll) -> None:
        self.roll = roll
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def hold(self, digests: Collection[str]) -> None:
        """See `Floor`."""
        assert list(digests) == [each.digest for each in self.roll.brought]
        self.done.set_result(True)

    def give_up(self, roll: Roll) -> None:
        """See `Floor`."""
        assert roll == self.roll
        self.done.set_result(False)

    async def change(self, seconds: float) -> None:
        """See `Floor`."""
        await asyncio.sleep(seconds)


class Averager:
    """One peer that reduces.

    Attributes:
        reduce: what ships.
    """

    def __init__(self, manifest: Manifest, station: Any, numel: int, runners: Runners) -> None:
        self.manifest, self.station, self._numel, self._runners = manifest, station, numel, runners
        self.reduce = Reduce(manifest, numel, station.p2p)
        self.before = first_state(manifest, numel, Electorate())

    @property
    def peer_id(self) -> str:
        """Its peer id."""
        return str(self.station.peer_id)

    async def promise(self, values: torch.Tensor, tokens: int, *, callable: bool) -> Promise:
        """Bring a contribution."""
        claim = Claim(self.before.round, self.before.digest, tokens, self.peer_id)
        brought = await self.reduce.prepare(encoded(values, self.manifest), claim)
        return Promise(self.peer_id, self.before.digest, 0, brought, callable=callable)

    async def average_in(self, roll: Roll) -> Received:
        """Average with those of the roll."""
        floor = GivenRoll(roll)
        async with background(self.reduce.run(floor)):  # type: ignore[arg-type]
            held = await floor.done
        missing = self._runners.last[self.peer_id].missing
        if not held:
            with pytest.raises(ValueError, match="an average of others"):
                await self._averaged(roll)
            return Received(missing=missing)
        averaged, values = await self._averaged(roll)
        [blob] = averaged.blobs.values()
        return Received(values, averaged.tokens, bytes(blob.sections[0]), averaged.rejected, missing)

    async def _averaged(self, roll: Roll) -> tuple[Any, torch.Tensor]:
        parts: dict[int, torch.Tensor] = {}
        following = SimpleNamespace(before=self.before, take=parts.__setitem__)
        averaged = await self.reduce.average(following, Choice(roll.brought))  # type: ignore[arg-type]
        return averaged, torch.cat([parts[number] for number in range(len(parts))])


@pytest.fixture
def averagers(stations, runners):
    """``async with averagers(manifest, 3) as averagers``: so many peers that reduce."""

    @asynccontextmanager
    async def start(manifest: Manifest, count: int = 3, numel: int = NUMEL) -> AsyncIterator[list[Averager]]:
        async with stations(count, manifest) as started:
            found = [Averager(manifest, station, numel, runners) for station in started]
            for each in found:
                await each.reduce.open()
            yield found

    return start


async def roll_of(
    averagers: Sequence[Averager],
    contributions: Sequence[torch.Tensor],
    weights: Sequence[int],
    clients: Collection[Averager] = (),
) -> Roll:
    """Of these peers, as the first of them would call it; ``clients`` reduce nothing."""
    promises = [
        await each.promise(values, tokens, callable=each not in clients)
        for each, values, tokens in zip(averagers, contributions, weights, strict=True)
    ]
    in_order = tuple(sorted(promises, key=lambda each: each.maker))
    return Roll(averagers[0].peer_id, 0, weak=False, promises=in_order)


async def start_group(
    averagers: Sequence[Averager],
    contributions: Sequence[torch.Tensor],
    weights: Sequence[int],
    clients: Collection[Averager] = (),
) -> list[asyncio.Task[Received]]:
    """An all-reduce in a group that need not find itself."""
    roll = await roll_of(averagers, contributions, weights, clients)
    return [asyncio.create_task(each.average_in(roll)) for each in averagers]


async def average_as_group(
    averagers: Sequence[Averager],
    contributions: Sequence[torch.Tensor],
    weights: Sequence[int],
    clients: Collection[Averager] = (),
) -> list[Received]:
    """The outcomes of such an all-reduce."""
    return await asyncio.gather(*await start_group(averagers, contributions, weights, clients))


def average_of(ended: Ended, manifest: Manifest) -> Received:
    """That by which a state was left."""
    assert ended.computed is not None
    averaged = ended.computed.averaged
    [blob] = averaged.blobs.values()
    codec = build_codec(manifest.encoding.average, manifest.encoding)
    data = bytes(blob.sections[0])
    return Received(decode_parts(codec, data, NUMEL), averaged.tokens, data)


def mean_of(contributions: Sequence[torch.Tensor], weights: Sequence[int]) -> torch.Tensor:
    """The weighted mean in double precision."""
    total = torch.zeros_like(contributions[0], dtype=torch.float64)
    for part, weight in zip(contributions, weights, strict=True):
        total += part.double() * weight
    return total / sum(weights)


def assert_is_mean(average: Received, contributions: Sequence[torch.Tensor], weights: Sequence[int]) -> None:
    """The average is that of ``contributions`` to the codec's precision, on the way there and back."""
    expected = mean_of(contributions, weights)
    assert average.values is not None
    largest = max(float(part.abs().max()) for part in contributions)
    assert float((average.values.double() - expected).abs().max()) <= 2 * 2.0**-11 * largest
    assert average.tokens == sum(weights)


def same_bits(first: Received, second: Received) -> bool:
    assert first.values is not None and second.values is not None
    return first.values.numpy().tobytes() == second.values.numpy().tobytes()


@pytest.mark.parametrize("hidden", [(), (2,)], ids=["callable", "hidden"])
async def test_all_get_the_same_average(deciders, manifest, contributions, hidden) -> None:
    """Three peers leave a state by bit for bit the same average: the mean weighted by tokens.

    Who cannot be called reduces nothing, and takes part all the same.
    """
    weights = [10_000, 20_000, 5_000]
    async with deciders(hidden=hidden) as (peers, _):
        ended = await asyncio.gather(
            *(
                each.end(values, tokens)
                for each, values, tokens in zip(peers, contributions, weights, strict=True)
            )
        )
        [link] = {each.link for each in ended}
        assert set(link.counted) == {each.peer_id for each in peers}
        assert link.ballot == 0 or hidden
        assert {state_of(each).digest for each in ended} == {link.after}
        averages = [average_of(each, manifest) for each in ended]
        assert {each.encoded for each in averages} == {averages[0].encoded}
        assert_is_mean(averages[0], contributions, weights)
        assert state_of(ended[0]).swarm_tokens == 35_000


async def test_alone(deciders, manifest, contributions) -> None:
    """Who is alone leaves its state by what it has brought, in the first ballot."""
    async with deciders(1) as ([peer], _):
        ended = await peer.end(contributions[0], 10_000)
        assert (ended.link.ballot, ended.link.choice.weak) == (0, False)
        assert ended.link.counted == (peer.peer_id,)
        assert state_of(ended).swarm_tokens == 10_000
        assert_is_mean(average_of(ended, manifest), contributions[:1], [10_000])


@pytest.mark.parametrize(
    ("contribution", "average"), [("two_bit", "int4"), ("top_k", "scaled_fp16"), ("fp32", "int8")]
)
async def test_two_codecs_in_one_round(
    averagers, make_manifest, contributions, contribution, average
) -> None:
    """What is sent and what is returned may be encoded differently; all get the same bytes of one average."""
    manifest = make_manifest(encoding={"contribution": contribution, "average": average})
    given, returned = (build_codec(name, manifest.encoding) for name in (contribution, average))
    received = [decode_parts(given, encoded(part, manifest), NUMEL) for part in contributions]
    mean = weighted_mean(received, [1, 2, 5])
    async with averagers(manifest) as peers:
        for result in await average_as_group(peers, contributions, [1, 2, 5]):
            assert result.values is not None
            assert result.tokens == 8
            assert result.encoded == encode_parts(returned, mean)
            assert torch.equal(result.values, decode_parts(returned, result.encoded, NUMEL))


async def test_only_equal_states_meet(deciders, make_manifest) -> None:
    """Peers of another round, or of another state, do not average with one another: each goes on alone."""
    times = {"matchmaking_seconds": 1, "chunk_seconds": 0.5, "allreduce_seconds": 5}
    manifest = make_manifest(rounds=times)
    async with deciders(manifest=manifest) as (peers, state):
        everybody = [each.peer_id for each in peers]
        later = step(manifest, state, torch.ones(NUMEL), 1, everybody)
        another = step(manifest, state, torch.zeros(NUMEL), 1, everybody)
        for peer, at in zip(peers, [later, another, state], strict=True):
            peer.reach(at, everybody)
        ended = await asyncio.gather(*(each.end(torch.ones(NUMEL)) for each in peers))
        for peer, each in zip(peers, ended, strict=True):
            assert each.link.choice.makers == (peer.peer_id,)
            assert each.link.choice.weak


@pytest.mark.parametrize("numel", [1, 2, 300_000])
async def test_small_vectors(averagers, manifest, numel: int) -> None:
    """Vectors too small to give everybody a share are averaged too, even with fewer values than peers."""
    parts = [torch.full((numel,), value) for value in (1.0, 2.0, 4.0)]
    async with averagers(manifest, numel=numel) as peers:
        for result in await average_as_group(peers, parts, [2, 1, 1]):
            assert result.values is not None
            assert torch.equal(result.values, torch.full((numel,), 2.0))
            assert result.tokens == 4


class EvilSender(AllReduce):
    """Sends messages that were tampered with, and does all else as it should."""

    reason = ""

    def tamper(self, message, number: int) -> None:
        raise NotImplementedError

    async def messages_of(self, share):
        number = 0
        async for message in super().messages_of(share):
            self.tamper(message, number)
            number += 1
            yield message


class SendsNaN(EvilSender):
    reason = "not_finite"

    def tamper(self, message, _number) -> None:
        halves = bytearray(message.tensor_part.buffer)
        halves[-2:] = b"\x00\x7e"  # the last value is a NaN
        message.tensor_part.buffer = bytes(halves)


class SendsAnotherShape(EvilSender):
    reason = "shape"

    def tamper(self, message, _number) -> None:
        message.tensor_part.buffer = message.tensor_part.buffer[:4]
        message.tensor_part.size[:] = [1]


class ClaimsAnotherShape(EvilSender):
    reason = "weight"  # the size that it claims is of no interest, so something else must be wrong too

    def tamper(self, message, _number) -> None:
        message.tensor_part.size[:] = [1 << 30]
        message.weight = float("nan")


class SendsAHugeWeight(EvilSender):
    reason = "weight"

    def tamper(self, message, _number) -> None:
        message.weight = 1e12


class SendsNoWeight(EvilSender):
    reason = "weight"

    def tamper(self, message, _number) -> None:
        message.weight = 0.0


class TurnsBadLater(EvilSender):
    reason = "shape"

    def tamper(self, message, number) -> None:
        if number:
            message.tensor_part.buffer = b""


async def test_bad_senders_are_left_out(averagers, manifest, contributions, runners) -> None:
    """A peer whose contribution is unusable is left out, it is counted why, and the others agree."""
    weights = [10_000, 20_000, 5_000]

    async def judge(peers: list[Averager], kind: type[EvilSender]) -> None:
        evil = peers[2]
        runners.kinds[evil.peer_id] = kind
        one, two, bad = await start_group(peers, contributions, weights, clients=[evil])
        first, second = await one, await two
        assert same_bits(first, second), kind
        assert first.tokens == second.tokens, kind
        if kind is not TurnsBadLater:  # of that one the first part was good, and counts
            assert_is_mean(first, contributions[:2], weights[:2])
        # Each of the two that reduce has seen it, but for who has one part only.
        assert set(first.rejected + second.rejected) == {kind.reason}, kind
        assert sum((first.rejected + second.rejected).values()) == (1 if kind is TurnsBadLater else 2), kind
        if kind is SendsNaN:  # the others would learn it as slowly
            assert (await bad).values is None
        bad.cancel()
        await asyncio.wait([bad])

    async with averagers(manifest) as peers:
        for kind in EvilSender.__subclasses__():
            await judge(peers, kind)


async def test_a_peer_that_lies_in_a_round_is_left_out(deciders, manifest, contributions, runners) -> None:
    """Two leave a state by the average of what they have brought, without a third that sends NaN."""
    async with deciders(hidden=[2]) as (peers, _):
        runners.kinds[peers[2].peer_id] = SendsNaN
        tasks = [
            asyncio.create_task(each.end(values, 10_000))
            for each, values in zip(peers, contributions, strict=True)
        ]
        ended = await asyncio.gather(*tasks[:2])
        [link] = {each.link for each in ended}
        assert not link.choice.weak
        assert [state_of(each).swarm_tokens for each in ended] == [20_000] * 2
        assert_is_mean(average_of(ended[0], manifest), contributions[:2], [10_000] * 2)
        tasks[2].cancel()
        await asyncio.wait([tasks[2]])


async def test_norm_outlier_is_left_out(averagers, manifest, contributions) -> None:
    """A contribution a thousand times as large as the others counts for nothing."""
    contributions[1] = contributions[1] * 1000
    async with averagers(manifest) as peers:
        results = await average_as_group(peers, contributions, [3, 4, 5])
        for result in results:
            assert_is_mean(result, [contributions[0], contributions[2]], [3, 5])
            assert set(result.rejected) == {"norm"}
        assert same_bits(results[0], results[1])
        assert same_bits(results[0], results[2])


class Vanishes(AllReduce):
    """Sends one part, and then its machine is gone."""

    def __init__(self, *arguments, p2p):
        super().__init__(*arguments)
        self._p2p = p2p

    async def messages_of(self, share):
        async for message in super().messages_of(share):
            yield message
            # Not awaited: the daemon's end would wait for the very stream that this belongs to.
            self.ended = asyncio.create_task(self._p2p.shutdown())
            await asyncio.Event().wait()


class FallsSilent(AllReduce):
    """Takes part in the group, but never says a word."""

    async def run(self):
        await asyncio.Event().wait()

    async def reduce_from(self, sender, messages):
        del sender, messages
        await asyncio.Event().wait()
        yield


@pytest.mark.parametrize("kind", [Vanishes, FallsSilent])
async def test_lost_peer_fails_the_round_for_all(
    averagers, make_manifest, contributions, runners, kind
) -> None:
    """A peer lost midway fails the round for the others, in time and with no mixed result; the next works."""
    manifest = make_manifest(rounds={"matchmaking_seconds": 5, "chunk_seconds": 2, "allreduce_seconds": 30})
    async with averagers(manifest) as peers:
        lost = peers[2]
        gone = partial(kind, p2p=lost.station.p2p) if kind is Vanishes else kind
        runners.kinds[lost.peer_id] = gone
        *survivors, third = await start_group(peers, contributions, [1] * 3)
        rounds = asyncio.gather(*survivors)
        started = asyncio.get_running_loop().time()
        one, two = await asyncio.wait_for(rounds, manifest.rounds.allreduce_seconds)
        assert asyncio.get_running_loop().time() - started < manifest.rounds.allreduce_seconds / 2
        assert one.values is two.values is None
        assert one.missing == two.missing == {lost.peer_id}
        again = await average_as_group(peers[:2], contributions[:2], [1, 3])
        assert_is_mean(again[0], contributions[:2], [1, 3])
        assert same_bits(*again)
        third.cancel()
        await asyncio.wait([third])


class SendsSlowly(AllReduce):
    """Each part just in time."""

    async def messages_of(self, share):
        async for message in super().messages_of(share):
            await asyncio.sleep(1.6)
            yield message


class ReturnsSlowly(AllReduce):
    """Each average just in time."""

    async def reduce_from(self, sender, messages):
        async for message in super().reduce_from(sender, messages):
            await asyncio.sleep(2.0)
            yield message


@pytest.mark.parametrize(("kind", "fails"), [(SendsSlowly, False), (ReturnsSlowly, True)])
async def test_each_part_just_in_time(averagers, make_manifest, runners, kind, fails) -> None:
    """The others go on without whoever sends so, after half of their time; who returns so fails the round."""
    numel = 3 * 8 * PART_VALUES
    contributions = [torch.full((numel,), value) for value in (1.0, 2.0, 6.0)]
    manifest = make_manifest(rounds={"matchmaking_seconds": 5, "chunk_seconds": 2, "allreduce_seconds": 16})
    async with averagers(manifest, numel=numel) as peers:
        slow = peers[2]
        runners.kinds[(slow.peer_id)] = kind
        one, two, _ = await average_as_group(peers, contributions, [1] * 3)
        assert one.missing == two.missing == ({slow.peer_id} if fails else set())
        if fails:
            assert one.values is two.values is None
        else:
            assert same_bits(one, two)
            assert one.values is not None
            assert one.values.unique().tolist() == [1.5, 3.0]  # what had come by then counts


class ReachesNobody(AllReduce):
    """Its link is broken, one way."""

    def __init__(self, *arguments):
        super().__init__(*arguments)

        async def ask(peer, messages):
            del messages
            raise ConnectionError(peer)

        self._ask = ask


async def test_a_peer_that_reaches_nobody_fails_alone(averagers, manifest, contributions, runners) -> None:
    """It lacks the shares of the others, who go on without it."""
    async with averagers(manifest) as peers:
        lonely = peers[2]
        runners.kinds[lonely.peer_id] = ReachesNobody
        one, two, own = await average_as_group(peers, contributions, [1, 2, 3])
        assert own.values is None and own.missing == {each.peer_id for each in peers[:2]}
        assert one.missing == two.missing == set()
        assert same_bits(one, two)


class NeverEnds(AllReduce):
    """Returns all averages of its share, and then leaves the stream open without a word."""

    async def reduce_from(self, sender, messages):
        async for message in super().reduce_from(sender, messages):
            yield message
        await asyncio.sleep(3.0)  # longer than a reducer may be silent


class ReturnsTooMuch(AllReduce):
    async def reduce_from(self, sender, messages):
        async for message in super().reduce_from(sender, messages):
            yield message
        yield message


@pytest.mark.parametrize("kind", [NeverEnds, ReturnsTooMuch])
async def test_what_follows_a_whole_share(averagers, manifest, contributions, runners, kind) -> None:
    """Who falls silent after it has given all of its share does not fail the round; nor is more used."""
    async with averagers(manifest) as peers:
        runners.kinds[peers[2].peer_id] = kind
        results = await average_as_group(peers, contributions, [1, 2, 3])
        for result in results:
            assert_is_mean(result, contributions, [1, 2, 3])
        assert same_bits(results[0], results[1])


class ReturnsJunk(AllReduce):
    """Reduces, but returns something else than the average."""

    def junk(self, message) -> None:
        raise NotImplementedError

    async def reduce_from(self, sender, messages):
        async for message in super().reduce_from(sender, messages):
            self.junk(message)
            yield message


class ReturnsNaN(ReturnsJunk):
    def junk(self, message) -> None:
        message.tensor_part.buffer = message.tensor_part.buffer[:-2] + b"\x00\x7e"


class ReturnsTooLittle(ReturnsJunk):
    def junk(self, message) -> None:
        message.tensor_part.buffer = message.tensor_part.buffer[:-2]


class ReturnsAHugeWeight(ReturnsJunk):
    def junk(self, message) -> None:
        message.weight = 1e30


class ReturnsAnError(ReturnsJunk):
    def junk(self, message) -> None:
        message.code = averaging_pb2.CANCELLED


class HangsUp(AllReduce):
    """Returns nothing."""

    async def reduce_from(self, sender, messages):
        async for _ in super().reduce_from(sender, messages):
            return
        yield


async def test_bad_reducers_fail_the_round(averagers, manifest, contributions, runners) -> None:
    """A peer that returns an unusable average is taken for lost: nobody goes on with a part of a result."""
    async with averagers(manifest) as peers:
        evil = peers[2]
        for kind in (*ReturnsJunk.__subclasses__(), HangsUp):
            runners.kinds[evil.peer_id] = kind
            one, two, _ = await average_as_group(peers, contributions, [1, 2, 3])
            assert one.values is two.values is None, kind
            assert one.missing == two.missing == {evil.peer_id}, kind


class Waits(AllReduce):
    """Begins when it is told so."""

    def __init__(self, *arguments, begin):
        super().__init__(*arguments)
        self._begin = begin

    async def run(self):
        await self._begin.wait()
        await super().run()


async def test_stranger_is_refused(averagers, manifest, contributions, runners) -> None:
    """A peer outside the group, or with an unknown group, gets nothing and changes nothing."""
    async with averagers(manifest) as peers:
        stranger, asked = (each.station.p2p for each in (peers[2], peers[0]))
        stub = Reducers.get_stub(stranger, asked.peer_id, namespace=manifest.swarm_id)

        async def ask(group_id: bytes) -> list[int]:
            async def messages():
                yield averaging_pb2.AveragingData(
                    code=averaging_pb2.PART_FOR_AVERAGING, group_id=group_id, weight=1.0
                )

            return [reply.code async for reply in await stub.rpc_aggregate_part(messages())]

        assert await ask(b"unknown") == [averaging_pb2.BAD_GROUP_ID]
        begin = asyncio.Event()
        for each in peers[:2]:
            runners.kinds[each.peer_id] = partial(Waits, begin=begin)
        roll = await roll_of(peers[:2], contributions[:2], [1, 2])
        tasks = [asyncio.create_task(each.average_in(roll)) for each in peers[:2]]
        while len(runners.last) < 2:
            await asyncio.sleep(0.01)
        assert await ask(bytes.fromhex(roll.id)) == [averaging_pb2.PROTOCOL_VIOLATION]
        begin.set()
        results = await asyncio.gather(*tasks)
        assert_is_mean(results[0], contributions[:2], [1, 2])
        assert same_bits(*results)
