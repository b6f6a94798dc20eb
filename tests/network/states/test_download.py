"""One download from donors of every kind, without a network."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator
from itertools import chain

import pytest

from dupt_swarm.errors import NodeError
from dupt_swarm.network.p2p.bandwidth import TokenBucket
from dupt_swarm.network.p2p.pauses import Pauses
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.network.states import download as download_module
from dupt_swarm.network.states.download import AVOID_SECONDS, Download
from dupt_swarm.node.messages import Downloading
from dupt_swarm.replica import blob as blob_module
from dupt_swarm.replica.blob import Assembly, Blob
from dupt_swarm.replica.contribution import CONTRIBUTION
from dupt_swarm.replica.state import KIND

CHUNK = 64
CHUNKS = 40


@pytest.fixture(autouse=True)
def small_and_quick(monkeypatch) -> None:
    """Chunks of 64 bytes, and little patience."""
    for module in (blob_module, download_module):
        monkeypatch.setattr(module, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(download_module, "CHUNK_SECONDS", 0.5)
    monkeypatch.setattr(download_module, "BUSY_SECONDS", 0.02)
    monkeypatch.setattr(download_module, "RECRUIT_SECONDS", 0.05)


@pytest.fixture
def blob() -> Blob:
    """Forty chunks, all different, the last one short."""
    return Blob.build({}, [b"".join(bytes([number]) * CHUNK for number in range(CHUNKS))[:-1]])


class Donors:
    """Donors by name, each with its manner; they remember what they gave and who was asked."""

    def __init__(self, blob: Blob, **manners: str) -> None:
        self.blob, self.manners = blob, manners
        self.gave: dict[str, list[int]] = defaultdict(list)
        self.requests: Counter[str] = Counter()
        self.at_once = self.most_at_once = 0

    async def known(self) -> list[str]:
        return list(self.manners)

    async def ask(self, donor: str, numbers: list[int]) -> AsyncGenerator[memoryview, None]:
        self.requests[donor] += 1
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            async for data in self._answer(donor, numbers):
                yield data
        finally:
            self.at_once -= 1

    async def _answer(self, donor: str, numbers: list[int]) -> AsyncGenerator[memoryview, None]:
        manner = self.manners[donor]
        if manner == "forgets":
            raise CallError(Refusal.NOT_HELD, "the donor does not hold this blob any more")
        if manner == "fails":
            raise CallError(Refusal.UNREACHABLE, "connection refused")
        if manner == "is busy" or (manner == "is busy once" and self.requests[donor] <= 2):
            raise CallError(Refusal.LATER, "no slot is free")
        for number in numbers:
            await asyncio.sleep({"is silent": 3600, "is slow": 0.05, "crawls": 0.3}.get(manner, 0.003))
            if manner == "lies" and self.gave[donor]:
                yield memoryview(b"lies")
            elif manner == "stops" and number != numbers[0]:
                return
            elif manner == "slows down" and len(self.gave[donor]) >= 3:
                await asyncio.sleep(3600)
            self.gave[donor].append(number)
            yield self.blob.chunk(number)


def avoiding() -> Pauses:
    """Nobody so far."""
    return Pauses(AVOID_SECONDS, AVOID_SECONDS)


async def run(assembly: Assembly, donors: Donors, avoided: Pauses | None = None, **options) -> None:
    seconds = options.pop("seconds", 30.0)
    avoided = avoiding() if avoided is None else avoided
    await Download(assembly, donors.ask, avoided, **options).run(donors.known, seconds)


def test_all_donors_give_different_chunks(blob) -> None:
    """Each chunk travels once, and everybody gives some."""
    donors, assembly = Donors(blob, a="is good", b="is good", c="is good"), Assembly(blob.index)
    asyncio.run(run(assembly, donors))
    assert bytes(assembly.finish().sections[0]) == bytes(blob.sections[0])
    assert sorted(chain(*donors.gave.values())) == list(range(CHUNKS))
    assert set(donors.gave) == {"a", "b", "c"}
    assert donors.at_once == 0


@pytest.mark.parametrize(
    ("manner", "reason"),
    [
        ("stops", "the donor stopped sending"),
        ("lies", "does not have the hash that the index names"),
        ("is silent", "it fell silent"),
        ("fails", "connection refused"),
        ("forgets", "the donor does not hold this blob any more"),
    ],
)
def test_a_good_donor_completes_what_a_bad_one_began(blob, manner, reason) -> None:
    """Whatever the bad one does, the download completes; alone the bad one is named, with the reason."""
    donors, assembly, avoided = (
        Donors(blob, bad=manner, good="is good"),
        Assembly(blob.index),
        avoiding(),
    )
    asyncio.run(run(assembly, donors, avoided))
    assert bytes(assembly.finish().sections[0]) == bytes(blob.sections[0])
    assert len(donors.gave["good"]) >= CHUNKS - len(donors.gave["bad"])
    assert ("bad" in avoided) == (manner != "forgets")
    assert "good" not in avoided
    with pytest.raises(NodeError, match=f"it will be tried again: bad: .*{reason}"):
        asyncio.run(run(Assembly(blob.index), Donors(blob, bad=manner)))


def test_what_arrived_is_kept_and_not_asked_for_again(blob) -> None:
    """A download that failed is gone on with: the second attempt asks for the rest only."""
    assembly = Assembly(blob.index)
    with pytest.raises(NodeError):
        asyncio.run(run(assembly, Donors(blob, bad="slows down")))
    arrived = set(range(CHUNKS)) - assembly.missing
    assert len(arrived) >= 3
    donors = Donors(blob, good="is good")
    asyncio.run(run(assembly, donors))
    assert sorted(donors.gave["good"]) == sorted(set(range(CHUNKS)) - arrived)


def test_what_did_not_come_uses_up_no_rate(blob) -> None:
    """Donors that give nothing leave to others whatever may be received."""
    bucket = TokenBucket(1e6, clock=lambda: 0.0)
    with pytest.raises(NodeError):
        asyncio.run(run(Assembly(blob.index), Donors(blob, bad="fails"), bucket=bucket))
    assert bucket._left == 1e6


def test_a_complete_assembly_asks_nobody(blob) -> None:
    """Nothing is missing, nothing is asked for."""
    assembly, donors = Assembly(blob.index), Donors(blob, a="is good")
    assembly.reuse(blob)
    asyncio.run(run(assembly, donors))
    assert donors.requests.total() == 0


def test_the_end_does_not_wait_for_a_slow_donor(blob, monkeypatch) -> None:
    """Its chunks are asked for from another, it is dropped as slow, and avoided."""
    monkeypatch.setattr(download_module, "CHUNK_SECONDS", 3000.0)
    monkeypatch.setattr("dupt_swarm.network.states.download.OVERDUE_SECONDS", 0.3)
    donors, assembly, avoided = (
        Donors(blob, slow="is silent", good="is good"),
        Assembly(blob.index),
        avoiding(),
    )
    asyncio.run(run(assembly, donors, avoided))
    assert bytes(assembly.finish().sections[0]) == bytes(blob.sections[0])
    assert "slow" in avoided
    assert "good" not in avoided


def test_silent_donors_take_no_room_from_a_good_one(blob, monkeypatch) -> None:
    """However many silent donors were asked first, the good one is found and gives everything in time."""
    monkeypatch.setattr(download_module, "CHUNK_SECONDS", 3000.0)
    monkeypatch.setattr("dupt_swarm.network.states.download.OVERDUE_SECONDS", 0.3)
    monkeypatch.setattr("dupt_swarm.network.states.download.STALLED_SECONDS", 0.2)
    silent = {f"silent{number}": "is silent" for number in range(9)}
    for manners in ({"good": "is good"} | silent, silent | {"good": "is good"}):
        assembly = Assembly(blob.index)
        asyncio.run(run(assembly, Donors(blob, **manners)))
        assert bytes(assembly.finish().sections[0]) == bytes(blob.sections[0])


@pytest.mark.parametrize("good", ["is good", "is busy"])
def test_the_first_ones_make_way(blob, monkeypatch, good) -> None:
    """Slow donors have all places on a slow link: one after the other is asked in their place."""
    monkeypatch.setattr(download_module, "CHUNK_BYTES", 1 << 20)  # by which the rate seems to be very small
    monkeypatch.setattr("random.shuffle", lambda _: None)
    crawling = {f"slow{number}": "crawls" for number in range(8)}
    donors, assembly = Donors(blob, **crawling, good=good), Assembly(blob.index)
    asyncio.run(run(assembly, donors))
    assert bytes(assembly.finish().sections[0]) == bytes(blob.sections[0])
    assert sorted(chain(*donors.gave.values())) == list(range(CHUNKS))  # nothing was asked for in vain
    assert donors.most_at_once <= download_module.FIRST_CHUNKS
    assert (len(donors.gave["good"]) > CHUNKS / 2) == (good == "is good")


def test_one_that_made_way_is_asked_again(blob, monkeypatch) -> None:
    """When those in whose favour it went have fallen silent."""
    monkeypatch.setattr(download_module, "CHUNK_BYTES", 1 << 20)  # by which the rate seems to be very small
    monkeypatch.setattr(download_module, "CHUNK_SECONDS", 0.2)
    monkeypatch.setattr("random.shuffle", lambda _: None)
    failing = {f"fast{number}": "slows down" for number in range(5)}
    donors, assembly = Donors(blob, slow="is slow", **failing), Assembly(blob.index)
    asyncio.run(run(assembly, donors, seconds=8.0))
    assert bytes(assembly.finish().sections[0]) == bytes(blob.sections[0])
    assert len(donors.gave["fast4"]) == 3  # it came in place of the slow one


def test_a_fast_donor_does_more(blob) -> None:
    """Small requests are handed out as donors finish them."""
    donors, assembly = Donors(blob, slow="is slow", good="is good"), Assembly(blob.index)
    asyncio.run(run(assembly, donors))
    assert len(donors.gave["good"]) > len(donors.gave["slow"]) > 0


def test_a_peer_that_failed_is_asked_last(blob) -> None:
    """A donor that failed lately gives nothing while others can, and is asked when nobody else is left."""
    avoided = avoiding()
    avoided.note("bad", useful=False)
    donors = Donors(blob, bad="is good", good="is good")
    asyncio.run(run(Assembly(blob.index), donors, avoided))
    assert donors.requests["bad"] == 0
    donors = Donors(blob, bad="is good", good="stops")
    assembly = Assembly(blob.index)
    asyncio.run(run(assembly, donors, avoided))
    assert len(donors.gave["bad"]) > CHUNKS / 2


def test_donors_are_avoided_for_a_while_only() -> None:
    """After its time a donor is like any other."""
    now = [0.0]
    avoided = Pauses(AVOID_SECONDS, AVOID_SECONDS, lambda: now[0])
    avoided.note("bad", useful=False)
    now[0] += AVOID_SECONDS - 1
    assert "bad" in avoided
    now[0] += 2
    assert "bad" not in avoided


def test_a_busy_donor_is_asked_again(blob) -> None:
    """Busy is no failure: it is not avoided, and gives later; alone it is named when the time is over."""
    donors, assembly, avoided = (
        Donors(blob, a="is busy once"),
        Assembly(blob.index),
        avoiding(),
    )
    asyncio.run(run(assembly, donors, avoided))
    assert not assembly.missing
    assert "a" not in avoided
    with pytest.raises(NodeError, match="a: it was busy"):
        asyncio.run(run(Assembly(blob.index), Donors(blob, a="is busy"), seconds=0.3))


def test_others_give_what_a_busy_donor_cannot(blob) -> None:
    """A donor that stays busy holds nothing up."""
    donors, assembly = Donors(blob, busy="is busy", good="is good"), Assembly(blob.index)
    asyncio.run(run(assembly, donors))
    assert sorted(donors.gave["good"]) == list(range(CHUNKS))


async def test_donors_that_come_later_help(blob) -> None:
    """Who is known only when the download is under way gives too."""
    donors, assembly = Donors(blob, first="is silent"), Assembly(blob.index)

    async def known() -> list[str]:
        found = list(donors.manners)
        donors.manners["later"] = "is good"
        return found

    await Download(assembly, donors.ask, avoiding()).run(known, 30.0)
    assert sorted(donors.gave["later"]) == list(range(CHUNKS))


async def test_not_finding_donors_is_survived(blob) -> None:
    """An error of the search is no error of the download, unless nobody at all is known."""

    async def nobody() -> list[str]:
        raise OSError("no network")

    with pytest.raises(NodeError, match="nobody has it"):
        await Download(Assembly(blob.index), Donors(blob).ask, avoiding()).run(nobody, 30.0)


async def test_the_time_is_bounded(blob) -> None:
    """It ends when its time is over, whatever donors do, and leaves no request open."""
    donors = Donors(blob, a="is silent", b="is busy", c="is silent")
    before = asyncio.all_tasks()
    with pytest.raises(NodeError, match="a: it took too long"):
        await run(Assembly(blob.index), donors, seconds=0.2)
    assert asyncio.all_tasks() == before
    assert donors.at_once == 0


def test_few_chunks_are_under_way_until_the_rate_is_known(blob, monkeypatch) -> None:
    """On a slow link many requests at once would each look like silence, so few are out at first."""
    monkeypatch.setattr(download_module, "CHUNK_BYTES", 1 << 20)  # by which the rate seems to be very small
    donors = Donors(blob, **{str(number): "is good" for number in range(30)})
    asyncio.run(run(Assembly(blob.index), donors))
    assert donors.most_at_once <= download_module.FIRST_CHUNKS


async def test_no_faster_than_allowed(blob) -> None:
    """With a limit no more is asked for than may be received."""
    total = sum(blob.index.sizes)
    donors, assembly = Donors(blob, a="is good", b="is good"), Assembly(blob.index)
    started = asyncio.get_running_loop().time()
    await run(assembly, donors, bucket=TokenBucket(total / 2))
    assert asyncio.get_running_loop().time() - started >= 0.9
    assert not assembly.missing


def test_progress_is_told(blob) -> None:
    """From what was there at first to the whole, with rate and donors."""
    told: list[Downloading] = []
    assembly = Assembly(blob.index)
    assembly.put(0, bytes(blob.chunk(0)))
    asyncio.run(run(assembly, Donors(blob, a="is good"), tell=told.append))
    total = sum(blob.index.sizes)
    assert (told[0].bytes_done, told[0].bytes_total) == (CHUNK, total)
    assert told[-1].bytes_done == total
    assert told[-1].bytes_per_second > 0
    assert [each.bytes_done for each in told] == sorted(each.bytes_done for each in told)
    assert {each.donors for each in told} <= {0, 1}


@pytest.mark.parametrize(("kind", "urgent"), [(CONTRIBUTION, True), (KIND, False)])
def test_contributions_go_before_states(kind: str, urgent: bool) -> None:
    """A group waits for a contribution, so that it takes priority where the rate is limited."""
    taken = []

    class Noting(TokenBucket):
        async def take(self, amount: int, *, urgent: bool = False) -> None:
            taken.append((amount, urgent))

    blob = Blob.build({"kind": kind}, [bytes(CHUNK)])
    asyncio.run(run(Assembly(blob.index), Donors(blob, a="is good"), bucket=Noting(None)))
    assert taken == [(CHUNK, urgent)]
