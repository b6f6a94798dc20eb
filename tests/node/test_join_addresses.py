"""The addresses to join a swarm by, and the command."""

import pytest

from dupt_swarm.command_line.join_line import join_line
from dupt_swarm.node.addresses import join_addresses, own_address
from dupt_swarm.node.view import View
from tests.support.invented import ADDRESS, NOW, peer
from tests.support.tiny import tiny_manifest

PEER_ID = ADDRESS.rpartition("/")[2]
LOCAL = f"/ip4/127.0.0.1/tcp/31330/p2p/{PEER_ID}"
AT_HOME = "/ip4/10.0.0.2/tcp/1/p2p/Q"
BY_QUIC = "/ip4/10.0.0.2/udp/1/quic-v1/p2p/Q"
ON_LOOPBACK = "/ip4/127.0.0.1/tcp/1/p2p/Q"
PUBLIC = "/ip4/8.8.4.4/tcp/1/p2p/Q"
RELAYED = "/ip4/8.8.8.8/tcp/1/p2p/QmRelay/p2p-circuit/p2p/Q"


@pytest.mark.parametrize(
    ("own", "best"),
    [
        ((ON_LOOPBACK, BY_QUIC, AT_HOME), AT_HOME),
        ((ON_LOOPBACK, BY_QUIC), BY_QUIC),
        ((ON_LOOPBACK,), ON_LOOPBACK),
        ((ON_LOOPBACK, "/ip4/172.17.0.1/tcp/1/p2p/Q", PUBLIC), PUBLIC),
        ((AT_HOME, RELAYED), RELAYED),
    ],
)
def test_an_address_that_others_can_reach(own: tuple[str, ...], best: str) -> None:
    """What everybody can try comes first, loopback only if there is nothing else, TCP before QUIC."""
    assert own_address(own) == best


def test_addresses_to_join_by() -> None:
    """Addresses that only work on this machine are given out only if there are no others."""
    nobody = View(NOW, ())
    assert join_addresses([LOCAL, ADDRESS], nobody) == [ADDRESS]
    assert join_addresses([LOCAL], nobody) == [LOCAL]
    assert join_addresses(["somewhere", ADDRESS], nobody) == [ADDRESS]


def test_records_add_addresses_of_initial_peers_only() -> None:
    """What an initial peer says of its own address helps; a stranger cannot put itself into the line."""
    known = peer(PEER_ID, role="bootstrap", addresses=("/ip4/198.51.100.1/tcp/31330",))
    stranger = peer("QmStranger", role="bootstrap", addresses=("/ip4/198.51.100.66/tcp/1",))
    view = View(NOW, (known, stranger))
    assert join_addresses([LOCAL], view) == [f"/ip4/198.51.100.1/tcp/31330/p2p/{PEER_ID}"]
    assert join_addresses([ADDRESS], view) == [ADDRESS]


def test_join_line() -> None:
    """The line names each address, and is safe to paste into a shell."""
    swarm = tiny_manifest()
    line = f"dupt-peer join --initial-peers {ADDRESS} --swarm {swarm.swarm_id} --corpus PATH"
    assert join_line([ADDRESS], swarm) == line
    assert "--initial-peers a --initial-peers 'b;rm' --swarm" in join_line(["a", "b;rm"], swarm)
    invited = tiny_manifest(admission={"kind": "invite", "organiser": "0" * 64})
    assert f"--swarm {invited.swarm_id} --invitation TOKEN --corpus" in join_line(["a"], invited)


def test_join_line_of_a_swarm_that_offers_text() -> None:
    """It takes no corpus, so that nothing else need be typed."""
    swarm = tiny_manifest(offer={"digest": "0" * 64})
    assert join_line([ADDRESS], swarm) == f"dupt-peer join --initial-peers {ADDRESS} --swarm {swarm.swarm_id}"
