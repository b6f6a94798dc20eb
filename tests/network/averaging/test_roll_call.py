"""Finding the group of a round between real nodes on loopback."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

import pytest
from hivemind.p2p import P2P
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.network.averaging import gathering as gathering_module
from dupt_swarm.network.averaging.exchange import RoundContext
from dupt_swarm.network.averaging.gathering import GAP_SECONDS, Gathering
from dupt_swarm.network.averaging.roll import Roll, Statement
from dupt_swarm.network.averaging.roll_call import GATHERINGS_MAX, JoinMessage, RollCall, RollMessage
from dupt_swarm.network.host import background
from dupt_swarm.network.members.attendance import Electorate
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.p2p.rpc import CallError
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.signed import as_text
from tests.support.averages import Anybody
from tests.support.sharing_groups import STATE, SWARM, member_keys
from tests.support.stranger import call_raw, stranger_beside

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
            RollCall(RoundContext(manifest, peer.p2p, peer.key, 1, callable=number not in hidden), Anybody())
        )
        await rolls[-1].open()
    return rolls


def state_drawn(ids: Sequence[str], *first: str) -> str:
    """A state at which those of these peers coordinate ``first``, as everybody draws it."""

    def drawn(state: str) -> list[str]:
        return sorted(ids, key=lambda each: hashlib.sha256(f"{state} {each}".encode()).digest())

    states = (f"{number:064x}" for number in range(1000))
    return next(state for state in states if drawn(state)[: len(first)] == [*first])


def pass_over(rolls: RollCall, *peers: str) -> None:
    """It does not wait for these from now on."""
    rolls._companions = companions = Anybody()
    companions.passed_over = peers


def statement_of(rolls: RollCall, state: str, round: int = 3, tokens: int = 10) -> Statement:
    return rolls._context.sign_statement(Claim(round, state, tokens, rolls._me))


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
                state = state_drawn(ids, first)
                before = asyncio.get_running_loop().time()
                found = await assemble(rolls, state, ids)
                assert asyncio.get_running_loop().time() - before < 3  # and not matchmaking_seconds
                assert len({each.id for each in found}) == 1
                assert {each.coordinator for each in found} == {first}
                assert [each.members for each in found] == [sorted(ids)] * 3

    run(scenario)


def test_strangers_do_not_coordinate(stations, manifest) -> None:
    """Where a voter can be called, it does, whomever the state would draw; and after a group without a
    quorum it is another one."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers), [peer.peer_id for peer in peers]
            for each in rolls:
                each._companions.electorate = Electorate(frozenset(ids[:2]))  # type: ignore[misc]
            state = state_drawn(ids, ids[2])
            found = await assemble(rolls, state, ids)
            [first] = {each.coordinator for each in found}
            assert first in ids[:2]
            again = await assemble(rolls, state, ids)
            assert {each.coordinator for each in again} == {*ids[:2]} - {first}

    run(scenario)


@pytest.mark.parametrize("second", [1, 2], ids=["another", "itself"])
def test_who_passes_over_the_coordinator_of_the_others(stations, manifest, second) -> None:
    """Most others say whom they ask, and it follows: all are on one roll, and soon."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers), [peer.peer_id for peer in peers]
            pass_over(rolls[2], ids[0])
            state, began = state_drawn(ids, ids[0], ids[second]), asyncio.get_running_loop().time()
            *others, alone = (statement_of(each, state) for each in rolls)
            found = await asyncio.gather(
                rolls[0].assemble(others[0], ids[1:]),
                rolls[1].assemble(others[1], [ids[0], ids[2]]),
                rolls[2].assemble(alone, [ids[1]]),
            )
            assert asyncio.get_running_loop().time() - began < manifest.rounds.matchmaking_seconds
            assert [each and each.members for each in found] == [sorted(ids)] * 3
            assert {each and each.coordinator for each in found} == {ids[0]}

    run(scenario)


def test_few_that_follow_whom_others_pass_over(stations, manifest) -> None:
    """Those who pass it over stay where they are, although somebody says that it asks that one."""

    async def scenario() -> None:
        async with stations(4, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers), [peer.peer_id for peer in peers]
            state = state_drawn(ids, ids[0], ids[1])
            for each in rolls[1:3]:
                pass_over(each, ids[0])
            astray = asyncio.create_task(rolls[3].assemble(statement_of(rolls[3], state), ids[:3]))
            found = await asyncio.gather(
                rolls[1].assemble(statement_of(rolls[1], state), ids[2:]),
                rolls[2].assemble(statement_of(rolls[2], state), [ids[1], ids[3]]),
            )
            assert [each and each.members for each in found] == [sorted(ids[1:3])] * 2
            assert {each and each.coordinator for each in found} == {ids[1]}
            astray.cancel()

    run(scenario)


def test_who_has_coordinated_for_nothing(stations, manifest) -> None:
    """Whoever comes again at the same state, whatever became of the first group, has another coordinator."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers), [peer.peer_id for peer in peers]
            coordinators = []
            for _ in ids:
                [coordinator] = {each.coordinator for each in await assemble(rolls, STATE, ids)}
                coordinators.append(coordinator)
            assert sorted(coordinators) == sorted(ids)

    run(scenario)


