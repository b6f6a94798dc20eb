"""Proofs passed on between real nodes on loopback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgpack
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.network.host import background
from dupt_swarm.network.members.identity import load_identity, short_name
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.rpc import CallError, Raw, Refusal
from dupt_swarm.network.rounds import offences as offending
from dupt_swarm.network.rounds.offences import (
    ASKED_MAX,
    KEPT_MAX,
    MESSAGE_BYTES_MAX,
    PROOFS_MAX,
    Accusing,
    Offences,
    ProofsMessage,
    _as_many,
)
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.proof import PROOF_BYTES_MAX, Proof
from tests.support.lies import denied, keys_by_id, longest
from tests.support.stranger import call_raw


@dataclass
class Accuser:
    """A node with what it knows of offenders."""

    member: Membership
    offences: Offences
    accusing: Accusing

    @property
    def peer_id(self) -> str:
        return self.member.peer_id

    @property
    def exposed(self) -> set[str]:
        return set(self.member.exposed)

    @property
    def received(self) -> int:
        return int(self.member._p2p.counts.received)

    @property
    def refused(self) -> int:
        return int(self.member._p2p.refused["form"])


@pytest.fixture(scope="module")
def liars() -> dict[str, Ed25519PrivateKey]:
    """Keys of voters that lie."""
    return keys_by_id(PROOFS_MAX + 2)


@pytest.fixture
def manifest(make_manifest):
    return make_manifest()


@asynccontextmanager
async def accusers(stations, manifest, voters, count: int = 3, kind=Accusing) -> AsyncIterator[list[Accuser]]:
    """Nodes that know these voters; the last one answers as ``kind`` does."""
    async with stations(count, manifest) as peers:
        made = []
        for number, peer in enumerate(peers):
            member = Membership(manifest, peer.p2p, peer.key)
            member.electorate = Electorate().after(voters, weak=True)
            offences = Offences(manifest.swarm_id, member, peer.folder / "offences.json")
            here = (kind if number == count - 1 else Accusing)(peer.p2p, manifest.swarm_id, offences)
            await peer.p2p.serve(here)
            made.append(Accuser(member, offences, here))
        yield made


def proof_against(manifest, keys, place: int = 0) -> Proof:
    """Of a peer that has denied what it had accepted."""
    return denied(manifest.swarm_id, list(keys.values())[place])


async def test_a_proof_goes_from_peer_to_peer(stations, manifest, liars) -> None:
    """Whoever gets it leaves the offender out, and passes it on to who has seen nothing of it."""
    liar = next(iter(liars))
    async with accusers(stations, manifest, liars) as (first, second, third):
        first.offences.expose([proof_against(manifest, liars)])
        await second.accusing.ask(first.peer_id)
        await third.accusing.ask(second.peer_id)
        for each in (first, second, third):
            assert each.exposed == {liar}
            assert liar in each.member.voters
            assert not each.member.admits(liar)
            assert each.member._p2p.refused == {"contradiction": 1}


async def test_a_peer_that_asks_brings_what_the_other_lacks(stations, manifest, liars) -> None:
    """So a proof gets out also from a peer that nobody can call."""
    async with accusers(stations, manifest, liars, 2) as (first, second):
        first.offences.expose([proof_against(manifest, liars)])
        await first.accusing.ask(second.peer_id)
        assert second.exposed == first.exposed == {next(iter(liars))}


async def test_in_the_background(stations, manifest, liars, monkeypatch) -> None:
    """Three nodes that ask one another know the same soon, though one of those asked is gone."""
    monkeypatch.setattr(offending, "ASK_SECONDS", 0.2)
    async with accusers(stations, manifest, liars) as (first, second, third):
        first.offences.expose([proof_against(manifest, liars, 0)])
        third.offences.expose([proof_against(manifest, liars, 1)])

        async def partners() -> list[str]:
            return [next(iter(liars)), second.peer_id]

        async with AsyncExitStack() as asking:
            for each in (first, third):
                await asking.enter_async_context(background(each.accusing.ask_forever(partners)))
            while {len(each.exposed) for each in (first, second, third)} != {2}:
                await asyncio.sleep(0.1)


async def test_what_is_new_is_passed_on_at_once(stations, manifest, liars) -> None:
    """By each that learns it, to those that it has been in a group with, though others are gone; once."""
    gone = dict(list(liars.items())[: ASKED_MAX - 2])  # of more than can be asked at once, some are drawn
    async with accusers(stations, manifest, gone) as peers, AsyncExitStack() as spreading:
        for each in peers:
            ids = {another.peer_id for another in peers}
            each.member.attendance.ended(ids, ids)
            await spreading.enter_async_context(background(each.accusing.spread_forever()))
        peers[0].offences.expose([proof_against(manifest, liars)])
        while any(each.exposed != {next(iter(liars))} for each in peers):
            await asyncio.sleep(0.05)
        assert not any(each.offences.news.is_set() for each in peers)


async def test_what_is_known_is_not_sent_again(stations, manifest, liars) -> None:
    """Two who know the same tell each other names only; what is too much for a message is told later."""
    async with accusers(stations, manifest, liars, 2) as (first, second):
        for place in range(len(liars)):
            first.offences.expose([proof_against(manifest, liars, place)])
        for known in (PROOFS_MAX, len(liars)):
            await second.accusing.ask(first.peer_id)
            assert len(second.exposed) == known
        before = second.received
        await second.accusing.ask(first.peer_id)
        assert second.received - before < 400


async def test_strangers_are_not_passed_on(stations, manifest, liars) -> None:
    """Nobody wants a proof against a key that has done nothing else; once it votes, all do."""
    async with accusers(stations, manifest, [], 2) as (first, second):
        first.offences.expose([proof_against(manifest, liars)])
        before = second.received
        await second.accusing.ask(first.peer_id)
        assert second.exposed == set()
        assert second.received - before < 200
        second.member.electorate = Electorate().after(liars, weak=True)
        await second.accusing.ask(first.peer_id)
        assert second.exposed == first.exposed


class Inventing(Accusing):
    """Answers with proofs that prove nothing, and one that does."""

    valid = b""

    @Accusing.rpc_proofs.override
    async def rpc_proofs(self, request: ProofsMessage, _caller: str) -> Any:
        names = [short_name(peer) for peer in self._offences._acquaintances.voters]
        if not request.wanted:
            return ProofsMessage(known=tuple(names))
        bad = [self.valid[:-1] + bytes([self.valid[-1] ^ 1]), b"", 5, bytes(PROOF_BYTES_MAX + 1), None]
        return Raw(msgpack.packb([[], [], [*bad, self.valid]]))


async def test_an_invalid_proof_is_dropped_alone(stations, manifest, liars) -> None:
    """It is counted, and exposes nobody; the valid one beside it does."""
    liar = next(iter(liars))
    Inventing.valid = proof_against(manifest, liars).data
    async with accusers(stations, manifest, liars, 2, Inventing) as (first, second):
        await first.accusing.ask(second.peer_id)
        assert (first.exposed, first.refused) == ({liar}, 5)


class Raving(Accusing):
    """Answers with no message at all."""

    @Accusing.rpc_proofs.override
    async def rpc_proofs(self, _request: ProofsMessage, _caller: str) -> Any:
        return Raw(b"\xc0")


async def test_nonsense(stations, manifest, liars) -> None:
    """An answer that is none is counted; a request that is none is answered with an error."""
    async with accusers(stations, manifest, liars, 2, Raving) as (first, second):
        with pytest.raises(CallError, match="not a message") as error:
            await first.accusing.ask(second.peer_id)
        assert error.value.refusal is Refusal.NONSENSE
        assert first.refused == 1
        long = [b"x" * 8] * (KEPT_MAX + 1)
        malformed: list[Any] = [5, [], [[], []], [[5], [], []], [[b"x"], [], []], [long, [], []]]
        many = [b""] * (PROOFS_MAX + 1), [bytes(8)] * (PROOFS_MAX + 1)
        for tree in (*malformed, [[], [], many[0]], [[], many[1], []]):
            data = msgpack.packb(tree)
            reply = await call_raw(second.member._p2p, first.peer_id, "Accusing.rpc_proofs", data)
            assert reply[0] == Refusal.MALFORMED


async def test_a_peer_that_is_accused_itself(stations, manifest, identities, caplog) -> None:
    """It goes on, and says in its log that others have left it out, and what to do."""
    async with accusers(stations, manifest, [], 1) as (accused,):
        own = {accused.peer_id: load_identity(identities[0])}
        accused.member.electorate = Electorate().after(own, weak=True)
        accused.offences.take([proof_against(manifest, own)])
        assert accused.exposed == set()
        assert "others leave it out for good" in caplog.text


def test_a_full_message_fits() -> None:
    """The method's lengths have room for all that a message may have."""
    names, bounds = (bytes(8),) * KEPT_MAX, Accusing.rpc_proofs.bounds
    each = bytes(MESSAGE_BYTES_MAX // PROOFS_MAX)
    for proofs in ((bytes(PROOF_BYTES_MAX),), (each,) * PROOFS_MAX):
        full = ProofsMessage(names, names[:PROOFS_MAX], proofs)
        assert len(full.pack()) < bounds.reply - 64
        assert ProofsMessage.read(full.pack()) == full
    assert bounds.request == bounds.reply
    assert len(_as_many([Proof("a", b"")] * (PROOFS_MAX + 1))) == PROOFS_MAX


async def test_the_longest_proofs_are_told_one_after_another(stations, manifest, liars) -> None:
    """Each comes, though no two of them fit into a message; and the short ones beside them too."""
    some = list(liars.values())[:3]
    async with accusers(stations, manifest, liars, 2) as (first, second):
        first.offences.expose([longest(manifest.swarm_id, key) for key in some])
        asking = [(first, second), (second, first), (first, second)]  # who asks, who is asked
        for known, (asks, asked) in enumerate(asking, 1):
            await asks.accusing.ask(asked.peer_id)
            assert len(second.exposed) == known
        first.offences.expose([proof_against(manifest, liars, 3)])
        await second.accusing.ask(first.peer_id)
        assert second.exposed == first.exposed
