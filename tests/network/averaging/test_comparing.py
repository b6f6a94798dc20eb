"""Receipts compared between real nodes on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2PContext, P2PHandlerError
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.network.averaging import comparing
from dupt_swarm.network.averaging.average import Means
from dupt_swarm.network.averaging.comparing import (
    ASKED_MAX,
    RECEIPTS_MAX,
    ROLLS_MAX,
    CompareMessage,
    Comparing,
    ReceiptsMessage,
)
from dupt_swarm.network.averaging.pledge import PLEDGE_BYTES_MAX, Subject
from dupt_swarm.network.averaging.proof import Proof
from dupt_swarm.network.averaging.receipt import Receipt
from dupt_swarm.network.averaging.roll import Roll
from dupt_swarm.network.averaging.statement import Statement
from dupt_swarm.network.members.signed import as_text
from dupt_swarm.network.p2p.lengths import METHODS
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.log_entry import MEMBERS_MAX
from tests.support.sharing_groups import STATE, member_keys
from tests.support.stranger import peer_id_in, stranger_beside
from tests.support.tiny import reduced_tables

ONE, OTHER = "1" * 64, "2" * 64


@pytest.fixture(scope="session")
def make_manifest(make_manifest):
    """Manifests of swarms that reduce."""
    return lambda **changes: make_manifest(**reduced_tables(**changes))


@pytest.fixture(scope="module")
def reducers() -> dict[str, RSAPrivateKey]:
    """Keys of members that average, by peer id; the members that compare are others."""
    return member_keys(3)


@pytest.fixture
def manifest(make_manifest):
    return make_manifest()


def run(scenario: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


class Group:
    """Members that compare, each of its kind, with a roll of them all; nobody can call those ``hidden``."""

    def __init__(self, manifest, peers, kinds=(), hidden=()) -> None:
        self.peers = peers
        kinds = [*kinds, *[Comparing] * (len(peers) - len(kinds))]
        self.members = [kind(peer.p2p, manifest.swarm_id) for kind, peer in zip(kinds, peers, strict=True)]
        means = [
            Means(manifest, peer.p2p, peer.key, 1, callable=number not in hidden)
            for number, peer in enumerate(peers)
        ]
        self.roll = Roll.call(
            means[0].me, means[0].key, [each.state(Claim(3, STATE, 10, each.me)) for each in means]
        )
        self.subject = Subject(manifest.swarm_id, self.roll.id, 3, STATE)

    def receipts(self, keys: Mapping[str, RSAPrivateKey], share: str = ONE) -> dict[str, Receipt]:
        """Of reducers that have all returned the same."""
        return {peer: Receipt.sign(self.subject, share, peer, key) for peer, key in keys.items()}

    async def ask(self, *members: int) -> list[Proof]:
        """What the first one finds out from these."""
        return await self.members[0].compare(self.roll, [self.peers[each].peer_id for each in members])

    @property
    def refused(self) -> int:
        return int(self.peers[0].p2p.refused["form"])


@asynccontextmanager
async def group_of(stations, manifest, count: int = 2, **more: Any) -> AsyncIterator[Group]:
    async with stations(count, manifest) as peers:
        group = Group(manifest, peers, **more)
        for each in group.members:
            await each.start()
        yield group


def test_who_has_signed_two_is_named(stations, manifest, reducers) -> None:
    """By whoever asks a member that has the other receipt; the proof convinces anybody; nobody else is."""
    liar = next(iter(reducers))

    async def scenario() -> None:
        async with group_of(stations, manifest, 3) as group:
            first, second, third = group.members
            mine = group.receipts(reducers)
            other = mine | group.receipts({liar: reducers[liar]}, OTHER)
            for member, receipts in ((first, mine), (second, other), (third, other)):
                member.keep(group.roll, receipts)
            [proof] = await group.ask(1, 2)
            assert Proof.read(proof.data, manifest.swarm_id).offender == liar
            assert group.refused == 0

    run(scenario)


def test_the_honest_prove_nothing(stations, manifest, reducers) -> None:
    """Members with the same receipts, or with some that were signed twice for the same, or with fewer."""

    async def scenario() -> None:
        async with group_of(stations, manifest) as group:
            first, second = group.members
            first.keep(group.roll, group.receipts(reducers))
            second.keep(group.roll, group.receipts(reducers))
            assert await group.ask(1) == []
            second.keep(group.roll, {})
            assert await group.ask(1) == []
            first.keep(group.roll, {})
            second.keep(group.roll, group.receipts(reducers))
            assert await group.ask(1) == []
            assert group.refused == 0

    run(scenario)


class Lying(Comparing):
    """Answers with receipts of its own making."""

    told: tuple[bytes, ...] = ()

    async def rpc_receipts(self, request: BytesValue, _context: P2PContext) -> BytesValue:
        del request
        reply = {"receipts": [as_text(each) for each in self.told]}
        return BytesValue(value=json.dumps(reply).encode())


Lying.__name__ = Comparing.__name__  # as on the wire


def test_nobody_is_named_by_others_words(stations, manifest, reducers) -> None:
    """Forged receipts, those of another roll or of somebody else, and nonsense, are dropped each alone."""
    (liar, key), (honest, _), (outsider, outsiders) = reducers.items()

    async def scenario() -> None:
        async with group_of(stations, manifest, kinds=[Comparing, Lying]) as group:
            group.members[0].keep(group.roll, group.receipts({liar: key, honest: reducers[honest]}))
            valid = Receipt.sign(group.subject, OTHER, liar, key).data
            elsewhere = Subject(manifest.swarm_id, "ab" * 20, 3, STATE)
            bad = (
                valid[:-1] + bytes([valid[-1] ^ 1]),
                Receipt.sign(elsewhere, OTHER, liar, key).data,
                Receipt.sign(group.subject, ONE, liar, key).data,
                bytes(PLEDGE_BYTES_MAX + 1),
                b"",
            )
            Lying.told = (*bad, Receipt.sign(group.subject, OTHER, outsider, outsiders).data)
            assert await group.ask(1) == []
            assert group.refused == len(bad)
            Lying.told = (*bad, valid)
            assert [proof.offender for proof in await group.ask(1)] == [liar]
            Lying.told = (valid,) * (RECEIPTS_MAX + 1)  # too many
            assert await group.ask(1) == []

    run(scenario)


class Silent(Comparing):
    """Never answers."""

    asked = 0

    async def rpc_receipts(self, request: BytesValue, _context: P2PContext) -> BytesValue:
        del request
        Silent.asked += 1
        await asyncio.Event().wait()
        raise AssertionError


Silent.__name__ = Comparing.__name__  # as on the wire


def test_who_is_silent_is_not_waited_for(stations, manifest, reducers, monkeypatch) -> None:
    """Those who answer are enough, and who cannot be called is not asked."""
    liar = next(iter(reducers))
    monkeypatch.setattr(comparing, "COMPARE_SECONDS", 1.0)

    async def scenario() -> None:
        async with group_of(
            stations, manifest, 4, kinds=[Comparing, Silent, Comparing, Silent], hidden=[3]
        ) as group:
            group.members[0].keep(group.roll, group.receipts(reducers))
            group.members[2].keep(group.roll, group.receipts(reducers, OTHER))
            before = asyncio.get_running_loop().time()
            assert liar in {proof.offender for proof in await group.ask(1, 2, 3)}
            assert asyncio.get_running_loop().time() - before < 2.0
            assert Silent.asked == 1

    run(scenario)


def test_strangers_and_nonsense(stations, manifest, reducers, identities) -> None:
    """Who is not in the group is answered with an error, and so is a request that is none."""

    async def scenario() -> None:
        async with (
            group_of(stations, manifest) as group,
            stranger_beside(group.peers[0].address, identity=identities[3]) as p2p,
        ):
            group.members[0].keep(group.roll, group.receipts(reducers))
            good = {"roll": group.roll.id, "known": []}
            address = peer_id_in(group.peers[0].address)
            member, stranger = (
                Comparing.get_stub(node, address, namespace=manifest.swarm_id)
                for node in (group.peers[1].p2p, p2p)
            )
            reply = await member.rpc_receipts(BytesValue(value=json.dumps(good).encode()))
            assert len(ReceiptsMessage.model_validate_json(reply.value).receipts) == len(reducers)
            with pytest.raises(P2PHandlerError, match="another group"):
                await stranger.rpc_receipts(BytesValue(value=json.dumps(good).encode()))
            for change in ({"roll": "ab" * 20}, {"known": ["?"]}, {"known": [ONE] * 257}, {"more": 1}):
                with pytest.raises(P2PHandlerError):
                    await member.rpc_receipts(BytesValue(value=json.dumps(good | change).encode()))

    run(scenario)


def test_a_few_are_asked_and_rolls_before_are_forgotten(manifest) -> None:
    """However many have voted for something else, and however many rounds there were."""

    class Noting(Comparing):
        asked = 0

        async def _ask(self, peer: str, roll_id: str) -> list[Proof]:
            del peer, roll_id
            self.asked += 1
            return []

    keys = member_keys(ASKED_MAX + 3)
    noting = Noting(None, manifest.swarm_id)

    def roll_at(round: int) -> Roll:
        statements = [
            Statement.make(manifest.swarm_id, Claim(round, STATE, 10, peer), "", key)
            for peer, key in keys.items()
        ]
        return Roll.call(statements[0].maker, keys[statements[0].maker], statements)

    for round in range(ROLLS_MAX + 2):
        noting.keep(roll_at(round), {})
    assert len(noting._kept) == ROLLS_MAX
    asyncio.run(noting.compare(roll_at(9), list(keys)))
    assert noting.asked == ASKED_MAX


def test_full_messages_fit() -> None:
    """The method's lengths have room for all that a message may have."""
    asking = CompareMessage(roll="ab" * 40, known=[ONE] * MEMBERS_MAX)
    told = ReceiptsMessage(receipts=[as_text(bytes(PLEDGE_BYTES_MAX))] * RECEIPTS_MAX)
    assert len(asking.model_dump_json()) < METHODS["rpc_receipts"].request - 64
    assert len(told.model_dump_json()) < METHODS["rpc_receipts"].reply - 64
