"""A stranger among those who look for the group of a round: as one that comes, and as the coordinator."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
import torch
from hivemind.p2p import P2P, PeerID
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.network.averaging.roll import Roll, Statement
from dupt_swarm.network.averaging.roll_call import RollCall, RollMessage
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.p2p.rpc import ANSWERED, Refusal
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.signed import peer_id_of_key
from tests.network.averaging.test_roll_call import state_drawn
from tests.support.averages import DIGEST, Received, open_averaging, start_round
from tests.support.stranger import answer_raw, call_raw, nested_extensions, stranger_beside

NUMEL = 1000


@pytest.fixture
def manifest(make_manifest):
    return make_manifest(rounds={"matchmaking_seconds": 4, "chunk_seconds": 2, "allreduce_seconds": 15})


def run(scenario: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 120))


def assert_averaged(results: list[Received]) -> None:
    assert [result.reason for result in results] == [None] * len(results)
    for result in results:
        assert result.values is not None
        assert results[0].values is not None
        assert torch.equal(result.values, results[0].values)
        assert result.tokens == 10 * len(results)


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def requests_of(swarm_id: str, key: RSAPrivateKey, other: RSAPrivateKey) -> dict[str, bytes]:
    """What a stranger with ``key`` may ask a coordinator."""
    mine, yours = (peer_id_of_key(each.get_public_key().to_bytes()) for each in (key, other))

    def join(statement: bytes, **more: Any) -> bytes:
        return json.dumps({"statement": text(statement), **more}).encode()

    heavy = Statement.make(swarm_id, Claim(7, DIGEST, 10**12, mine), "", key)
    elsewhere = Statement.make("other-0", Claim(7, DIGEST, 10, mine), "", key)
    stolen = Statement.make(swarm_id, Claim(7, DIGEST, 10, yours), "", other)
    honest = Statement.make(swarm_id, Claim(7, DIGEST, 10, mine), "", key)
    return {
        "too heavy": join(heavy.data),
        "of another swarm": join(elsewhere.data),
        "another's": join(stolen.data),
        "forged": join(msgpack.packb([*msgpack.unpackb(honest.data)[:2], bytes(256)])),
        "nested": join(nested_extensions()),
        "no base 64": json.dumps({"statement": "?"}).encode(),
        "more": join(honest.data, more=1),
        "junk": b"[" * 1000,
        "nothing": b"",
    }


def test_a_member_that_sends_nonsense(stations, manifest, identities) -> None:
    """It is answered with an error, comes onto no roll, and the others average without it."""
    key, other = load_identity(identities[3]), load_identity(identities[2])

    async def scenario() -> None:
        async with (
            stations(2, manifest) as peers,
            stranger_beside(*(peer.address for peer in peers), identity=identities[3]) as p2p,
        ):
            averagers = [await open_averaging(manifest, peer, NUMEL) for peer in peers]
            for request in requests_of(manifest.swarm_id, key, other).values():
                for peer in peers:
                    reply = await call_raw(p2p, peer.address, RollCall.rpc_join.name, request)
                    assert reply[0] == Refusal.MALFORMED
            parts = [torch.full((NUMEL,), 1.0 + number) for number in range(2)]
            assert_averaged(await asyncio.gather(*start_round(averagers, parts, [10, 10])))

    run(scenario)


def rolls_of(
    swarm_id: str, state: str, key: RSAPrivateKey, other: RSAPrivateKey
) -> dict[str, Callable[[Statement], bytes]]:
    """What a coordinator with ``key`` may answer to who has come with a statement."""
    mine, yours = (peer_id_of_key(each.get_public_key().to_bytes()) for each in (key, other))

    def stated(who: str, by: RSAPrivateKey, tokens: int = 10) -> Statement:
        return Statement.make(swarm_id, Claim(7, state, tokens, who), "", by)

    def roll(*statements: Statement, by: RSAPrivateKey = key) -> bytes:
        return RollMessage.of(Roll.call(mine, by, statements)).pack()

    return {
        "too heavy": lambda yours_truly: roll(yours_truly, stated(mine, key, 10**12)),
        "without you": lambda _: roll(stated(mine, key), stated(yours, other)),
        "you alone": lambda yours_truly: roll(yours_truly),
        "twice": lambda yours_truly: roll(yours_truly, stated(mine, key), stated(mine, key, 11)),
        "signed by another": lambda yours_truly: roll(yours_truly, stated(mine, key), by=other),
        "long": lambda _: b'{"roll": "' + b"A" * 3_000_000 + b'"}',
        "junk": lambda _: b"[" * 1000,
    }


def test_a_hostile_coordinator(stations, manifest, identities) -> None:
    """Whose turn it is, and who answers with an impossible roll, is passed over; nobody misses the round."""
    key, other = load_identity(identities[3]), load_identity(identities[2])
    asked: list[str] = []

    async def scenario() -> None:
        async with (
            stations(2, manifest) as peers,
            stranger_beside(*(peer.address for peer in peers), identity=identities[3]) as p2p,
        ):
            averagers = [await open_averaging(manifest, peer, NUMEL) for peer in peers]
            stranger = str(p2p.peer_id)
            state = state_drawn([stranger, *(peer.peer_id for peer in peers)], stranger)
            kinds = rolls_of(manifest.swarm_id, state, key, other)
            parts = [torch.full((NUMEL,), 1.0 + number) for number in range(2)]
            answers = list(kinds.values())
            await answer_joins(
                p2p, manifest.swarm_id, lambda mine: answers[mine.claim.round - 7](mine), asked
            )
            for number in range(len(kinds)):
                results = await asyncio.gather(
                    *start_round(
                        averagers, parts, [10, 10], awaited=[stranger], round=7 + number, digest=state
                    )
                )
                assert_averaged(results)
            assert len(asked) >= 2 * len(kinds)

    run(scenario)


async def answer_joins(
    p2p: P2P, swarm_id: str, answer: Callable[[Statement], bytes], asked: list[str]
) -> None:
    """Be a coordinator."""

    async def join(data: bytes, caller: PeerID) -> bytes:
        asked.append(str(caller))
        statement = base64.b64decode(json.loads(data)["statement"])
        return ANSWERED + answer(Statement.read(statement, swarm_id))

    await answer_raw(p2p, RollCall.rpc_join.name, join)
