"""Where a peer serves its metrics: ``--metrics-addr``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click
from prometheus_client import CollectorRegistry, make_wsgi_app

from dupt_swarm.errors import UsageError
from dupt_swarm.metrics.serving import Server, listening_at
from peers.metrics.collector import PeerMetrics


@contextmanager
def serve_metrics(address: str | None) -> Iterator[PeerMetrics]:
    """Metrics that are served at ``address`` while the block lasts; None: that are not served.

    Raises:
        UsageError: the address is malformed, or nothing can listen there.
    """
    metrics = PeerMetrics()
    if address is None:
        yield metrics
        return
    host, port = parse_address(address)
    registry = CollectorRegistry()
    registry.register(metrics)
    with listening_at(f"--metrics-addr {address}", "choose another address or port"):
        server = Server(host, port, (), "give it that name in --metrics-addr NAME:PORT")
    with server:
        server.set_app(make_wsgi_app(registry))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            click.echo(f"metrics of this peer: {server.url}/metrics", err=True)
            yield metrics
        finally:
            server.shutdown()
            thread.join()


def parse_address(address: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        UsageError: it is not written as an address.
    """
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    # Without brackets nobody can tell where an IPv6 address ends and the port begins.
    if not bare or (":" in bare) != (bare != host) or not (port.isascii() and port.isdigit()):
        raise UsageError(f"--metrics-addr {address}: write it like 127.0.0.1:9465 or [::1]:9465")
    if int(port) > 65535:
        raise UsageError(f"--metrics-addr {address}: ports end at 65535")
    return bare, int(port)
