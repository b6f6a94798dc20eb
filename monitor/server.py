"""The HTTP side: ``/metrics`` for Prometheus, ``/healthz`` for supervisors, pages for people."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app

from dupt_swarm.metrics.serving import Server, listening_at

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


class MonitorServer(Server):
    """The monitor's."""

    def __init__(self, host: str, port: int, allow_hosts: Collection[str] = ()) -> None:
        """See `Server`.

        Raises:
            UsageError: it cannot listen there.
        """
        with listening_at(f"--host {host} --port {port}", "choose another --host or --port"):
            super().__init__(host, port, allow_hosts, "start it with --allow-host NAME")


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
        path, head = environ["PATH_INFO"], environ["REQUEST_METHOD"] == "HEAD"
        method = "GET" if head else environ["REQUEST_METHOD"]
        if path == "/metrics":
            told: list[Any] = []
            # The library does not know HEAD.
            [body] = metrics_app(environ | {"REQUEST_METHOD": method}, lambda *line: told.extend(line))
            status, headers = told[0], [*told[1], ("Content-Length", str(len(body)))]
        else:
            if method != "GET":
                answer = NOT_ALLOWED
            elif path == "/healthz":
                answer = _health(healthy())
            else:
                answer = pages(path, environ.get("QUERY_STRING", "")) or NOT_FOUND
            status, headers, body = answer.status, answer.headers, answer.body
        start_response(status, [*headers, *SECURITY_HEADERS])
        return [] if head else [body]

    return app


def _health(healthy: bool) -> Answer:
    # An unreachable swarm is no fault of this process: a restart would not help.
    if healthy:
        return Answer(TEXT, b"ok\n")
    text = b"the monitor no longer watches the swarm\n"
    return Answer(TEXT, text, status="503 Service Unavailable")