def test_who_cannot_be_called_does_not_coordinate(stations, manifest) -> None:
    """Members behind routers ask, and are on the roll like all others."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers, hidden=[1, 2]), [peer.peer_id for peer in peers]
            found = await assemble(rolls, state_drawn(ids, ids[2]), ids)
            assert {each.coordinator for each in found} == {ids[0]}
            assert [each.callable for each in found[0].statements].count(False) == 2

    run(scenario)


class Silent(RollCall):
    """Never answers."""

    @RollCall.rpc_join.override
    async def rpc_join(self, _request: JoinMessage, _caller: str) -> RollMessage:
        await asyncio.Event().wait()
        return RollMessage()


class Stalling(RollCall):
    """Answers at once that it is not time yet, for ever."""

    @RollCall.rpc_join.override
    async def rpc_join(self, _request: JoinMessage, _caller: str) -> RollMessage:
        return RollMessage()


@pytest.mark.parametrize("lazy", [None, Silent, Stalling], ids=["dead", "silent", "stalling"])
def test_a_coordinator_that_does_nothing(stations, manifest, lazy) -> None:
    """The next one calls the roll of the others, in time."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers[1:]), [peer.peer_id for peer in peers]
            if lazy is not None:
                await lazy(RoundContext(manifest, peers[0].p2p, peers[0].key, 1), Anybody()).open()
            found = await assemble(rolls, state_drawn(ids, ids[0]), ids)
            assert [each.members for each in found] == [sorted(ids[1:])] * 2

    run(scenario)


