"""Which peers a peer suspects dead, and which it calls to find out."""

import asyncio

from hivemind.p2p import PeerID

from dupt_swarm.network.members import liveness
from dupt_swarm.network.members.dialling import AGAIN_SECONDS, Dialler
from dupt_swarm.network.members.liveness import CALLED_AT_ONCE, FailureDetector
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.view import Peer, View
from tests.support.loopback import NOBODY as NOBODYS_ADDRESS
from tests.support.loopback import NOBODY_ID as NOBODY

SOMEBODY = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"


class Member:
    """Takes note of the peers that it is told to take for dead."""

    def __init__(self, peer_id: str) -> None:
        self.peer_id = peer_id
        self.suspected: list[str] = []

    def bury(self, peer_id: str) -> None:
        self.suspected.append(peer_id)


class Outcomes:
    """Stands in for a dialler: what comes of each way, None if it is not dialled, and which are proved."""

    def __init__(self, outcomes: dict[str, str | None], proved: tuple[str, ...] = ()) -> None:
        self.outcomes, self._proved = outcomes, proved
        self.asked: set[str] = set()

    async def connected(self) -> frozenset[str]:
        return frozenset()

    def is_proved(self, address: Address) -> bool:
        return address.way in self._proved

    def may(self, address: Address) -> bool:
        return address.way in self.outcomes

    async def dial(self, address: Address) -> str | None:
        self.asked.add(address.way)
        return self.outcomes.get(address.way)


def invented(number: int) -> str:
    """The id of a peer that is none."""
    return str(PeerID(b"\x12\x20" + number.to_bytes(32, "big")))


def suspected(dialler: Outcomes, peer: Peer) -> bool:
    member = Member(SOMEBODY)
    asyncio.run(FailureDetector(dialler, member).feel(View(0.0, (peer,))))  # type: ignore[arg-type]
    return member.suspected == [peer.peer_id]


def test_a_router_that_refuses_its_own_address(make_peer) -> None:
    """It says nothing of a neighbour whose other address was not dialled, unless that was met there."""
    outside, inside = "/ip4/8.8.8.8/tcp/1", "/ip4/192.168.1.2/tcp/1"
    peer = make_peer(NOBODY, addresses=(outside, inside))
    refused = "connection refused"
    assert not suspected(Outcomes({outside: refused}), peer)
    assert suspected(Outcomes({outside: refused}, proved=(outside,)), peer)
    assert suspected(Outcomes({outside: refused, inside: refused}), peer)
    assert not suspected(Outcomes({outside: refused, inside: "timed out"}, proved=(outside,)), peer)
    assert not suspected(Outcomes({outside: None}), peer)


def test_silence_proves_nothing(make_peer, monkeypatch) -> None:
    """Nor does a refusal, before it is known of all ways."""
    monkeypatch.setattr(liveness, "CALL_SECONDS", 0.05)
    refusing, silent = "/ip4/8.8.8.8/tcp/1", "/ip4/8.8.8.9/tcp/1"
    peer = make_peer(NOBODY, addresses=(refusing, silent))

    class Waiting(Outcomes):
        async def dial(self, address: Address) -> str | None:
            if address.way == silent:
                await asyncio.sleep(60)
            return await super().dial(address)

    dialler = Waiting({refusing: "connection refused", silent: None}, proved=(refusing,))
    assert not suspected(dialler, peer)
    assert dialler.asked == {refusing}


async def test_invented_peers_take_no_place_of_those_met(stations, make_peer) -> None:
    """However many records there are of peers that never were, a peer that was met is called at once."""
    async with stations(1) as [own]:
        member = Member(str(own.p2p.peer_id))
        ways = [f"/ip4/127.0.0.{2 + number}/tcp/9" for number in range(2 * CALLED_AT_ONCE)]
        nobodies = [make_peer(invented(number), addresses=(way,)) for number, way in enumerate(ways)]
        met = make_peer(NOBODY, addresses=("/ip4/127.0.0.1/tcp/9",))
        dialler = Dialler(own.p2p, [NOBODYS_ADDRESS])
        await FailureDetector(dialler, member).feel(View(0.0, (*nobodies, met)))  # type: ignore[arg-type]
        assert NOBODY in member.suspected and len(member.suspected) == CALLED_AT_ONCE


async def test_who_is_silent_holds_up_no_funeral(make_peer) -> None:
    """A peer that refused may be back, and say so, before another one's silence has lasted long enough."""
    dead, silent = "/ip4/8.8.8.8/tcp/1", "/ip4/8.8.4.4/tcp/1"
    asked, answer = asyncio.Event(), asyncio.Event()

    class Patient(Outcomes):
        async def dial(self, address: Address) -> str | None:
            if address.way == silent:
                asked.set()
                await answer.wait()
            return await super().dial(address)

    member = Member(SOMEBODY)
    detector = FailureDetector(Patient({dead: "connection refused", silent: ""}), member)  # type: ignore[arg-type]
    view = View(0.0, (make_peer(NOBODY, addresses=(dead,)), make_peer(invented(1), addresses=(silent,))))
    feeling = asyncio.create_task(detector.feel(view))
    await asked.wait()
    await asyncio.sleep(0)
    assert member.suspected == [NOBODY] and not feeling.done()
    member.suspected.clear()  # it is back
    answer.set()
    await feeling
    assert not member.suspected


def test_everybody_has_a_turn(make_peer) -> None:
    """Of more than are called at once, none waits behind the same others for ever."""
    ways = {f"/ip4/8.8.8.{number}/tcp/1": None for number in range(2 * CALLED_AT_ONCE)}
    view = View(0.0, tuple(make_peer(invented(each), addresses=(way,)) for each, way in enumerate(ways)))
    dialler = Outcomes(dict(ways))
    detector = FailureDetector(dialler, Member(SOMEBODY))  # type: ignore[arg-type]
    for _ in range(50):
        asyncio.run(detector.feel(view))
    assert dialler.asked == set(ways)


async def test_a_peer_that_refuses_calls_is_suspected(stations, make_peer) -> None:
    """A peer whose port refuses calls is dead; one that answers or tells no address is not."""
    async with stations(2) as [own, other]:
        member = Member(str(own.p2p.peer_id))
        way, _, other_id = other.address.rpartition("/p2p/")
        view = View(
            0.0,
            (
                make_peer(member.peer_id),
                make_peer(other_id, addresses=(way,)),
                make_peer(NOBODY, addresses=("/ip4/127.0.0.1/tcp/9",)),
                make_peer(SOMEBODY),
            ),
        )
        pulse = FailureDetector(Dialler(own.p2p), member)  # type: ignore[arg-type]
        await pulse.feel(view)
        assert member.suspected == [NOBODY]
        assert other_id in {str(peer.peer_id) for peer in await own.p2p.list_peers()}


async def test_nobody_is_called_all_the_time(stations, make_peer) -> None:
    """Who was called a moment ago is left alone for a while."""
    async with stations(1) as [own]:
        member, now = Member(str(own.p2p.peer_id)), [1000.0]
        view = View(0.0, (make_peer(NOBODY, addresses=("/ip4/127.0.0.1/tcp/9",)),))
        address = Address("/ip4/127.0.0.1/tcp/9", NOBODY)
        dialler = Dialler(own.p2p, clock=lambda: now[0])
        pulse = FailureDetector(dialler, member)  # type: ignore[arg-type]
        for _ in range(3):
            await pulse.feel(view)
            assert member.suspected == [NOBODY]
            assert not dialler.may(address)
        now[0] += AGAIN_SECONDS
        assert dialler.may(address)
