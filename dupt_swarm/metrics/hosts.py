"""Which names an HTTP server answers to: not to any, or a web page could read it by a name of its own.

A page may come under a name whose address its owner then changes to 127.0.0.1 (DNS rebinding): to the
browser, what is read there is still of that page.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def answer_only_to(app: WSGIApplication, names: Collection[str], remedy: str) -> WSGIApplication:
    """``app`` for requests to an IP address, localhost or one of ``names``; others get the ``remedy``."""
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
