import pytest

from dupt_swarm.node.addresses import (
    TOLD_CHARS_MAX,
    TOLD_MAX,
    host_of,
    is_relayed,
    reach_of,
    split,
    worth_telling,
)
from dupt_swarm.node.record import PeerRecord

RELAY, PEER = "QmRe1ay", "QmPeer"
PUBLIC, QUIC = "/ip4/8.8.8.8/tcp/31330", "/ip4/8.8.8.8/udp/31330/quic-v1"
LOCAL, LOOPBACK = "/ip4/192.168.1.2/tcp/31330", "/ip4/127.0.0.1/tcp/31330"
CIRCUIT = f"{PUBLIC}/p2p/{RELAY}/p2p-circuit"


def test_split() -> None:
    """The last peer is the one meant; those before it are relays, a part of the way."""
    assert split(f"{PUBLIC}/p2p/{PEER}") == (PUBLIC, PEER)
    assert split(f"{CIRCUIT}/p2p/{PEER}") == (CIRCUIT, PEER)


@pytest.mark.parametrize(
    "address", ["", PUBLIC, f"/p2p/{PEER}", f"{PUBLIC}/p2p/", f"{PUBLIC}/p2p/{RELAY}/p2p-circuit"]
)
def test_no_peer(address: str) -> None:
    """An address that ends in no peer id is refused."""
    with pytest.raises(ValueError, match=r"not a multiaddr that ends in /p2p/<peer id>"):
        split(address)


def test_host() -> None:
    """The IP address is told, of either version; a DNS name has none."""
    assert str(host_of(PUBLIC)) == "8.8.8.8"
    assert str(host_of("/ip6/::1/tcp/1")) == "::1"
    assert host_of("/dns4/example.org/tcp/1") is None
    assert host_of("/ip4/300.1.1.1/tcp/1") is None


def test_worth_telling() -> None:
    """Public addresses come first, then relays, then the local network; loopback stays at home."""
    own = [f"{way}/p2p/{PEER}" for way in (LOOPBACK, LOCAL, CIRCUIT, QUIC, PUBLIC)]
    assert worth_telling(own) == (PUBLIC, QUIC, CIRCUIT)
    assert worth_telling(own[:3]) == (CIRCUIT, LOCAL)
    assert worth_telling(own[:1]) == (LOOPBACK,)
    assert worth_telling([]) == ()


def test_what_is_told_is_a_record() -> None:
    """However many and long the addresses are, those told fit into a record."""
    way = f"/ip6/2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/tcp/65535/p2p/{46 * 'Q'}/p2p-circuit"
    told = worth_telling([f"{way}{number}/p2p/{PEER}" for number in range(10)])
    assert 1 < len(told) <= TOLD_MAX
    assert sum(map(len, told)) <= TOLD_CHARS_MAX
    record = {"role": "oracle", "state": "training", "time": 1.0, "round": 0, "state_digest": "0" * 64}
    assert PeerRecord.model_validate(record | {"swarm_tokens": 0, "addresses": told}).addresses == told


def test_reach() -> None:
    """Who was dialled is direct, who has a relay is relayed, who has neither can only call others."""
    assert reach_of([LOCAL, CIRCUIT], dialled=True) == "direct"
    assert reach_of([LOCAL, CIRCUIT], dialled=False) == "relayed"
    assert reach_of([LOCAL], dialled=False) == "client"
    assert is_relayed(CIRCUIT) and not is_relayed(PUBLIC)
