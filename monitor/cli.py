"""``dupt-monitor``: watch a swarm and export it to Prometheus."""

from __future__ import annotations

import logging
import signal
import sys
from functools import partial
from pathlib import Path
from wsgiref.types import WSGIApplication

import click

from dupt_swarm.command_line.exit_codes import command_errors
from dupt_swarm.command_line.paths import UserPath
from dupt_swarm.disk.folders import default_state_dir
from dupt_swarm.manifest import Manifest
from dupt_swarm.settings import NodeSettings
from dupt_swarm.version import VERSION
from monitor.watcher import Source, Watcher


@click.command(
    context_settings={"auto_envvar_prefix": "DUPT_MONITOR", "show_default": True},
    epilog="Every option can also come from the environment: DUPT_MONITOR_PORT=9464, "
    "DUPT_MONITOR_INITIAL_PEERS='ADDRESS ADDRESS'.",
)
@click.option(
    "--initial-peers",
    metavar="ADDRESS",
    multiple=True,
    required=True,
    help="Multiaddr of a peer, ending in /p2p/<peer id>; repeat it for more peers.",
)
@click.option(
    "--swarm",
    metavar="ID",
    default="",
    show_default="whichever is found",
    help="Refuse any other swarm than this one.",
)
@click.option(
    "--invitation",
    metavar="TOKEN",
    default="",
    show_default="none",
    help="From the organiser, where the swarm admits by invitation; better in DUPT_MONITOR_INVITATION.",
)
@click.option("--host", default="127.0.0.1", help="Address to serve on; 0.0.0.0 for everywhere.")
@click.option(
    "--allow-host",
    metavar="NAME",
    multiple=True,
    show_default="none",
    help="Answer requests to this name too, such as a proxy's; repeat it for more names. It answers to IP "
    "addresses, localhost and --host anyway.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=9464, help="Port to serve on; 0: a free one.")
@click.option(
    "--max-peer-series",
    type=click.IntRange(min=0),
    default=50,
    help="How many peers get series of their own: those who contributed most.",
)
@click.option(
    "--state-dir",
    type=UserPath(path_type=Path),
    default=None,
    show_default="the platform's state folder",
    help="Where to keep the counters, so that they go on after a restart.",
)
@click.version_option(VERSION)
@command_errors
def main(
    initial_peers: tuple[str, ...],
    swarm: str,
    invitation: str,
    host: str,
    allow_host: tuple[str, ...],
    port: int,
    max_peer_series: int,
    state_dir: Path | None,
) -> None:
    """Watch a swarm, and serve a page about it and its metrics for Prometheus until stopped.

    Prints the URL of the metrics; the page is at /, the same as JSON at /api/v1/swarm. Ends with 0 on
    SIGTERM.
    """
    logging.basicConfig(format="%(levelname)s: %(message)s", stream=sys.stderr)
    # Raised wherever the main thread is, so that all with-statements clean up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = (state_dir or default_state_dir()) / "monitor"

    # Imported here, or --help would wait for torch.
    from monitor.server import MonitorServer

    # The port first: it takes no time to find out that it is taken.
    with MonitorServer(host, port, allow_host) as server:
        click.echo("looking for the swarm", err=True)
        connect = partial(_connect, initial_peers, invitation)
        with Watcher(connect, swarm, state_dir=folder) as watcher:
            server.set_app(_app_of(watcher, initial_peers, max_peer_series))
            click.echo(f"{server.url}/metrics")
            click.echo(f"the swarm's page: {server.url}/", err=True)
            server.serve_forever()


def _connect(initial_peers: tuple[str, ...], invitation: str, swarm_id: str) -> tuple[Source, Manifest]:
    from dupt_swarm.discovery import observe

    return observe(initial_peers, NodeSettings("observer", swarm_id=swarm_id, invitation=invitation))


def _app_of(watcher: Watcher, initial_peers: tuple[str, ...], max_peer_series: int) -> WSGIApplication:
    """What is served of what ``watcher`` sees."""
    from prometheus_client import CollectorRegistry

    from monitor.collector import SwarmCollector
    from monitor.server import build_app
    from monitor.site import Site

    registry = CollectorRegistry()
    registry.register(SwarmCollector(lambda: watcher.snapshot, max_peer_series))
    site = Site(lambda: watcher.snapshot, watcher.history, initial_peers)
    return build_app(registry, lambda: watcher.alive, site.answer)
