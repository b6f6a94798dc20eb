"""Swarms as the monitor sees them, for tests."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from wsgiref.types import WSGIApplication

from prometheus_client import CollectorRegistry

from dupt_swarm.node.record import EvaluationRecord, PeerRecord, SampleRecord, TaskResult
from dupt_swarm.node.view import Peer, View
from dupt_swarm.presets import manifest_from_preset
from dupt_swarm.replica.ledger import Entry, Ledger
from monitor.history import History, Point
from monitor.server import MonitorServer, build_app
from monitor.site import Site
from monitor.tally import Tally
from monitor.watcher import Snapshot
from tests.support.costs import cost_fields

EVIL = "<script>alert(1)</script>"
EVIL_URL = 'https://example.org/"><script>alert(4)</script>'.ljust(140, "w")
# Markup, what a terminal would obey, changes of direction, emoji, stacked accents, a word without an end.
EVIL_SAMPLE = (
    "</span></blockquote></script><script>alert(2)</script><img src=x onerror=alert(3)>\n\n"
    "{{ 7 * 7 }} &lt;b&gt; \x1b[31m\x9b2J\x00 \u202eevil\u2066 \u05d0\u05d1 👩‍🚀🏳️‍🌈 Z\u0351\u0352\u0353"
    + "﷽" * 8
    + "W" * 200
)
NOW = 1_000_000.0
MANIFEST = manifest_from_preset("tiny", name="test", seed=1, tokenizer_sha256="0" * 64, vocabulary_size=512)
ADDRESS = "/ip4/203.0.113.7/tcp/31330/p2p/QmTm2ZWAGpQd4bE2Yx1v64kaztjyrmr6akKCtddWHuhXN3"


def peer(peer_id: str, **fields: Any) -> Peer:
    """A training oracle that was heard of just now."""
    known = {"role": "oracle", "state": "training", "time": NOW, "round": 3, "swarm_tokens": 900}
    return Peer(peer_id, PeerRecord(**{"state_digest": "a" * 64, "version": "0.1.0", **known, **fields}))


def seen(*peers: Peer) -> Snapshot:
    """The snapshot after a refresh that found these peers just now."""
    return Snapshot(MANIFEST, View(NOW, ())).succeeded(View(NOW, peers), Tally(), 0.1)


def remembered(*points: Point) -> History:
    """A history of these points."""
    history = History()
    for point in points:
        history.add(point)
    return history


def _costs(number: int) -> dict[str, Any]:
    """What rounds cost an oracle; one claims the most that a record may, one says nothing."""
    if number == 0:
        most = (1 << 62) - 1
        return cost_fields(
            round_sent_bytes=most,
            round_received_bytes=most,
            utilization=1.0,
            round_waiting_seconds=1e9,
            waiting_seconds=1e9,
        )
    if number == 1:
        return {}
    return cost_fields(
        round_sent_bytes=12_345_678,
        round_received_bytes=98_765_432,
        round_waiting_seconds=0.34 * number,
        waiting_seconds=30.0 * number,
    )


class TrainedSwarm:
    """An invented swarm that has trained for a while, with names that would break a careless page."""

    def __init__(self) -> None:
        names = [EVIL, "\u202eevil", "W" * 40, "﷽" * 40, "Zoë", ""]
        oracles = [
            peer(
                f"12D3KooW{number:044}",
                name=name,
                loss=3.0 + number / 10,
                heldout_loss=3.5,
                tokens_per_second=100.0 * (number + 1),
                device="NVIDIA GeForce RTX 4090" * 2,
                **({"round": 2, "swarm_tokens": 600, "state_digest": "b" * 64} if number == 2 else {}),
                exposed=("12D3KooW" + "W" * 44,),
                **_costs(number),
            )
            for number, name in enumerate(names)
        ]
        evaluation = EvaluationRecord(
            dataset="w" * 40,
            bits_per_byte=1.2,
            loss_nats=3.4,
            round=3,
            time=NOW,
            sample=SampleRecord(prompt=EVIL, text=EVIL_SAMPLE),
        )
        results = (TaskResult(task="held_out", metric="bits_per_byte", value=1.25, round=2),)
        says = {"evaluation": evaluation, "tasks": results, "published_at": EVIL_URL}
        judge = peer("QmJudge", role="evaluator", name=EVIL, **says)
        self.view = View(NOW, (*oracles, judge))
        ids = [peer.peer_id for peer in self.view.oracles]
        entries = (Entry(peer, 900 - 100 * place, 9 - place, 0, 1, 9) for place, peer in enumerate(ids))
        self.ledger = Ledger(0, 9, tuple(entries))
        self._tally = Tally()
        seen_now = Snapshot(MANIFEST, self.view).succeeded(self.view, self._tally, 0.1)
        self.snapshot = replace(seen_now, ledger=self.ledger)
        self.history: History = remembered(
            *(
                Point(NOW - 1000 + 5 * n, 3, 900, 8 - n / 50, 7.5 - n / 50, 8.5 - n / 50, 8.2 - n / 50, 8.1)
                for n in range(200)
            )
        )

    def site(self) -> Site:
        """What the monitor shows of it, whenever that is asked for."""
        return Site(lambda: self.snapshot, self.history, [ADDRESS], lambda: NOW)

    def lose_evaluator(self) -> Snapshot:
        """It is gone, one refresh later; what was seen before."""
        before = self.snapshot
        self.snapshot = before.succeeded(View(NOW, self.view.peers[:-1]), self._tally, 0.1)
        return before

    def train(self) -> None:
        """One refresh later."""
        peers = tuple(
            replace(one, record=one.record.model_copy(update={"round": 4, "loss": 2.5, "swarm_tokens": 1200}))
            for one in self.view.peers
        )
        self.snapshot = self.snapshot.succeeded(View(NOW, peers), self._tally, 0.1)
        self.history.add(Point.of(View(NOW, peers), 1200, MANIFEST.limits))


@contextmanager
def served(site: Site) -> Iterator[str]:
    """The URL of a monitor that serves ``site``."""
    with serving(build_app(CollectorRegistry(), lambda: True, site.answer)) as server:
        yield server.url


@contextmanager
def serving(app: WSGIApplication, *names: str) -> Iterator[MonitorServer]:
    """A running server of ``app``, which answers to these ``names`` too."""
    with MonitorServer("127.0.0.1", 0, names) as server:
        server.set_app(app)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
