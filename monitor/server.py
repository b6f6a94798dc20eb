"""The HTTP side: ``/metrics`` for Prometheus, ``/healthz`` for supervisors, ``/`` for people."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from dupt_swarm.errors import UsageError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

LANDING_PAGE = (
    "<!doctype html><html lang=en><title>dupt-monitor</title>"
    "<h1>dupt-monitor</h1><p><a href=/metrics>Metrics</a></html>\n"
)


class _Handler(WSGIRequestHandler):
    timeout = 10  # seconds: a silent client must not hold a thread for ever

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet: Prometheus asks every few seconds."""


class MonitorServer(ThreadingMixIn, WSGIServer):
    """A WSGI server with a thread per request. Use it in a ``with`` statement."""

    daemon_threads = True
    allow_reuse_port = False  # or two monitors could share a port unnoticed

    def __init__(self, host: str, port: int, app: WSGIApplication) -> None:
        """Listen at once; `serve_forever` then answers.

        Args:
            host: an address or a name of this machine.
            port: 0 takes a free one.
            app: what to serve.

        Raises:
            UsageError: it cannot listen there.
        """
        try:
            self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise UsageError(
                f"--host {host} --port {port}: cannot listen there ({error.strerror or error}); "
                f"choose another --port, or end what uses it"
            ) from error
        self.set_app(app)

    @property
    def url(self) -> str:
        """Where it can be reached."""
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else host
        return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"

    def server_bind(self) -> None:
        """As inherited, but without asking the DNS for our own name, which can take many seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


def build_app(registry: CollectorRegistry, healthy: Callable[[], bool]) -> WSGIApplication:
    """The application: ``healthy`` says whether ``/healthz`` answers 200 or 503."""
    metrics_app = make_wsgi_app(registry)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == "/metrics":
            return metrics_app(environ, start_response)  # type: ignore[no-any-return]
        status, kind, text = _page(path, healthy)
        if method not in ("GET", "HEAD"):
            status, kind, text = "405 Method Not Allowed", "text/plain", "use GET\n"
        body = text.encode()
        headers = [("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body)))]
        start_response(status, headers)
        return [] if method == "HEAD" else [body]

    return app


def _page(path: str, healthy: Callable[[], bool]) -> tuple[str, str, str]:
    """Status, content type and text of everything but ``/metrics``."""
    if path == "/":
        return "200 OK", "text/html", LANDING_PAGE
    if path == "/healthz":
        # An unreachable swarm is not this process's illness: restarting would not cure it.
        if healthy():
            return "200 OK", "text/plain", "ok\n"
        return "503 Service Unavailable", "text/plain", "the monitor no longer watches the swarm\n"
    return "404 Not Found", "text/plain", "not here; see /metrics\n"
