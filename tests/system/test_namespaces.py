import socket
import subprocess
import sys
import time

import pytest

from tests.support.namespaces import Host, Net, run

pytestmark = pytest.mark.system

# Sends as many bytes as its last argument says to whoever calls, then ends.
SERVE = """
import socket, sys
with socket.create_server(("", 4001)) as server:
    print("ready", flush=True)
    peer, (address, _) = server.accept()
    peer.sendall(bytes(int(sys.argv[1])))
    print(address, flush=True)
"""
# Prints how long it takes until the end of what the other sends, in seconds.
CALL = """
import socket, sys, time
start = time.monotonic()
with socket.create_connection((sys.argv[1], 4001), timeout=float(sys.argv[2])) as peer:
    while peer.recv(1 << 20):
        pass
print(time.monotonic() - start)
"""


def call(caller: Host, address: str, server: Host, size: int = 1, patience: float = 20) -> tuple[float, str]:
    """Seconds that ``size`` bytes from ``server`` took, and the address it saw.

    Raises:
        CalledProcessError: the caller did not get through.
    """
    serve = server.command([sys.executable, "-c", SERVE, str(size)])
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None and serving.stdout.readline() == "ready\n"
            command = caller.command([sys.executable, "-c", CALL, address, str(patience)])
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
            return float(done.stdout), serving.stdout.readline().strip()
        finally:
            serving.kill()


def test_nat(net: Net) -> None:
    """Who is behind a router calls others under the router's address, and can be called by nobody."""
    server, router = net.host("server"), net.nat("home")
    laptop, neighbour = router.host("laptop"), router.host("neighbour")
    assert call(laptop, server.address, server)[1] == router.address
    assert call(neighbour, laptop.address, laptop)[1] == neighbour.address
    for address in (laptop.address, router.address):
        with pytest.raises(subprocess.CalledProcessError):
            call(server, address, laptop, patience=1)


def test_rate(net: Net) -> None:
    """A limited link takes the time that its rate says, in both directions."""
    slow, fast = net.host("slow", rate="8mbit"), net.host("fast")
    for caller, server in ((slow, fast), (fast, slow)):
        assert call(caller, server.address, server, size=2_000_000)[0] > 1.5


def test_cut_and_heal(net: Net) -> None:
    """Between the groups of a cut nothing gets through, within them all does; healed, all is as before."""
    one, two, three = (net.host(name) for name in ("one", "two", "three"))
    net.cut([one], [two, three])
    for caller, server in ((one, two), (three, one)):
        with pytest.raises(subprocess.CalledProcessError):
            call(caller, server.address, server, patience=1)
    assert call(two, three.address, three)[1] == two.address
    net.heal()
    assert call(one, two.address, two)[1] == one.address


def test_nothing_is_left(net: Net) -> None:
    """Closing a network ends the processes on its hosts and removes its namespaces."""
    host = net.host("host")
    process = subprocess.Popen(host.command(["sleep", "60"]))
    deadline = time.monotonic() + 10
    while str(process.pid) not in run("ip", "netns", "pids", host.namespace).split():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    net.close()
    assert process.wait(timeout=10) != 0
    assert host.namespace not in run("ip", "netns", "list")
    with socket.socket() as probe, pytest.raises(OSError):
        probe.bind((host.address, 0))
