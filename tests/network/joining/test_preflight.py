"""A look around before joining, with real daemons."""

import socket
import time
from pathlib import Path

import pytest

from dupt_swarm.network.joining.preflight import preflight
from dupt_swarm.network.p2p.rpc import Raw
from dupt_swarm.network.reach.dialback import DialBack
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.settings import NodeSettings
from tests.support.hello import hello
from tests.support.loopback import NOBODY

HELLO = hello(version="9.9")
ANY_PORT = "/ip4/127.0.0.1/tcp/0"


async def test_each_address_says_what_it_knows(stations, tmp_path: Path) -> None:
    """A ready peer tells version, manifest and time, and dials back; the others have a reason each."""
    async with stations(2) as [ready, other]:
        exchange = Exchange(ready.p2p)
        await ready.p2p.serve(exchange)
        exchange.publish(HELLO, [])
        await ready.p2p.serve(DialBack(ready.p2p, list))
        peers = (NOBODY, other.address, ready.address)
        settings = NodeSettings("oracle", initial_peers=peers, host_maddrs=(ANY_PORT,))
        checkup = await preflight(settings, tmp_path)
    assert (checkup.ports, checkup.problem) == ({ANY_PORT: ""}, "")
    assert "refused" in checkup.answers[NOBODY].problem
    assert "no dupt_swarm peer that is ready" in checkup.answers[other.address].problem
    answer = checkup.answers[ready.address]
    assert (answer.problem, answer.version, answer.manifest) == ("", "9.9", b"{}")
    assert answer.ahead_seconds == 0  # the same clock, read between question and answer
    [(way, reason)] = checkup.dialled.items()
    assert way.startswith("/ip4/0.0.0.0/tcp/")
    assert reason == ""


class WrongClock(Exchange):
    """Tells another time."""

    told = ""

    @Exchange.rpc_hello.override
    async def rpc_hello(self, _request: Raw, _caller: str) -> Hello:
        return hello(time=self.told)


@pytest.mark.parametrize(("wrong_by", "found"), [(3600, 3600), (-3600, -3600), (None, None)])
async def test_a_clock_that_is_wrong_is_measured(
    stations, tmp_path: Path, wrong_by: float | None, found: float | None
) -> None:
    """A peer whose clock is an hour off is found to be about that; one that tells no time is not judged."""
    async with stations(1) as [peer]:
        exchange = WrongClock(peer.p2p)
        exchange.told = "" if wrong_by is None else str(time.time() + wrong_by)
        await peer.p2p.serve(exchange)
        settings = NodeSettings("oracle", initial_peers=(peer.address,), host_maddrs=(ANY_PORT,))
        ahead = (await preflight(settings, tmp_path)).answers[peer.address].ahead_seconds
    assert ahead is None if found is None else ahead == pytest.approx(found, abs=60)


async def test_a_taken_port_is_named_and_the_rest_is_looked_at(stations, tmp_path: Path) -> None:
    """Without a port to listen on it still calls the initial peers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = f"/ip4/127.0.0.1/tcp/{server.getsockname()[1]}"
        async with stations(1) as [peer]:
            settings = NodeSettings("oracle", initial_peers=(peer.address,), host_maddrs=(taken,))
            checkup = await preflight(settings, tmp_path)
    assert "cannot listen there" in checkup.ports[taken]
    assert "that is ready" in checkup.answers[peer.address].problem
    assert checkup.dialled == {}


@pytest.mark.parametrize("time_told", ["", "noon", "nan", "inf", "1e400"])
def test_a_time_that_is_none_is_not_believed(time_told: str) -> None:
    """Whatever another peer says."""
    assert hello(time=time_told).clock == 0
