"""One of four that decide turns against the others with what it contributes, and with what it says it holds.

In one process, as in `test_turncoats`.
"""

from collections.abc import Callable

import pytest

from dupt_swarm.manifest import Manifest
from tests.support.turncoats.camp import TIMES, Camps, Stations, camps_of, ids, noise
from tests.support.turncoats.coordinating import WITHHELD_CHOICE
from tests.support.turncoats.sharing import FOR_SOME, GARBLED, HOLDS_ALL, HOLDS_NOTHING, WITHHELD
from tests.support.turncoats.telling import LATER_BALLOTS


@pytest.fixture
def camps(
    stations: Stations, make_manifest: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> Camps:
    """Peers of which some lie."""
    times = TIMES | {"allreduce_seconds": 20}  # others than the maker are asked within half of that
    return camps_of(stations, make_manifest(rounds=times), monkeypatch)


@pytest.mark.parametrize("how", [GARBLED, FOR_SOME])
@pytest.mark.parametrize("favoured", [1, 2])
@pytest.mark.parametrize("coordinates", [False, True])
async def test_a_peer_that_gives_its_contribution_to_some(
    camps: Camps, how: str, favoured: int, coordinates: bool
) -> None:
    """The others get none of it, or garbled: whoever has it passes it on, or it is left out; nobody else's
    is lost. ``favoured``: so many get it."""
    async with camps(4) as camp:
        camp.order(how, camp.coordinator(0 if coordinates else 3))
        camp.orders.favoured = ids(*map(camp.coordinator, range(3 - favoured, 3)))
        for _ in range(2):
            link = await camp.battle()
            assert (link.ballot, link.choice.weak) == (0, False)
            assert set(link.counted) >= ids(*camp.honest)
        assert not camp.exposed


@pytest.mark.parametrize("coordinates", [False, True])
@pytest.mark.parametrize("how", [WITHHELD, HOLDS_ALL])
async def test_a_peer_that_gives_its_contribution_to_nobody(
    camps: Camps, how: str, coordinates: bool
) -> None:
    """It is left out of the state that all others bring about, also where it says that it holds everything,
    and gives nothing of it."""
    async with camps(4) as camp:
        liar = camp.coordinator(0 if coordinates else 1)
        camp.order(how, liar)
        link = await camp.battle()
        assert camp.orders.done
        assert not link.choice.weak
        assert set(link.counted) == ids(*camp.honest)
        camp.order("", liar)
        link = await camp.battle()
        assert set(link.counted) == ids(*camp.peers)
        assert not camp.exposed


async def test_a_peer_that_holds_nothing(camps: Camps) -> None:
    """It says that it holds none of the contributions: more than half of the others say that they do."""
    async with camps(4) as camp:
        camp.order(HOLDS_NOTHING, camp.coordinator(1))
        link = await camp.battle()
        assert (link.ballot, link.choice.weak) == (0, False)
        assert set(link.counted) >= ids(*camp.honest)
        assert not camp.exposed


async def test_a_peer_that_proposes_what_it_withholds(camps: Camps) -> None:
    """Nobody can compute what follows from that: the next ballot is without it, and nobody else's
    contribution is lost."""
    async with camps(4) as camp:
        liar = camp.coordinator()
        camp.order(WITHHELD_CHOICE, liar)
        link = await camp.battle()
        assert camp.orders.done
        assert link.ballot > 0 and not link.choice.weak
        assert set(link.counted) == ids(*camp.honest)


async def test_a_peer_that_contributes_too_much(camps: Camps) -> None:
    """Thirty times the norm the other way, for four times the tokens: the model goes where others pull."""
    async with camps(4) as camp:
        liar, before = camp.coordinator(1), camp.state.anchor.clone()
        camp.orders.attacks = {liar.peer_id: "contributes too much"}
        camp.pull = noise(0)
        link = await camp.battle()
        assert liar.peer_id in link.counted
        step, pull = before - camp.state.anchor, camp.pull
        assert float(step @ pull / (step.norm() * pull.norm())) > 0.5
        assert float(step.norm()) < 2 * float(pull.norm())


async def test_newcomers_that_lie(camps: Camps) -> None:
    """Somebody whose word does not count does the same: no ballot is lost, nor what another brings."""
    async with camps(4, electing=3) as camp:
        newcomer = camp.peers[3]
        for how in (LATER_BALLOTS, HOLDS_NOTHING, WITHHELD, GARBLED, HOLDS_ALL):
            camp.order(how, newcomer)
            link = await camp.battle()
            assert (link.ballot, link.choice.weak) == (0, False)
            assert set(link.counted) >= ids(*camp.honest)
        assert not camp.exposed
