import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dupt_swarm.errors import UsageError
from dupt_swarm.metrics.serving import _Handler
from dupt_swarm.node.view import View
from monitor.collector import SwarmCollector
from monitor.server import MonitorServer, build_app
from monitor.watcher import Snapshot
from tests.support.invented import MANIFEST, serving
from tests.support.waiting import wait_until


class Site:
    """A running server whose health the test decides."""

    def __init__(self, server: MonitorServer) -> None:
        self.server, self.healthy = server, True

    def get(self, path: str, method: str = "GET", host: str | None = None) -> tuple[int, str, str]:
        """Status, content type and body; ``host``: which one to ask for there."""
        headers = {} if host is None else {"Host": host}
        request = urllib.request.Request(self.server.url + path, method=method, headers=headers)
        response: HTTPResponse | urllib.error.HTTPError
        try:
            response = urllib.request.urlopen(request, timeout=5)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            assert response.status is not None
            return response.status, response.headers["Content-Type"], response.read().decode()


@pytest.fixture
def site() -> Iterator[Site]:
    registry = CollectorRegistry()
    registry.register(SwarmCollector(lambda: Snapshot(MANIFEST, View(0.0, ())), 50))
    app = build_app(registry, lambda: served.healthy)
    with serving(app, "monitor", "swarm.Example.org") as server:
        served = Site(server)
        yield served


def test_metrics_page(site: Site) -> None:
    """`/metrics` is in Prometheus' text format."""
    status, kind, text = site.get("/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=")
    assert "# TYPE dupt_monitor_up gauge\ndupt_monitor_up 0.0\n" in text


def test_chosen_metrics(site: Site) -> None:
    """A scrape may ask for some metrics only."""
    _, _, text = site.get("/metrics?name[]=dupt_monitor_up")
    assert [line for line in text.splitlines() if not line.startswith("#")] == ["dupt_monitor_up 0.0"]


def test_health(site: Site) -> None:
    """`/healthz` says whether the monitor itself works."""
    assert site.get("/healthz")[::2] == (200, "ok\n")
    site.healthy = False
    assert site.get("/healthz")[0] == 503


def test_other_requests(site: Site) -> None:
    """Unknown paths are not found, nothing can be posted, and HEAD has no body."""
    assert site.get("/nothing")[0] == 404
    assert site.get("/healthz", "POST")[0] == 405
    assert site.get("/metrics", "POST")[0] == 405
    assert site.get("/healthz", "HEAD")[::2] == (200, "")
    assert site.get("/metrics", "HEAD") == (*site.get("/metrics")[:2], "")


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:9464", "192.0.2.7", "[::1]:9464", "localhost:9464", "monitor:9464"),
        *("SWARM.example.org.", ""),
    ],
)
def test_hosts_that_it_answers_to(site: Site, host: str) -> None:
    """Addresses, localhost, and the names that it was told: no page can have those from the DNS by itself."""
    assert site.get("/healthz", host=host)[0] == site.get("/metrics", host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["attacker.example:9464", "127.0.0.1.attacker.example", "[attacker.example]"]
)
def test_a_page_reads_nothing_by_a_name_of_its_own(site: Site, host: str) -> None:
    """Whatever it asks for, it gets the remedy for those who meant well (DNS rebinding)."""
    for path in ("/", "/metrics", "/healthz", "/api/v1/swarm"):
        status, _, text = site.get(path, host=host)
        assert (status, "--allow-host NAME" in text, "dupt" in text) == (421, True, False)
    assert site.get("/metrics", "HEAD", host)[::2] == (421, "")


def test_silent_client(site: Site) -> None:
    """A client that connects and says nothing keeps nobody else waiting."""
    with socket.create_connection(("127.0.0.1", site.server.server_port)):
        assert site.get("/healthz")[0] == 200


def test_clients_that_leave_are_no_error(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed of one that resets its connection, nor of one that says nothing for too long."""
    monkeypatch.setattr(_Handler, "timeout", _Handler.timeout / 200)
    ended, process = set[int](), site.server.process_request_thread

    def process_to_the_end(request: Any, address: Any) -> None:
        process(request, address)
        ended.add(address[1])  # by ports: another program may look who listens here now

    monkeypatch.setattr(site.server, "process_request_thread", process_to_the_end)
    with socket.create_connection(("127.0.0.1", site.server.server_port)) as client:
        silent = client.getsockname()[1]
        wait_until(lambda: silent in ended)
    with socket.create_connection(("127.0.0.1", site.server.server_port)) as client:
        client.sendall(b"GET /")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone = client.getsockname()[1]
    wait_until(lambda: gone in ended)
    assert capsys.readouterr().err == ""


def test_port_taken(site: Site) -> None:
    """A taken port is refused with a remedy."""
    with pytest.raises(UsageError, match=r"cannot listen there .*choose another --host or --port"):
        MonitorServer("127.0.0.1", site.server.server_port)


@pytest.mark.parametrize("host", ["192.0.2.1", "a..b", "a" * 64])
def test_unknown_host(host: str) -> None:
    """A host that is not an address of this machine, or cannot be the name of any, is refused alike."""
    with pytest.raises(UsageError, match=f"--host {host} --port 0: cannot listen there"):
        MonitorServer(host, 0)


def test_ipv6_address() -> None:
    """An IPv6 address works too, and the URL has it in brackets."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    with MonitorServer("::1", 0) as server:
        assert server.url == f"http://[::1]:{server.server_port}"
