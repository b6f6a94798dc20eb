"""What the monitor shows to people and their programs: the page, its files, and the JSON."""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import parse_qs

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from dupt_swarm.command_line.join_line import join_line
from dupt_swarm.node.addresses import Address, join_addresses
from dupt_swarm.replica.ledger import SOUGHT_MIN
from dupt_swarm.version import VERSION
from monitor import chart, formats
from monitor.health import gravest
from monitor.history import History
from monitor.server import Answer
from monitor.summary import ContributorSummary, Summary, contributor, summarise
from monitor.watcher import REFRESH_SECONDS, Snapshot

SOUGHT_MAX = 100  # characters of a search
FOLDER = Path(__file__).with_name("page")
FOR_EVER = "public, max-age=31536000, immutable"
FILES = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "favicon.svg": "image/svg+xml",
}


# What a check that is not well means for the swarm; reach is no illness.
VERDICTS = {
    "data": "Out of reach",
    "oracles": "Waiting for oracles",
    "rounds": "Stalled",
    "replicas": "Replicas disagree",
}


class Site:
    """Answers ``/``, ``/api/v1/swarm`` with its ``/api/v1/schema``, and the files of the page."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        history: History,
        initial_peers: Sequence[str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Show whatever ``snapshot()`` returns at each request.

        Args:
            snapshot: gives the latest one.
            history: what came before it.
            initial_peers: addresses that the monitor was given, for the line to join with.
            clock: seconds since the epoch.
        """
        self._snapshot, self._history, self._clock = snapshot, history, clock
        self._initial_peers = initial_peers

    def answer(self, path: str, query: str = "") -> Answer | None:
        """What lies at ``path``; None: nothing."""
        if path == "/":
            return Answer("text/html; charset=utf-8", self.page(query).encode())
        if path == "/api/v1/swarm":
            return Answer("application/json", self.summary().model_dump_json().encode() + b"\n")
        if path == "/api/v1/schema":
            return Answer("application/schema+json", schema())
        name = path.removeprefix("/page/")
        if name in FILES:
            return Answer(FILES[name], content(name), FOR_EVER)
        return None

    def summary(self) -> Summary:
        """The swarm now."""
        snapshot = self._snapshot()
        manifest = snapshot.manifest
        join = join_line(self._addresses(), manifest)
        return summarise(snapshot, self._history, join, self._clock())

    def page(self, query: str = "") -> str:
        """The page as HTML.

        ``by=tokens`` in the query draws the curve over tokens instead of time; ``peer=ID`` shows what that
        peer has given, too.
        """
        summary, chosen = self.summary(), parse_qs(query)
        decisive = gravest(summary.health)
        by_tokens, [sought] = chosen.get("by") == ["tokens"], chosen.get("peer", [""])[:1]
        return template().render(
            s=summary,
            level=decisive.level,
            verdict="Training" if decisive.level == "good" else VERDICTS[decisive.name],
            chart=chart.draw(self._history.points, by_tokens),
            by_tokens=by_tokens,
            sought=sought.strip()[:SOUGHT_MAX],
            sought_min=SOUGHT_MIN,
            found=self._found(sought.strip()),
            local=all(Address.parse(address).loopback for address in self._addresses()),
            width=int(chart.WIDTH),
            height=int(chart.HEIGHT),
            refresh_seconds=REFRESH_SECONDS,
            version=VERSION,
        )

    def _found(self, sought: str) -> ContributorSummary | None:
        """What the peer with this id, or one that ends like this, or else with this name, has given."""
        snapshot = self._snapshot()
        view, ledger = snapshot.live_view(self._clock()), snapshot.ledger
        if ledger is None or not sought:
            return None
        named = {peer.peer_id for peer in view.peers if peer.record.name == sought}
        entry = ledger.find(sought) or next((each for each in ledger.entries if each.peer_id in named), None)
        return None if entry is None else contributor(ledger, entry, view)

    def _addresses(self) -> list[str]:
        return join_addresses(self._initial_peers, self._snapshot().view)


@functools.cache
def template() -> Template:
    """The page as it is to be filled in, compiled once."""
    # Jinja escapes whatever it is given; a name that is misspelt in the template is an error.
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        name: getattr(formats, name)
        for name in ("short", "whole", "loss", "percent", "clock", "count", "size", "wait")
    }
    environment.globals["asset"] = address_of
    return environment.get_template("page.html")


@functools.cache
def content(name: str) -> bytes:
    """A file of the page."""
    return (FOLDER / name).read_bytes()


def address_of(name: str) -> str:
    """A URL that changes with the file, so that browsers may keep it for ever."""
    return f"/page/{name}?{hashlib.sha256(content(name)).hexdigest()[:12]}"


@functools.cache
def schema() -> bytes:
    """Of the summary, as JSON."""
    return json.dumps(Summary.model_json_schema(mode="serialization")).encode() + b"\n"
