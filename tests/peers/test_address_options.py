from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from dupt_swarm.command_line.exit_codes import command_errors
from peers.address_options import address_options, take_addresses

LISTEN = ("/ip4/0.0.0.0/tcp/31330", "/ip4/0.0.0.0/udp/31330/quic-v1")
EVERYWHERE = ("/ip4/0.0.0.0/tcp/0", "/ip4/0.0.0.0/udp/0/quic-v1")


def run(*arguments: str, listen: tuple[str, ...] = LISTEN) -> tuple[Result, dict[str, Any]]:
    """What a command with these options gets."""
    got: dict[str, Any] = {}

    @click.command()
    @address_options(listen)
    @command_errors
    def command(**chosen: Any) -> None:
        got.update(take_addresses(listen, chosen))

    return CliRunner().invoke(command, arguments), got


def test_defaults() -> None:
    """Without options a peer listens where the command says, and announces nothing of its own."""
    assert run()[1] == {"host_maddrs": LISTEN, "announce_maddrs": ()}


def test_host_port() -> None:
    """A port changes the default addresses, both protocols."""
    hosts = run("--host-port", "5000", listen=EVERYWHERE)[1]["host_maddrs"]
    assert hosts == ("/ip4/0.0.0.0/tcp/5000", "/ip4/0.0.0.0/udp/5000/quic-v1")


def test_public_ip() -> None:
    """A public IP is announced with each protocol listened on, at the same port or at another."""
    assert run("--public-ip", "203.0.113.7")[1]["announce_maddrs"] == (
        "/ip4/203.0.113.7/tcp/31330",
        "/ip4/203.0.113.7/udp/31330/quic-v1",
    )
    arguments = ("--public-ip", "2001:db8::1", "--announce-port", "80", "--host-maddrs", "/ip4/0.0.0.0/tcp/0")
    assert run(*arguments)[1]["announce_maddrs"] == ("/ip6/2001:db8::1/tcp/80",)


def test_announced() -> None:
    """Addresses to announce are passed on as they are, names too."""
    told = ("/dns4/peer.example.org/tcp/4001", "/ip4/203.0.113.7/udp/4001/quic-v1")
    arguments = [part for address in told for part in ("--announce-maddrs", address)]
    assert run(*arguments)[1] == {"host_maddrs": LISTEN, "announce_maddrs": told}


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ("--host-port 5000 --host-maddrs /ip4/0.0.0.0/tcp/1", "put the port into --host-maddrs instead"),
        ("--announce-port 80", "add --public-ip"),
        ("--public-ip 203.0.113.7 --announce-maddrs /ip4/1.2.3.4/tcp/1", "leave out the other options"),
        ("--public-ip here", "write an IP address such as 203.0.113.7"),
        ("--public-ip 127.0.0.1", "give the router's address"),
        ("--public-ip 203.0.113.7 --host-maddrs /ip4/0.0.0.0/tcp/0", "add --host-port or --announce-port"),
        ("--announce-maddrs 203.0.113.7:4001", "write it like /ip4/203.0.113.7/tcp/4001"),
        ("--announce-maddrs /ip4/203.0.113.7/tcp/1/p2p/Qm", "without /p2p/"),
        ("--announce-maddrs /ip4/203.0.113.7/tcp/0", "name the port"),
        ("--announce-maddrs /ip4/203.0.113.7/tcp/70000", "name the port"),
        ("--announce-maddrs /ip4/0.0.0.0/tcp/1", "not an address that others could dial"),
        ("--announce-maddrs /ip6/203.0.113.7/tcp/1", "not an address that others could dial"),
        ("--announce-maddrs /ip4/300.0.0.1/tcp/1", "300.0.0.1"),
        ("--host-port 0", "--host-port"),
    ],
)
def test_refused(arguments: str, remedy: str) -> None:
    """What cannot work is a usage error that names the remedy, exit code 2."""
    result, got = run(*arguments.split())
    assert (result.exit_code, got) == (2, {})
    assert remedy in result.output
