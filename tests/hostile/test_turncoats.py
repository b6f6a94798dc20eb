"""One of four that decide, or two of five, turns against the others.

It runs the real code on the real wire with one thing changed. Whatever it does, the others leave state after
state, all by the same links to the same bits; who contradicts itself is found out, and nobody else.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.identity import load_identity
from tests.support.turncoats import coordinating, prepare, telling
from tests.support.turncoats.camp import TIMES, Camp, Stations, camp_of
from tests.support.turncoats.orders import SpokenOrders

Camps = Callable[..., AbstractAsyncContextManager[Camp]]


@pytest.fixture(scope="session")
def identities(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Five private keys."""
    folder = tmp_path_factory.mktemp("keys")
    paths = [folder / str(number) for number in range(5)]
    for path in paths:
        load_identity(path)
    return paths


@pytest.fixture
def camps(
    stations: Stations, make_manifest: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> Camps:
    """``async with camps(4) as camp``: so many peers that decide."""
    orders = SpokenOrders()
    prepare(orders, monkeypatch.setattr)
    manifest = make_manifest(rounds=TIMES)

    @asynccontextmanager
    async def start(count: int, electing: int | None = None) -> AsyncIterator[Camp]:
        async with camp_of(stations, manifest, orders, count, electing) as camp:
            yield camp

    return start


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 90))


def ids(*peers: Any) -> set[str]:
    return {each.peer_id for each in peers}


@pytest.mark.parametrize(
    "how", [telling.ANOTHER_STATE, telling.ACCEPTS_NOTHING, telling.REFUSES, telling.DENIES, telling.INVENTS]
)
def test_a_member_whose_word_is_missing(camps: Camps, how: str) -> None:
    """It accepts nothing, or a state that nobody has computed, or refuses all: the others are enough, in the
    first ballot, with everybody's contribution."""

    async def scenario() -> None:
        async with camps(4) as camp:
            liar = camp.coordinator(1)
            camp.order(how, liar)
            link = await camp.battle()
            assert (link.ballot, link.choice.weak) == (0, False)
            assert set(link.counted) == ids(*camp.peers)
            assert not camp.exposed

    run(scenario())


@pytest.mark.parametrize("how", [telling.TWO_STATES, telling.LEAVES_AND_STAYS, telling.LATER_BALLOTS])
def test_a_member_that_contradicts_itself(camps: Camps, how: str) -> None:
    """It accepts twice, goes on after its last word, or promises for a far ballot and accepts in the first: no
    round is lost, and it is found out, and nobody else."""

    async def scenario() -> None:
        async with camps(4) as camp:
            liar = camp.coordinator(1)
            camp.order(how, liar)
            for _ in range(2):
                link = await camp.battle()
                assert not link.choice.weak
                assert set(link.counted) >= ids(*camp.honest)
            assert camp.orders.done
            assert camp.exposed == ids(liar)

    run(scenario())


@pytest.mark.parametrize(
    "how",
    [coordinating.SILENT, coordinating.NOT_YET, coordinating.OWN_CHOICE, coordinating.FALSE_LINK],
)
def test_a_coordinator_that_leads_nowhere(camps: Camps, how: str) -> None:
    """It is silent, stalls, proposes its own contribution alone or shows a link that it alone has accepted: the
    round ends all the same, with what all the others bring, and so does the next one."""

    async def scenario() -> None:
        async with camps(4) as camp:
            liar = camp.coordinator()
            camp.order(how, liar)
            link = await camp.battle()
            assert camp.orders.done
            assert not link.choice.weak
            assert set(link.counted) >= ids(*camp.honest)
            camp.order("", liar)
            link = await camp.battle()
            assert set(link.counted) >= ids(*camp.honest)
            assert not camp.exposed

    run(scenario())


def test_a_coordinator_that_leaves_one_out(camps: Camps) -> None:
    """What one honest peer brings is in no proposal of it: that one computes the state too, and is in the
    next."""

    async def scenario() -> None:
        async with camps(4) as camp:
            liar = camp.coordinator()
            camp.order(coordinating.WITHOUT_ONE, liar)
            link = await camp.battle()
            assert camp.orders.done
            assert (link.ballot, len(link.counted)) == (0, 3)
            camp.order("")
            link = await camp.battle()
            assert set(link.counted) == ids(*camp.peers)
            assert not camp.exposed

    run(scenario())


def test_a_coordinator_of_two_choices(camps: Camps) -> None:
    """It proposes one choice to some and another to others, so that neither is decided: the next ballot has one
    of both, and who coordinates that has the proof."""

    async def scenario() -> None:
        async with camps(4) as camp:
            liar = camp.coordinator()
            camp.order(coordinating.TWO_CHOICES, liar)
            link = await camp.battle()
            assert camp.orders.done
            assert link.ballot > 0 and not link.choice.weak
            assert camp.exposed == ids(liar)

    run(scenario())


def test_a_coordinator_that_ignores_what_binds_it(camps: Camps) -> None:
    """The first coordinator is cut off when it alone knows the decision, and the second one proposes something
    else: nobody accepts that, and the others come to the same decision."""

    async def scenario() -> None:
        async with camps(4) as camp:
            first, liar = camp.coordinator(), camp.coordinator(1)
            camp.order(coordinating.IGNORES, liar)
            camp.orders.attacks[first.peer_id] = coordinating.CUT_OFF
            decided = first.deciding.present
            assert decided is not None
            link = await camp.battle()
            assert camp.orders.done > 1
            assert link.ballot > 1 and not link.choice.weak
            assert decided.ended.result().link.after == link.after
            assert not camp.exposed - ids(liar)

    run(scenario())


def test_a_member_that_denies_what_it_has_accepted(camps: Camps) -> None:
    """The first coordinator is cut off when it alone knows the decision, and one of those who have accepted
    denies it: the others come to the same decision, since they have accepted it too."""

    async def scenario() -> None:
        async with camps(4) as camp:
            first, liar = camp.coordinator(), camp.coordinator(2)
            camp.order(telling.DENIES, liar)
            camp.orders.attacks[first.peer_id] = coordinating.CUT_OFF
            decided = first.deciding.present
            assert decided is not None
            link = await camp.battle()
            assert link.ballot > 0 and not link.choice.weak
            assert decided.ended.result().link.after == link.after
            assert not camp.exposed - ids(liar)

    run(scenario())


def test_a_minority_with_one_false_state(camps: Camps) -> None:
    """Two of five accept the same state that nobody has computed: the three others are a quorum."""

    async def scenario() -> None:
        async with camps(5) as camp:
            liars = camp.coordinator(), camp.coordinator(1)
            camp.order(telling.ANOTHER_STATE, *liars)
            for _ in range(2):
                link = await camp.battle()
                assert link.makers <= ids(*camp.honest) and not link.choice.weak
                assert set(link.counted) >= ids(*camp.honest)
            assert not camp.exposed

    run(scenario())


def test_a_newcomer_that_lies(camps: Camps) -> None:
    """Whose word does not count may say what it likes: no ballot is lost."""

    async def scenario() -> None:
        async with camps(4, electing=3) as camp:
            newcomer = camp.peers[3]
            for how in (telling.LATER_BALLOTS, telling.TWO_STATES, telling.REFUSES, telling.LEAVES_AND_STAYS):
                camp.order(how, newcomer)
                link = await camp.battle()
                assert (link.ballot, link.choice.weak) == (0, False)
                assert set(link.counted) >= ids(*camp.honest)
            assert not camp.exposed - ids(newcomer)

    run(scenario())
