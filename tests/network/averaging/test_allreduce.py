import asyncio
import logging
from dataclasses import replace

import pytest
import torch
from hivemind.proto import averaging_pb2

from dupt_swarm.network.averaging import reduce as reduce_module
from dupt_swarm.network.averaging.allreduce import AllReduce
from dupt_swarm.network.averaging.reduce import Reducers
from dupt_swarm.network.averaging.roll import Roll
from dupt_swarm.replica.aggregation import weighted_mean
from dupt_swarm.replica.codec import PART_VALUES, build_codec
from dupt_swarm.replica.contribution import Claim
from tests.support.averages import DIGEST, Averaging, Received, open_averaging, start_round
from tests.support.contributions import encoded
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


@pytest.fixture
def runners(monkeypatch):
    """Put another kind of all-reduce in the place of one peer's: ``runners[peer_id] = Kind``."""
    kinds: dict[str, type[AllReduce]] = {}

    def build(manifest, group, *arguments):
        return kinds.get(group.me, AllReduce)(manifest, group, *arguments)

    monkeypatch.setattr(reduce_module, "AllReduce", build)
    return kinds


async def open_averagers(manifest, stations, numel: int = NUMEL) -> list[Averaging]:
    return [await open_averaging(manifest, station, numel) for station in stations]


def roll_of(averagers, weights, clients=()) -> Roll:
    """The roll of these peers, as the first of them would call it."""
    statements = [
        replace(each.context, callable=each not in clients).sign_statement(
            Claim(7, DIGEST, int(tokens), each.peer_id)
        )
        for each, tokens in zip(averagers, weights, strict=True)
    ]
    return Roll.call(averagers[0].peer_id, averagers[0].context.key, statements)


def start_group(averagers, contributions, weights, clients=()) -> list[asyncio.Task[Received]]:
    """An all-reduce in a group that need not find itself; ``clients`` reduce nothing."""
    roll = roll_of(averagers, weights, clients)
    return [
        asyncio.create_task(averager.average_in(roll, contribution))
        for averager, contribution in zip(averagers, contributions, strict=True)
    ]


async def average_as_group(averagers, contributions, weights, clients=()) -> list[Received]:
    """The outcomes of such an all-reduce."""
    return await asyncio.gather(*start_group(averagers, contributions, weights, clients))


def mean_of(contributions, weights) -> torch.Tensor:
    """The weighted mean in double precision."""
    total = sum(part.double() * weight for part, weight in zip(contributions, weights, strict=True))
    return total / sum(weights)


def assert_is_mean(average: Received, contributions, weights) -> None:
    """The average is that of ``contributions`` to the codec's precision, on the way there and back."""
    expected = mean_of(contributions, weights)
    assert average.reason is None
    assert average.values is not None
    largest = max(float(part.abs().max()) for part in contributions)
    assert float((average.values.double() - expected).abs().max()) <= 2 * 2.0**-11 * largest
    assert average.tokens == sum(weights)


def same_bits(first: Received, second: Received) -> bool:
    assert first.values is not None and second.values is not None
    return first.values.numpy().tobytes() == second.values.numpy().tobytes()


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario, 90))


def test_all_get_the_same_average(stations, manifest, contributions) -> None:
    """Three peers meet, and all get bit for bit the same average: the mean weighted by tokens."""
    weights = [10_000, 20_000, 5_000]

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            averagers = await open_averagers(manifest, peers)
            results = await asyncio.gather(*start_round(averagers, contributions, weights))
            for averager, result in zip(averagers, results, strict=True):
                assert_is_mean(result, contributions, weights)
                others = {str(other.peer_id) for other in averagers if other is not averager}
                assert (set(result.mates), result.lost) == (others, ())
            assert same_bits(results[0], results[1])
            assert same_bits(results[0], results[2])

    run(scenario())


@pytest.mark.parametrize(
    ("contribution", "average"), [("two_bit", "int4"), ("top_k", "scaled_fp16"), ("fp32", "int8")]
)
def test_two_codecs_in_one_round(stations, make_manifest, contributions, contribution, average) -> None:
    """What is sent and what is returned may be encoded differently; all get the same bytes of one average."""
    manifest = make_manifest(encoding={"contribution": contribution, "average": average})
    given, returned = (build_codec(name, manifest.encoding) for name in (contribution, average))
    received = [decode_parts(given, encoded(part, manifest), NUMEL) for part in contributions]
    mean = weighted_mean(received, [1, 2, 5])

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            averagers = await open_averagers(manifest, peers)
            results = await average_as_group(averagers, contributions, [1, 2, 5])
            for result in results:
                assert (result.reason, result.tokens) == (None, 8)
                assert result.values is not None
                assert result.evidence is not None
                [blob] = result.evidence.blobs.values()
                assert bytes(blob.sections[0]) == encode_parts(returned, mean)
                assert torch.equal(result.values, decode_parts(returned, blob.sections[0], NUMEL))

    run(scenario())


