"""The HTTP side: ``/metrics`` for Prometheus, ``/healthz`` for supervisors, pages for people."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app

from dupt_swarm.metrics.serving import answer_only_to, listening_at, report_unanswered, url_of

# Everything comes from here, and nothing a peer calls itself could run even if it got into the page.
SECURITY_HEADERS = [
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
]
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    content_type: str
    body: bytes
    cache_control: str = "no-store"
    status: str = "200 OK"

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Those that belong to every answer."""
        return [
            ("Content-Type", self.content_type),
            ("Content-Length", str(len(self.body))),
            ("Cache-Control", self.cache_control),
            ("Allow", "GET, HEAD"),
        ]


NOT_ALLOWED = Answer(TEXT, b"use GET\n", status="405 Method Not Allowed")
NOT_FOUND = Answer(TEXT, b"not here; see / and /metrics\n", status="404 Not Found")
Pages = Callable[[str, str], Answer | None]


class _Handler(WSGIRequestHandler):
    timeout = 10  # seconds: a silent client must not hold a thread for ever

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet: Prometheus asks every few seconds."""


class MonitorServer(ThreadingMixIn, WSGIServer):
    """A WSGI server with a thread per request. Use it in a ``with`` statement."""

    daemon_threads = True
    allow_reuse_port = False  # or two monitors could share a port unnoticed
    handle_error = staticmethod(report_unanswered)

    def __init__(self, host: str, port: int, allow_hosts: Collection[str] = ()) -> None:
        """Listen at once; `set_app` says what to serve, and `serve_forever` then answers.

        Args:
            host: an address or a name of this machine.
            port: 0 takes a free one.
            allow_hosts: names to which it answers, beside ``host``, localhost and all IP addresses.

        Raises:
            UsageError: it cannot listen there.
        """
        with listening_at(f"--host {host} --port {port}", "choose another --host or --port"):
            self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            super().__init__((host, port), _Handler)
        self._names = (host, *allow_hosts)

    def set_app(self, application: WSGIApplication | None) -> None:
        """As inherited; what is asked of another host never gets there."""
        if application is not None:
            application = answer_only_to(application, self._names, "start it with --allow-host NAME")
        super().set_app(application)

    @property
    def url(self) -> str:
        """Where it can be reached."""
        return url_of(self.server_name, self.server_port)

    def server_bind(self) -> None:
        """As inherited, but without asking the DNS for our own name, which can take many seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


def build_app(
    registry: CollectorRegistry, healthy: Callable[[], bool], pages: Pages = lambda *_: None
) -> WSGIApplication:
    """The application.

    Args:
        registry: what ``/metrics`` shows.
        healthy: whether ``/healthz`` answers 200 or 503.
        pages: answers everything else, from path and query; None: there is nothing.
    """
    metrics_app = make_wsgi_app(registry)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Callable[[bytes], object]:
            return start_response(status, [*headers, *SECURITY_HEADERS], *error)

        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == "/metrics" and method == "HEAD":  # which the library does not know
            told: list[Any] = []
            [body] = metrics_app(environ | {"REQUEST_METHOD": "GET"}, lambda *line: told.extend(line))
            status, headers = told
            start(status, [*headers, ("Content-Length", str(len(body)))])
            return []
        if path == "/metrics":
            return metrics_app(environ, start)  # type: ignore[no-any-return]
        if method not in ("GET", "HEAD"):
            answer = NOT_ALLOWED
        elif path == "/healthz":
            answer = _health(healthy())
        else:
            answer = pages(path, environ.get("QUERY_STRING", "")) or NOT_FOUND
        start(answer.status, answer.headers)
        return [] if method == "HEAD" else [answer.body]

    return app


def _health(healthy: bool) -> Answer:
    # An unreachable swarm is no fault of this process: a restart would not help.
    if healthy:
        return Answer(TEXT, b"ok\n")
    text = b"the monitor no longer watches the swarm\n"
    return Answer(TEXT, text, status="503 Service Unavailable")
