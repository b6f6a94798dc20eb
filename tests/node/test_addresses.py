from ipaddress import ip_address

import pytest

from dupt_swarm.node.addresses import (
    TOLD_CHARS_MAX,
    TOLD_MAX,
    Address,
    keep_ports,
    reach_of,
    tcp_ports,
    worth_telling,
)
from dupt_swarm.node.record import PeerRecord

RELAY, PEER = "QmRe1ay", "QmPeer"
PUBLIC, QUIC = "/ip4/8.8.8.8/tcp/31330", "/ip4/8.8.8.8/udp/31330/quic-v1"
LOCAL, LOOPBACK = "/ip4/192.168.1.2/tcp/31330", "/ip4/127.0.0.1/tcp/31330"
CIRCUIT = f"{PUBLIC}/p2p/{RELAY}/p2p-circuit"


@pytest.mark.parametrize("way", [PUBLIC, QUIC, CIRCUIT])
def test_the_last_peer_is_the_one_meant(way: str) -> None:
    """Peers before the last are relays, a part of the way; taken apart and put together it is the same."""
    address = Address.of_peer(f"{way}/p2p/{PEER}")
    assert address == Address(way, PEER)
    assert str(address) == f"{way}/p2p/{PEER}"
    assert Address.parse(way) == Address(way)


@pytest.mark.parametrize(
    "address", ["", PUBLIC, f"/p2p/{PEER}", f"{PUBLIC}/p2p/", f"{PUBLIC}/p2p/{RELAY}/p2p-circuit"]
)
def test_no_peer(address: str) -> None:
    """An address that ends in no peer id is refused where one is needed."""
    with pytest.raises(ValueError, match=r"not a multiaddr that ends in /p2p/<peer id>"):
        Address.of_peer(address)


@pytest.mark.parametrize(
    ("text", "host", "transport", "port"),
    [
        (PUBLIC, "8.8.8.8", "tcp", 31330),
        (QUIC, "8.8.8.8", "udp", 31330),
        (CIRCUIT, "8.8.8.8", "tcp", 31330),
        ("/ip6/::1/tcp/1", "::1", "tcp", 1),
        ("/dns4/example.org/tcp/1", "None", "tcp", 1),
        ("/dns4/example.org", "None", "", 0),
        ("/ip4/300.1.1.1/tcp/1", "None", "tcp", 1),
        ("/ip4/8.8.8.8/tcp/99999999999999999999", "8.8.8.8", "", 0),
        ("/p2p-circuit", "None", "", 0),
        ("junk", "None", "", 0),
    ],
)
def test_the_first_hop(text: str, host: str, transport: str, port: int) -> None:
    """IP address, transport and port of the first hop are told; a name and junk have no IP address."""
    address = Address.parse(text)
    assert (str(address.host), address.transport, address.port) == (host, transport, port)


@pytest.mark.parametrize(
    ("text", "public", "loopback", "relayed"),
    [
        (PUBLIC, True, False, False),
        ("/dns4/example.org/tcp/1", True, False, False),
        (LOCAL, False, False, False),
        (LOOPBACK, False, True, False),
        (CIRCUIT, False, False, True),
        (f"{LOOPBACK}/p2p/{RELAY}/p2p-circuit", False, False, True),
    ],
)
def test_which_addresses_others_can_use(text: str, public: bool, loopback: bool, relayed: bool) -> None:
    """Everybody, peers on this machine, or those that a relay helps."""
    address = Address.parse(text)
    assert (address.public, address.loopback, address.relayed) == (public, loopback, relayed)


def test_another_host_and_port() -> None:
    """Only the first hop changes; what follows stays."""
    assert Address(QUIC, PEER).with_port(7) == Address("/ip4/8.8.8.8/udp/7/quic-v1", PEER)
    assert str(Address.parse(CIRCUIT).with_host(ip_address("1.2.3.4"))) == CIRCUIT.replace(
        "8.8.8.8", "1.2.3.4"
    )


@pytest.mark.parametrize("text", ["/ip4/300.1.1.1/tcp/1", "/ip4/8.8.8.8/tcp/1/p2p/short", "junk"])
def test_what_is_no_multiaddr_is_not_dialled(text: str) -> None:
    """The route to dial is checked part by part, the peer id included."""
    with pytest.raises(Exception, match=r"nvalid|unknown"):
        _ = Address.parse(text).route


def test_free_ports_are_kept() -> None:
    """Port 0 becomes the one that was free, for each transport; others stay."""
    own = [
        f"{CIRCUIT}/p2p/{PEER}",
        f"/ip4/10.0.0.1/tcp/5/p2p/{PEER}",
        f"/ip4/10.0.0.1/udp/6/quic-v1/p2p/{PEER}",
    ]
    asked = ("/ip4/0.0.0.0/tcp/0", "/ip4/0.0.0.0/udp/0/quic-v1", "/ip6/::/tcp/4001", "/unix/x")
    kept = ("/ip4/0.0.0.0/tcp/5", "/ip4/0.0.0.0/udp/6/quic-v1", "/ip6/::/tcp/4001", "/unix/x")
    assert keep_ports(asked, own) == kept
    assert keep_ports(asked[:2], own[:2]) == ("/ip4/0.0.0.0/tcp/5", asked[1])
    assert tcp_ports(own) == [5]


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


@pytest.mark.parametrize(
    ("way", "network"),
    [
        ("/ip4/8.8.4.7/tcp/1", "8.8.4.0/24"),
        ("/ip6/::ffff:8.8.4.7/tcp/1", "8.8.4.0/24"),
        ("/ip6/2001:4860:1:2:3:4:5:6/tcp/1", "2001:4860:1:2::/64"),
        ("/dns4/example.org/tcp/1", "example.org"),
        ("nonsense", ""),
    ],
)
def test_networks(way: str, network: str) -> None:
    """What one person may have all of."""
    assert Address(way).network == network