def test_only_equal_states_meet(stations, make_manifest) -> None:
    """Peers of another round, or of another state, do not average with one another."""
    manifest = make_manifest(rounds={"matchmaking_seconds": 1})

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            averagers = await open_averagers(manifest, peers, 10)
            states = [(7, DIGEST), (8, DIGEST), (7, "cd" * 32)]
            others = [[other.peer_id for other in averagers if other is not each] for each in averagers]
            results = await asyncio.gather(
                *(
                    each.average(encoded(torch.ones(10), manifest), 1, companions, round=round, digest=digest)
                    for each, companions, (round, digest) in zip(averagers, others, states, strict=True)
                )
            )
            assert [(result.values, result.reason) for result in results] == [(None, "no_group")] * 3

    run(scenario())


@pytest.mark.parametrize("numel", [1, 2, 300_000])
def test_small_vectors(stations, manifest, numel: int) -> None:
    """Vectors too small to give everybody a share are averaged too, even with fewer values than peers."""
    parts = [torch.full((numel,), value) for value in (1.0, 2.0, 4.0)]

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            averagers = await open_averagers(manifest, peers, numel)
            for result in await average_as_group(averagers, parts, [2, 1, 1]):
                assert result.values is not None
                assert torch.equal(result.values, torch.full((numel,), 2.0))
                assert result.tokens == 4

    run(scenario())


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


def test_bad_senders_are_left_out(stations, manifest, contributions, runners, caplog) -> None:
    """A peer whose contribution is unusable is left out, named in the log, and the others agree."""
    weights = [10_000, 20_000, 5_000]

    async def judge(averagers, kind: type[EvilSender]) -> None:
        evil = averagers[2]
        runners[str(evil.peer_id)] = kind
        caplog.clear()
        one, two, bad = start_group(averagers, contributions, weights, clients=[evil])
        first, second = await one, await two
        assert (first.reason, second.reason) == (None, None), kind
        assert same_bits(first, second), kind
        assert first.tokens == second.tokens, kind
        if kind is not TurnsBadLater:  # of that one the first part was good, and counts
            assert_is_mean(first, contributions[:2], weights[:2])
        assert f"'{kind.reason}': 1" in caplog.text, kind
        if kind is SendsNaN:  # the others would learn it as slowly
            assert ((await bad).values, (await bad).reason) == (None, "peer_lost")
        bad.cancel()
        await asyncio.wait([bad])

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            averagers = await open_averagers(manifest, peers)
            for kind in EvilSender.__subclasses__():
                await judge(averagers, kind)

    with caplog.at_level(logging.WARNING, logger="dupt_swarm"):
        run(scenario())


def test_norm_outlier_is_left_out(stations, manifest, contributions, caplog) -> None:
    """A contribution a thousand times as large as the others counts for nothing."""
    contributions[1] = contributions[1] * 1000

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            averagers = await open_averagers(manifest, peers)
            results = await average_as_group(averagers, contributions, [3, 4, 5])
            for result in results:
                assert_is_mean(result, [contributions[0], contributions[2]], [3, 5])
            assert same_bits(results[0], results[1])
            assert same_bits(results[0], results[2])

    with caplog.at_level(logging.WARNING, logger="dupt_swarm"):
        run(scenario())
    assert "'norm'" in caplog.text


class Vanishes(AllReduce):
    """Sends one part, and then its machine is gone."""

    def __init__(self, context, *arguments):
        super().__init__(context, *arguments)
        self._p2p = context.p2p

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
def test_lost_peer_fails_the_round_for_all(stations, make_manifest, contributions, runners, kind) -> None:
    """A peer lost midway fails the round for the others, in time and with no mixed result; the next works."""
    manifest = make_manifest(rounds={"matchmaking_seconds": 5, "chunk_seconds": 2, "allreduce_seconds": 30})

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            averagers = await open_averagers(manifest, peers)
            lost = averagers[2]
            runners[str(lost.peer_id)] = kind
            *survivors, third = start_group(averagers, contributions, [1] * 3)
            rounds = asyncio.gather(*survivors)
            started = asyncio.get_running_loop().time()
            one, two = await asyncio.wait_for(rounds, manifest.rounds.allreduce_seconds)
            assert asyncio.get_running_loop().time() - started < manifest.rounds.allreduce_seconds / 2
            assert [(each.values, each.reason) for each in (one, two)] == [(None, "peer_lost")] * 2
            assert one.lost == two.lost == (str(lost.peer_id),)
            again = await average_as_group(averagers[:2], contributions[:2], [1, 3])
            assert_is_mean(again[0], contributions[:2], [1, 3])
            assert same_bits(*again)
            third.cancel()
            await asyncio.wait([third])

    run(scenario())


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