def test_who_does_not_come(stations, manifest) -> None:
    """It is waited for no longer than it may take; then the roll is that of those who have come."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers), [peer.peer_id for peer in peers]
            for missing in range(2):
                state = state_drawn(ids, ids[0])
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
    """Who looks for a group after the same state again gets another; who asks late for the old one, that."""

    async def scenario() -> None:
        async with stations(2, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers), [peer.peer_id for peer in peers]
            first, second = [(await assemble(rolls, STATE, ids))[0] for _ in range(2)]
            assert first.id != second.id
            coordinator = next(each for each in rolls if each._me == second.coordinator)
            late = next(each for each in second.statements if each.maker != second.coordinator)
            assert await coordinator._gathering((3, STATE)).answer(late) == second

    run(scenario)


def test_a_round_that_has_ended(stations, manifest) -> None:
    """Who comes to a coordinator that has ended the round is told so, and waits for nobody there."""

    async def scenario() -> None:
        async with stations(2, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers), [peer.peer_id for peer in peers]
            state = state_drawn(ids, ids[0])
            rolls[0].ended((3, state))
            assert await rolls[1].assemble(statement_of(rolls[1], state), [ids[0]]) is None
            assert rolls[0]._gathering((3, state))._here == {}

    run(scenario)


def stated(keys: dict[str, RSAPrivateKey]) -> list[Statement]:
    """One statement of each."""
    return [Statement.make(SWARM, Claim(3, STATE, 10, peer), "", key) for peer, key in keys.items()]


def gathering_of(
    keys: dict[str, RSAPrivateKey], manifest, known: Collection[str] = (), barred: Collection[str] = ()
) -> Gathering:
    """At the first of these peers."""
    me, key = next(iter(keys.items()))
    return Gathering(
        me,
        lambda those: Roll.call(me, key, those),
        lambda: known,
        Electorate,
        lambda peer: peer not in barred,
        manifest.rounds,
    )


def test_one_that_may_come_no_longer(make_manifest) -> None:
    """It came when it still might, and is not on the roll that is called later."""
    keys, manifest, barred = member_keys(3), make_manifest(), set[str]()
    late, one, two = stated(keys)

    async def scenario() -> None:
        gathering = gathering_of(keys, manifest, barred=barred)
        waiting = asyncio.create_task(gathering.answer(late))
        await asyncio.sleep(0)
        barred.add(late.maker)
        gathering.awaited = [one.maker, two.maker]
        found = await asyncio.gather(gathering.answer(one), gathering.answer(two))
        assert [each and each.members for each in found] == [[one.maker, two.maker]] * 2
        assert await waiting is None

    asyncio.run(scenario())


def test_a_member_that_fell_silent(make_manifest) -> None:
    """Who asks no more is not on the roll, as it would not hear of it; nor do the others wait less for it."""
    keys, manifest = member_keys(3), make_manifest(rounds={"matchmaking_seconds": 3})
    gone, *others = stated(keys)

    async def scenario() -> None:
        gathering, loop = gathering_of(keys, manifest), asyncio.get_running_loop()
        assert await gathering.answer(gone) is None
        await asyncio.sleep(GAP_SECONDS + 0.1)
        began = loop.time()
        found: list[Roll | None] = [None]
        while None in found:
            found = [*await asyncio.gather(*map(gathering.answer, others))]
        assert [each and each.members for each in found] == [[each.maker for each in others]] * 2
        assert loop.time() - began > 2.5

    asyncio.run(scenario())


@contextlib.asynccontextmanager
async def asking(gathering: Gathering, early: Sequence[Statement]) -> AsyncIterator[None]:
    """These come, and ask again and again."""

    async def ask(statement: Statement) -> None:
        while True:
            await gathering.answer(statement)
            await asyncio.sleep(0.05)

    async with contextlib.AsyncExitStack() as stack:
        for each in early:
            await stack.enter_async_context(background(ask(each)))
        yield


@pytest.mark.parametrize("known", [False, True], ids=["stranger", "known"])
def test_who_came_early(make_manifest, known) -> None:
    """All others have their own time, however long a few have been there."""
    keys, manifest = member_keys(3), make_manifest(rounds={"matchmaking_seconds": 2})
    mine, other, early = stated(keys)
    seen = [other.maker, early.maker] if known else [other.maker]

    async def scenario() -> None:
        gathering, loop = gathering_of(keys, manifest, seen), asyncio.get_running_loop()
        async with asking(gathering, [early]):
            await asyncio.sleep(2.5)
            began = loop.time()
            gathering.awaited = [mine.maker, *seen]
            assert await gathering.answer(mine) is None
            found = await gathering.answer(other)
            assert found is not None and {mine.maker, other.maker} <= set(found.members)
            assert loop.time() - began < 1

    asyncio.run(scenario())


def test_a_quorum_that_waits(make_manifest) -> None:
    """It is given a roll after its time without our own oracle; fewer are not."""
    keys, manifest = member_keys(4), make_manifest(rounds={"matchmaking_seconds": 2})
    _, *others = stated(keys)

    async def scenario() -> None:
        gathering, loop = gathering_of(keys, manifest, [*keys][1:]), asyncio.get_running_loop()
        async with asking(gathering, others[:2]):
            await asyncio.sleep(2.5)
            assert gathering.roll is None
            began, found = loop.time(), None
            while found is None:
                found = await gathering.answer(others[2])
            assert found.members == sorted([*keys][1:])
            assert loop.time() - began > 1.5

    asyncio.run(scenario())


def test_who_is_slow_to_ask(make_manifest) -> None:
    """Their time goes on from when they came first: a roll is called although one never comes."""
    keys, manifest = member_keys(3), make_manifest(rounds={"matchmaking_seconds": 2})
    _, *others = stated(keys)

    async def scenario() -> None:
        gathering = gathering_of(keys, manifest, [each.maker for each in others])

        async def ask(statement: Statement) -> None:
            while gathering.roll is None:
                await gathering.answer(statement)
                await asyncio.sleep(GAP_SECONDS + 0.2)

        first = asyncio.create_task(ask(others[0]))
        await asyncio.sleep(0.7)
        async with asyncio.timeout(10):
            await asyncio.gather(first, ask(others[1]))
        assert gathering.roll is not None and gathering.roll.members == [each.maker for each in others]

    asyncio.run(scenario())


def test_more_than_a_roll_has_room_for(make_manifest, monkeypatch) -> None:
    """Those who are known come first, and whoever else there is room for."""
    monkeypatch.setattr(gathering_module, "MEMBERS_MAX", 2)
    monkeypatch.setattr(gathering_module, "HERE_MAX", 3)
    keys, manifest = member_keys(4), make_manifest(rounds={"matchmaking_seconds": 2})
    first, second, third, fourth = stated(keys)

    async def scenario() -> None:
        gathering = gathering_of(keys, manifest, [third.maker, fourth.maker])
        gathering.awaited = [third.maker, fourth.maker]
        waiting = [asyncio.create_task(gathering.answer(each)) for each in (first, second, third)]
        await asyncio.sleep(0.1)
        [stranger] = stated(member_keys(1))
        with pytest.raises(CallError, match="too many"):
            await gathering.answer(stranger)
        found = await gathering.answer(fourth)
        assert found is not None and found.members == sorted([third.maker, fourth.maker])
        assert [await each for each in waiting] == [None, None, found]

    asyncio.run(scenario())


def test_latecomers_do_not_split_a_round(make_manifest) -> None:
    """While those on the roll end the round nobody else is called to end it too."""
    keys = member_keys(4)
    manifest = make_manifest(rounds={"matchmaking_seconds": 1, "chunk_seconds": 1, "allreduce_seconds": 4})
    one, two, late, later = stated(keys)

    async def scenario() -> None:
        gathering = gathering_of(keys, manifest)
        while None in (await asyncio.gather(gathering.answer(one), gathering.answer(two))):
            pass
        for _ in range(8):  # 1.3 s
            assert set(await asyncio.gather(gathering.answer(late), gathering.answer(later))) == {None}
        [_, again, *_] = stated(keys)  # the round came to nothing, and one of them comes again
        found: list[Roll | None] = [None]
        while None in found:
            found = [*await asyncio.gather(*map(gathering.answer, (again, late, later)))]
        assert {each and each.id for each in found} == {gathering.roll and gathering.roll.id}

    asyncio.run(scenario())


def test_states_that_strangers_invent(stations, make_manifest, identities) -> None:
    """However many there are, the gathering of those who look for one another stays."""
    manifest = make_manifest(rounds={"matchmaking_seconds": 4})

    async def flood(p2p: P2P, victim: str) -> None:
        key, me = load_identity(identities[3]), str(p2p.peer_id)
        for number in range(10_000):
            statement = Statement.make(manifest.swarm_id, Claim(3, f"f{number:063x}", 10, me), "", key)
            request = JoinMessage(statement=as_text(statement.data))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await call_raw(p2p, victim, "RollCall.rpc_join", request.pack())

    async def scenario() -> None:
        async with stations(2, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers), [peer.peer_id for peer in peers]
            state = state_drawn(ids, ids[0])
            async with (
                stranger_beside(*(peer.address for peer in peers), identity=identities[3]) as p2p,
                background(flood(p2p, peers[0].address)),
            ):
                early = asyncio.create_task(rolls[0].assemble(statement_of(rolls[0], state), ids[1:]))
                while len(rolls[0]._gatherings) < GATHERINGS_MAX:
                    await asyncio.sleep(0.05)
                found = [await rolls[1].assemble(statement_of(rolls[1], state), ids[:1]), await early]
                assert [each and each.members for each in found] == [sorted(ids)] * 2

    run(scenario)


def test_short_times(stations, make_manifest) -> None:
    """Whoever comes a little late finds the others still there, however short the time for it is."""
    manifest = make_manifest(rounds={"matchmaking_seconds": 1})

    async def scenario() -> None:
        async with stations(2, manifest) as peers:
            rolls, ids = await open_rolls(manifest, peers), [peer.peer_id for peer in peers]
            state = state_drawn(ids, ids[0])
            early = asyncio.create_task(rolls[1].assemble(statement_of(rolls[1], state), ids[:1]))
            await asyncio.sleep(0.7)
            found = [await rolls[0].assemble(statement_of(rolls[0], state), ids[1:]), await early]
            assert [each and each.members for each in found] == [sorted(ids)] * 2

    run(scenario)


def test_forged_rolls_are_refused() -> None:
    """In another order, of other statements, with a member twice, or of members at different states."""
    keys = member_keys(2)
    (one, key), (two, other) = keys.items()
    mine, yours = (Statement.make(SWARM, Claim(3, STATE, 10, peer), "", each) for peer, each in keys.items())
    honest = Roll.call(one, key, [yours, mine])
    assert Roll.read(honest.data, [mine, yours]) == honest
    elsewhere = Statement.make(SWARM, Claim(3, "b" * 64, 10, two), "", other)
    again = Statement.make(SWARM, Claim(3, STATE, 11, two), "", other)
    for statements, told, reason in (
        ([mine, yours], [yours, mine], "other statements"),
        ([mine, yours], [mine], "other statements"),
        ([mine, elsewhere], [mine, elsewhere], "different states"),
        ([mine, yours, again], [mine, *sorted([yours, again], key=lambda each: each.maker)], "twice"),
    ):
        forged = Roll.call(one, key, statements)
        with pytest.raises(ValueError, match=reason):
            Roll.read(forged.data, told)
