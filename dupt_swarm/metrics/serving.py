"""What all HTTP servers here have in common: where they listen, whom they answer, and clients that leave."""

from __future__ import annotations

import ipaddress
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import click

from dupt_swarm.errors import UsageError


@contextmanager
def listening_at(options: str, remedy: str) -> Iterator[None]:
    """Where a server is to listen as ``options`` say; what makes that impossible is the user's error.

    Raises:
        UsageError: names the options, the reason and the remedy.
    """
    try:
        yield
    except (OSError, UnicodeError) as error:  # as to the latter: no name of a host can be written so
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{options}: cannot listen there ({reason}); {remedy}, or end what uses it"
        ) from error


def url_of(host: str, port: int) -> str:
    """Where a server can be reached that listens at this name or address."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def report_unanswered(request: Any, client_address: Any) -> None:
    """In place of a server's `handle_error`: a client that falls silent or leaves is nobody's error."""
    del request
    if not isinstance(sys.exception(), OSError):
        click.echo(f"{client_address} was not answered:\n{traceback.format_exc()}", err=True)


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
