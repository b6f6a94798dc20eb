"""What an audit, and a peer that is behind, make of logs that are honest, forged or incomplete."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dupt_swarm.network.auditing import Auditor
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.replaying import Replaying, RoundLog
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.log_entry import LogEntry
from tests.support.kept_rounds import KeptRounds


@pytest.fixture
def kept(make_manifest, identities) -> KeptRounds:
    """Three honest rounds."""
    manifest = make_manifest(
        encoding={"contribution": "fp32"},
        outer={"optimizer": "nesterov", "momentum": 0.0, "learning_rate": 1.0},
    )
    rounds = KeptRounds(manifest, load_identity(identities[0]))
    for number in range(3):
        rounds.end_round(torch.full((1000,), 0.1 * (number + 1)))
    return rounds


@dataclass
class Kept:
    """A shelf of a donor."""

    found: dict[str, Blob]

    def get(self, digest: str) -> Blob | None:
        return self.found.get(digest)

    @property
    def blobs(self) -> list[Blob]:
        return list(self.found.values())


@pytest.fixture
def keeper(stations, kept) -> Callable[..., Any]:
    """``async with keeper() as (exchange, donor)``: one peer keeps these rounds, another asks it."""

    @asynccontextmanager
    async def start() -> AsyncIterator[tuple[Exchange, str]]:
        async with stations(2) as [donor, asking]:
            await connect(asking.p2p, [donor.address])
            given = Exchange(donor.p2p)
            given.serve_from(Kept(kept.blobs | {state.digest: state.blob for state in kept.states}))
            given.tell_log(lambda _: kept.entries)
            await given.start()
            yield Exchange(asking.p2p), str(donor.p2p.peer_id)

    return start


def flipped(values: torch.Tensor) -> torch.Tensor:
    """One bit of them is another: the last of the last mantissa."""
    bits = values.clone().view(torch.int32)
    bits[-1] ^= 1
    return bits.view(torch.float32)


def verdicts(kept: KeptRounds, keeper, chain: list[LogEntry]) -> list[tuple[str, str]]:
    """What an audit says of the rounds in ``chain``."""

    async def scenario() -> list[tuple[str, str]]:
        async with keeper() as (exchange, donor):
            connection: Any = SimpleNamespace(manifest=kept.manifest, exchange=exchange)
            auditor = Auditor(
                connection=connection,
                store=StateStore(kept.manifest, exchange),
                peers=[donor],
                entries={entry.after: entry for entry in chain},
                holders={state.digest: [donor] for state in kept.states},
            )
            found = auditor.chain_to(chain[-1].after)
            assert found == chain
            return [(each.verdict, each.reason) for each in await auditor.walk(found, len(found))]

    return asyncio.run(asyncio.wait_for(scenario(), 60))


def test_honest_rounds_are_equal(kept, keeper) -> None:
    """Each leads to the state that its entry names."""
    assert verdicts(kept, keeper, kept.entries) == [("equal", "")] * 3


def test_a_flipped_bit_is_found(kept, keeper) -> None:
    """A contribution that differs in one bit, signed by its own maker, leads elsewhere; the rest is equal."""
    kept.states.pop()
    entry, blob = kept.contribute(flipped(torch.full((1000,), 0.1 * 3)))
    kept.blobs[blob.digest] = blob
    forged = kept.voted(entry, kept.entries[-1].after)
    *equal, (verdict, reason) = verdicts(kept, keeper, [*kept.entries[:2], forged])
    assert equal == [("equal", "")] * 2
    assert (verdict, reason[:22]) == ("differs", "it leads to the state ")


def test_a_forged_entry_is_found(kept, keeper) -> None:
    """What nobody has signed differs, and the next round is judged from the state that was claimed."""
    more = kept.entries[1].inputs[0].model_copy(update={"tokens": 1000})
    forged = kept.entries[1].model_copy(update={"inputs": (more,)})
    first, second, third = verdicts(kept, keeper, [kept.entries[0], forged, kept.entries[2]])
    assert (first[0], second[0], third[0]) == ("equal", "differs", "equal")
    assert "not the one that its maker has signed for" in second[1]


def test_what_is_gone_is_no_longer_held(kept, keeper) -> None:
    """A round without its contributions cannot be judged; a damaged one is not given for the real one."""
    digest = kept.entries[1].digests[0]
    damaged = bytearray(kept.blobs[digest].sections[0])
    damaged[5] ^= 1
    kept.blobs[digest] = Blob(kept.blobs[digest].index, (memoryview(damaged),))
    first, second, third = verdicts(kept, keeper, kept.entries)
    assert (first[0], second[0], third[0]) == ("equal", "no longer held", "equal")
    assert "does not have the hash" in second[1]


def test_a_peer_that_is_behind_computes(kept, keeper) -> None:
    """From an old state it comes to the very state that it could have fetched, and keeps the rounds."""

    async def scenario() -> None:
        async with keeper() as (exchange, donor):

            async def donors() -> list[str]:
                return [donor]

            log = RoundLog(10, 1 << 20)
            replaying = Replaying(kept.manifest, exchange, log, torch.empty, always=True)
            wanted = kept.states[-1].digest
            state = await replaying.replay(kept.states[0], wanted, donors)
            fetched = await StateStore(kept.manifest, exchange).fetch(wanted, donors)
            assert state is not None
            assert state.digest == fetched.digest == wanted
            assert log.since(kept.states[0].digest, wanted) == kept.entries
            oracle = Replaying(kept.manifest, exchange, RoundLog(10, 0), torch.empty, always=False)
            assert await oracle.replay(kept.states[0], wanted, donors) is None  # the state has fewer bytes
            kept.entries[2] = kept.entries[2].model_copy(update={"inputs": kept.entries[1].inputs})
            assert await replaying.replay(kept.states[0], wanted, donors) is None  # and is fetched

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_what_the_log_keeps(kept) -> None:
    """The last rounds within the limit, the last one in any case, and a state to begin from."""
    log = RoundLog(1, 1 << 20)
    for before, entry in zip(kept.states, kept.entries, strict=False):
        log.add(entry, {each: kept.blobs[each] for each in entry.digests}, before)
    last, newest = kept.entries[-1], kept.states[-1].digest
    assert log.since("", newest) == kept.entries[1:]
    assert log.since(last.before, newest) == [last]
    assert log.makers(last.before, newest) == frozenset(each.maker for each in last.inputs)
    assert log.makers(kept.states[0].digest, newest) is None  # the first round is not kept
    assert log.get(kept.entries[0].digests[0]) is None
    assert log.get(last.digests[0]) is kept.blobs[last.digests[0]]
    assert [blob.digest for blob in log.blobs if "layout" in blob.index.header] != []
    small = RoundLog(10, 1)
    for before, entry in zip(kept.states, kept.entries, strict=False):
        small.add(entry, {each: kept.blobs[each] for each in entry.digests}, before)
    assert small.since("", newest) == [last]
    assert [blob.digest for blob in small.blobs] == last.digests