@pytest.mark.parametrize(("kind", "reason"), [(SendsSlowly, None), (ReturnsSlowly, "timeout")])
def test_each_part_just_in_time(stations, make_manifest, runners, kind, reason) -> None:
    """The others go on without whoever sends so, after half of their time, and name it; who returns so
    fails the round, and is named as well."""
    numel = 3 * 8 * PART_VALUES
    contributions = [torch.full((numel,), value) for value in (1.0, 2.0, 6.0)]
    manifest = make_manifest(rounds={"matchmaking_seconds": 5, "chunk_seconds": 2, "allreduce_seconds": 16})

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            averagers = await open_averagers(manifest, peers, numel)
            slow = averagers[2]
            runners[str(slow.peer_id)] = kind
            one, two, _ = await average_as_group(averagers, contributions, [1] * 3)
            assert (one.reason, two.reason) == (reason, reason)
            assert one.lost == two.lost == (slow.peer_id,)
            if not reason:
                assert same_bits(one, two)
                assert one.values is not None
                assert one.values.unique().tolist() == [1.5, 3.0]  # what had come by then counts

    run(scenario())


class ReachesNobody(AllReduce):
    """Its link is broken, one way."""

    def __init__(self, context, *arguments):
        super().__init__(context, *arguments)

        async def ask(peer, messages):
            del messages
            raise ConnectionError(peer)

        self._ask = ask


def test_who_reaches_nobody_blames_nobody(stations, manifest, contributions, runners) -> None:
    """When most shares are missing, the own link is at fault; the others go on without that member."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            averagers = await open_averagers(manifest, peers)
            lonely = averagers[2]
            runners[lonely.peer_id] = ReachesNobody
            one, two, own = await average_as_group(averagers, contributions, [1, 2, 3])
            assert (own.values, own.reason, own.lost) == (None, "peer_lost", ())
            assert one.lost == two.lost == (lonely.peer_id,)
            assert same_bits(one, two)

    run(scenario())


class NeverEnds(AllReduce):
    """Returns all averages of its share, and then leaves the stream open without a word."""

    async def reduce_from(self, sender, messages):
        async for message in super().reduce_from(sender, messages):
            yield message
        await asyncio.sleep(3.0)  # longer than a reducer may be silent


def test_peer_lost_after_its_whole_share(stations, manifest, contributions, runners) -> None:
    """Who falls silent after it has given all of its share does not fail the round."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            averagers = await open_averagers(manifest, peers)
            runners[str(averagers[2].peer_id)] = NeverEnds
            results = await average_as_group(averagers, contributions, [1, 2, 3])
            for result in results:
                assert_is_mean(result, contributions, [1, 2, 3])
            assert same_bits(results[0], results[1])

    run(scenario())


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


class ReturnsTooMuch(AllReduce):
    async def reduce_from(self, sender, messages):
        async for message in super().reduce_from(sender, messages):
            yield message
        yield message


def test_bad_reducers_fail_the_round(stations, manifest, contributions, runners) -> None:
    """A peer that returns an unusable average is taken for lost: nobody goes on with a part of a result."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            averagers = await open_averagers(manifest, peers)
            evil = averagers[2]
            for kind in (*ReturnsJunk.__subclasses__(), HangsUp):
                runners[str(evil.peer_id)] = kind
                one, two, _ = await average_as_group(averagers, contributions, [1, 2, 3])
                assert [(each.values, each.reason) for each in (one, two)] == [(None, "peer_lost")] * 2, kind
                assert one.lost == two.lost == (evil.peer_id,), kind

    run(scenario())


def test_reducer_that_returns_too_much(stations, manifest, contributions, runners) -> None:
    """What a reducer returns after its share is not used."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            averagers = await open_averagers(manifest, peers)
            runners[str(averagers[2].peer_id)] = ReturnsTooMuch
            results = await average_as_group(averagers, contributions, [1, 2, 3])
            for result in results:
                assert_is_mean(result, contributions, [1, 2, 3])
            assert same_bits(results[0], results[1])

    run(scenario())


def test_stranger_is_refused(stations, manifest, contributions) -> None:
    """A peer outside the group, or with an unknown group, gets nothing and changes nothing."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            averagers = await open_averagers(manifest, peers)
            stub = Reducers.get_stub(peers[2].p2p, peers[0].p2p.peer_id, namespace=manifest.swarm_id)

            async def messages():
                yield averaging_pb2.AveragingData(
                    code=averaging_pb2.PART_FOR_AVERAGING, group_id=b"unknown", weight=1.0
                )

            replies = [reply.code async for reply in await stub.rpc_aggregate_part(messages())]
            assert replies == [averaging_pb2.BAD_GROUP_ID]
            results = await average_as_group(averagers[:2], contributions[:2], [1, 2])
            assert_is_mean(results[0], contributions[:2], [1, 2])
            assert same_bits(*results)

    run(scenario())
