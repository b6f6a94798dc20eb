"""The HTTP server of peers and monitor: where it listens, whom it answers, and clients that leave."""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from dupt_swarm.errors import UsageError


@contextmanager
def listening_at(options: str, remedy: str) -> Iterator[None]:
    """Where a server is to listen as ``options`` say; what makes that impossible is the user's error.

    Raises:
        UsageError: names the options, the reason and the remedy.
    """
    try:
        yield
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{options}: cannot listen there ({reason}); {remedy}, or end what uses it"
        ) from error


class _Handler(WSGIRequestHandler):
    timeout = 10  # seconds: a silent client must not hold a thread for ever

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet: Prometheus asks every few seconds."""


class Server(ThreadingMixIn, WSGIServer):
    """A WSGI server with a thread per request. Use it in a ``with`` statement."""

    daemon_threads = True
    allow_reuse_port = False  # or two programs could share a port unnoticed

    def __init__(self, host: str, port: int, names: Collection[str], remedy: str) -> None:
        """Listen at once; `set_app` says what to serve, and `serve_forever` then answers.

        Args:
            host: an address or a name of this machine.
            port: 0 takes a free one.
            names: to which it answers, beside ``host``, localhost and all IP addresses.
            remedy: for who asks by another one.

        Raises:
            OSError: it cannot listen there.
            UnicodeError: no name of a host can be written so.
        """
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler)
        self._names, self._remedy = (host, *names), remedy

    def set_app(self, application: WSGIApplication | None) -> None:
        """As inherited; what is asked of another host never gets there."""
        if application is not None:
            application = answer_only_to(application, self._names, self._remedy)
        super().set_app(application)

    @property
    def url(self) -> str:
        """Where it can be reached."""
        host, port = self._names[0], self.server_port
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """As inherited, but a client that falls silent or leaves is nobody's error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def server_bind(self) -> None:
        """As inherited, but without asking the DNS for our own name, which can take many seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


def answer_only_to(app: WSGIApplication, names: Collection[str], remedy: str) -> WSGIApplication:
    """``app`` for requests to an IP address, localhost or one of ``names``; others get the ``remedy``.

    Not to any name: the owner of one may have a web page come under it, and then change its address to
    127.0.0.1 (DNS rebinding). To the browser, what is read there is still of that page.
    """
    known = {"localhost", *map(_bare, names)}

    def guarded(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        host = _bare(environ.get("HTTP_HOST", ""))
        if not host or host in known or _is_address(host):  # each browser says which host it means
            return app(environ, start_response)
        body = f"this server does not answer to that name; ask it by its IP address, or {remedy}\n".encode()
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
        start_response("421 Misdirected Request", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return guarded


def _bare(host: str) -> str:
    """Without brackets, port, and the dot of the DNS' root."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if _is_address(host) else host.partition(":")[0].rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
