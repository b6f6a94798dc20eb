"""Finding the group of a round between real nodes on loopback."""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2PContext

from dupt_swarm.network.averaging.average import Means
from dupt_swarm.network.averaging.gathering import Gathering
from dupt_swarm.network.averaging.roll import Roll
from dupt_swarm.network.averaging.roll_call import RollCall, RollMessage
from dupt_swarm.network.averaging.statement import Statement
from dupt_swarm.replica.contribution import Claim
from tests.support.averages import Anybody
from tests.support.sharing_groups import STATE, SWARM, member_keys

NOBODY = "QmNobodyNobodyNobodyNobodyNobodyNobodyNobodyNo"


@pytest.fixture
def manifest(make_manifest):
    return make_manifest(rounds={"matchmaking_seconds": 4})


def run(scenario: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


async def open_rolls(manifest, peers, hidden: Sequence[int] = ()) -> list[RollCall]:
    rolls = []
    for number, peer in enumerate(peers):
        rolls.append(
            RollCall(Means(manifest, peer.p2p, peer.key, 1, callable=number not in hidden), Anybody())
        )
        await rolls[-1].open()
    return rolls


def state_first(ids: Sequence[str], first: str) -> str:
    """A state whose coordinator is ``first`` of these peers, as everybody draws it."""

    def drawn(state: str) -> str:
        return min(ids, key=lambda each: hashlib.sha256(f"{state} {each}".encode()).digest())

    return next(state for number in range(1000) if drawn(state := f"{number:064x}") == first)


def statement_of(rolls: RollCall, state: str, round: int = 3, tokens: int = 10) -> Statement:
    return rolls._means.state(Claim(round, state, tokens, rolls._me))


def assemble(rolls: Sequence[RollCall], state: str, awaited: Sequence[str], round: int = 3) -> Any:
    return asyncio.gather(
        *(each.assemble(statement_of(each, state, round), set(awaited) - {each._me}) for each in rolls)
    )


def test_all_get_one_roll(stations, manifest) -> None:
    """Whoever coordinates: all are on it in one order, and it is there at once when all have come."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers), [peer.peer_id for peer in peers]
            for first in ids:
                state = state_first(ids, first)
                before = asyncio.get_running_loop().time()
                found = await assemble(rolls, state, ids)
                assert asyncio.get_running_loop().time() - before < 3  # and not matchmaking_seconds
                assert len({each.id for each in found}) == 1
                assert {each.coordinator for each in found} == {first}
                assert [each.members for each in found] == [sorted(ids)] * 3

    run(scenario)


def test_who_cannot_be_called_does_not_coordinate(stations, manifest) -> None:
    """Members behind routers ask, and are on the roll like all others."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers, hidden=[1, 2]), [peer.peer_id for peer in peers]
            found = await assemble(rolls, state_first(ids, ids[2]), ids)
            assert {each.coordinator for each in found} == {ids[0]}
            assert [each.callable for each in found[0].statements].count(False) == 2

    run(scenario)


class Silent(RollCall):
    """Never answers."""

    async def rpc_join(self, request: BytesValue, context: P2PContext) -> BytesValue:
        del context
        return await asyncio.Event().wait() and request


class Stalling(RollCall):
    """Answers at once that it is not time yet, for ever."""

    async def rpc_join(self, request: BytesValue, context: P2PContext) -> BytesValue:
        del request, context
        return BytesValue(value=RollMessage.of(None).model_dump_json().encode())


Silent.__name__ = Stalling.__name__ = RollCall.__name__  # as on the wire


@pytest.mark.parametrize("lazy", [None, Silent, Stalling], ids=["dead", "silent", "stalling"])
def test_a_coordinator_that_does_nothing(stations, manifest, lazy) -> None:
    """The next one calls the roll of the others, in time."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers[1:]), [peer.peer_id for peer in peers]
            if lazy is not None:
                await lazy(Means(manifest, peers[0].p2p, peers[0].key, 1), Anybody()).open()
            found = await assemble(rolls, state_first(ids, ids[0]), ids)
            assert [each.members for each in found] == [sorted(ids[1:])] * 2

    run(scenario)


def test_who_does_not_come(stations, manifest) -> None:
    """It is waited for no longer than it may take; then the roll is that of those who have come."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers), [peer.peer_id for peer in peers]
            for missing in range(2):
                state = state_first(ids, ids[0])
                here = [each for number, each in enumerate(rolls) if number != missing]
                found = await assemble(here, state, ids, round=3 + missing)
                assert len({each.id for each in found}) == 1
                assert found[0].members == sorted(each._me for each in here)
                # Even the one that is not ready itself called it.
                assert found[0].coordinator == ids[0]

    run(scenario)


def test_nobody_comes(stations, manifest) -> None:
    """There is no roll of one; whoever cannot be called, and knows of nobody who can, is told at once."""

    async def scenario() -> None:
        async with stations(1, manifest) as peers:
            [alone] = await open_rolls(manifest, peers)
            assert await alone.assemble(statement_of(alone, STATE), [NOBODY]) is None
            [hidden] = await open_rolls(manifest, peers, hidden=[0])
            assert await hidden.assemble(statement_of(hidden, STATE), []) is None

    run(scenario)


def test_a_roll_that_came_to_nothing(stations, manifest) -> None:
    """Who looks for a group after the same state again gets another roll, which says after which it is."""

    async def scenario() -> None:
        async with stations(2, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers), [peer.peer_id for peer in peers]
            first, second = [(await assemble(rolls, STATE, ids))[0] for _ in range(2)]
            assert first.id != second.id
            assert (first.after, second.after) == ("", first.id)

    run(scenario)


def test_a_round_that_has_ended(stations, manifest) -> None:
    """Who comes to a coordinator that has ended the round is told so, and waits for nobody there."""

    async def scenario() -> None:
        async with stations(2, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers), [peer.peer_id for peer in peers]
            rolls[0].ended(3)
            late = statement_of(rolls[1], state_first(ids, ids[0]))
            assert await rolls[1].assemble(late, [ids[0]]) is None
            gathering = rolls[0]._gathering(late)
            assert gathering._here == {}

    run(scenario)


def test_a_member_that_fell_silent() -> None:
    """Who has not asked for long is not on the roll, for it would not hear of it."""
    keys = member_keys(3)
    statements = [
        Statement.make(SWARM, Claim(3, STATE, 10, peer), "", key) for peer, key in sorted(keys.items())
    ]
    me, key = next(iter(keys.items()))

    async def scenario() -> None:
        gathering = Gathering(lambda those, after: Roll.call(me, key, those, after), 1.0, 0.5)
        assert await gathering.answer(statements[0], "") is None
        found = await asyncio.gather(*(gathering.answer(each, "") for each in statements[1:]))
        assert [each and each.members for each in found] == [[each.maker for each in statements[1:]]] * 2

    asyncio.run(scenario())


def test_forged_rolls_are_refused() -> None:
    """In another order, of other statements, with a member twice, or of members at different states."""
    keys = member_keys(2)
    (one, key), (two, other) = keys.items()
    mine, yours = (Statement.make(SWARM, Claim(3, STATE, 10, peer), "", each) for peer, each in keys.items())
    honest = Roll.call(one, key, [yours, mine], "")
    assert Roll.read(honest.data, [mine, yours]) == honest
    elsewhere = Statement.make(SWARM, Claim(3, "b" * 64, 10, two), "", other)
    again = Statement.make(SWARM, Claim(3, STATE, 11, two), "", other)
    for statements, told, reason in (
        ([mine, yours], [yours, mine], "other statements"),
        ([mine, yours], [mine], "other statements"),
        ([mine, elsewhere], [mine, elsewhere], "different states"),
        ([mine, yours, again], [mine, *sorted([yours, again], key=lambda each: each.maker)], "twice"),
    ):
        forged = Roll.call(one, key, statements, "")
        with pytest.raises(ValueError, match=reason):
            Roll.read(forged.data, told)
