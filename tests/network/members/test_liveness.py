import asyncio

from dupt_swarm.network.members.dialling import AGAIN_SECONDS, Dialler
from dupt_swarm.network.members.liveness import FailureDetector
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.view import View
from tests.support.loopback import NOBODY_ID as NOBODY

SOMEBODY = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"


class Member:
    """Takes note of whom it is told to suspect."""

    def __init__(self, peer_id: str) -> None:
        self.peer_id = peer_id
        self.suspected: list[str] = []

    def suspect(self, peer_ids: tuple[str, ...]) -> None:
        self.suspected += peer_ids


def test_who_refuses_calls_is_suspected(stations, make_peer) -> None:
    """A peer whose port refuses calls is dead; one that answers or tells no address is not."""

    async def scenario() -> None:
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

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_nobody_is_called_all_the_time(stations, make_peer) -> None:
    """Who was called a moment ago is left alone for a while."""

    async def scenario() -> None:
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

    asyncio.run(asyncio.wait_for(scenario(), 60))
