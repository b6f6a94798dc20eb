"""Watching a swarm: a thread that reads the records every few seconds into an immutable snapshot."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from dupt_swarm.errors import FileError
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.view import View
from dupt_swarm.replica.ledger import Ledger
from monitor.history import History, Point
from monitor.tally import Floor, Tally, Totals, load_totals, save_totals

REFRESH_SECONDS = 5.0
LEDGER_SECONDS = 30.0
LEDGER_SECONDS_MAX = 3600.0  # after failures: all links of a swarm are many
# An observer that lost all its neighbours does not find them again by itself: it takes a new node.
# A new node is a new process, so ever less often.
FAILURES_BEFORE_NEW_NODE = 3
FAILURES_BETWEEN_NEW_NODES_MAX = 24
JOIN_THREAD_SECONDS = 1.0

logger = logging.getLogger(__name__)


class Source(Protocol):
    """What the watcher needs of `dupt_swarm.node.node.Node`."""

    def refresh(self) -> View:
        """Read the records of all peers now."""

    def ledger(self) -> Ledger:
        """Read who has given what; the first time it may take as long as the links of all rounds."""

    def close(self) -> None:
        """Release everything."""


Connect = Callable[[str], tuple[Source, Manifest]]


@dataclass(frozen=True)
class Snapshot:
    """What the monitor knows at one moment.

    Attributes:
        manifest: of the swarm.
        view: the records at the last refresh that reached the swarm.
        totals: the counters at that refresh.
        floors: what the counters of each peer do not fall below.
        up: whether the last refresh reached the swarm.
        last_refresh: when one last did, seconds since the epoch; None: never.
        working_since: since when there has always been an oracle at work, likewise.
        refresh_seconds: how long the last one took.
        refresh_errors: how many have failed.
        ledger: who has given what, as of half a minute ago; None: that is not known yet.
    """

    manifest: Manifest
    view: View
    totals: Totals = field(default_factory=Totals)
    floors: Mapping[str, Floor] = field(default_factory=dict)
    up: bool = False
    last_refresh: float | None = None
    working_since: float = 0.0
    refresh_seconds: float | None = None
    refresh_errors: int = 0
    ledger: Ledger | None = None

    def live_view(self, now: float) -> View:
        """The view without the peers whose records have expired by ``now``.

        While the swarm cannot be reached no newer view replaces this one, yet nobody may stay for ever.
        """
        lifetime = self.manifest.limits.record_seconds
        live = tuple(peer for peer in self.view.peers if now - peer.record.time < lifetime)
        return View(now, live, self.view.refused)

    def succeeded(self, view: View, tally: Tally, seconds: float) -> Snapshot:
        """The snapshot after a refresh that found ``view`` within ``seconds``, which ``tally`` counts."""
        floors = tally.add(view)
        # Whoever is seen now may have been away while the monitor could not look.
        working = self.live_view(view.time).at_work
        return replace(
            self,
            view=view,
            totals=tally.totals,
            floors=floors,
            up=True,
            last_refresh=view.time,
            working_since=self.working_since if working else view.time,
            refresh_seconds=seconds,
        )

    def failed(self, seconds: float) -> Snapshot:
        """The snapshot after a refresh that failed within ``seconds``."""
        return replace(self, up=False, refresh_seconds=seconds, refresh_errors=self.refresh_errors + 1)


class Watcher:
    """Keeps `snapshot` fresh. Close it, or use it in a ``with`` statement.

    Attributes:
        snapshot: replaced as a whole, so any thread may read it.
        history: of the snapshots so far.
    """

    def __init__(
        self,
        connect: Connect,
        swarm_id: str = "",
        interval: float = REFRESH_SECONDS,
        state_dir: Path | None = None,
    ) -> None:
        """Find the swarm and read its records once; then go on in a thread.

        Args:
            connect: opens a node that looks at the swarm of this id (empty: any).
            swarm_id: the swarm expected; empty: whichever is found.
            interval: seconds between two refreshes.
            state_dir: where to keep the counters, one file per swarm; None: nowhere.

        Raises:
            DuptError: there is no such swarm to be found.
        """
        self._connect, self._interval = connect, interval
        self._source, manifest = connect(swarm_id)
        self._state_file = state_dir / f"{manifest.swarm_id}.json" if state_dir else None
        totals = load_totals(self._state_file) if self._state_file else None
        self._tally = Tally(totals)
        self.snapshot = Snapshot(manifest, View(time.time(), ()), self._tally.totals)
        self.history = History()
        self._saved, self._save_failed = totals, False
        self._failures = 0
        self._ledger: Ledger | None = None
        self._stopped = threading.Event()
        self._replacing = threading.Lock()  # each node must be closed exactly once
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        try:
            self.refresh()
            self._thread.start()
            threading.Thread(target=self._read_ledgers, name="ledger", daemon=True).start()
        except BaseException:
            self._source.close()
            raise

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the thread still refreshes the snapshot."""
        return self._thread.is_alive()

    def refresh(self) -> None:
        """Take a new snapshot; a failure is recorded in it."""
        started = time.monotonic()
        try:
            view = self._source.refresh()
        except Exception as error:
            # Whatever it was: monitoring goes on, and the error is counted.
            self._note_failure(error, time.monotonic() - started)
            return
        if self._failures:
            logger.warning("the swarm is reachable again")
        self._failures = 0
        succeeded = self.snapshot.succeeded(view, self._tally, time.monotonic() - started)
        self.snapshot = replace(succeeded, ledger=self._ledger)
        self._save()
        if view.peers:
            tokens = self.snapshot.totals.tokens or 0
            self.history.add(Point.of(view, tokens, self.snapshot.manifest.limits))

    def close(self) -> None:
        """Stop the thread and close the node."""
        with self._replacing:
            self._stopped.set()
        self._source.close()  # which also aborts a refresh in progress
        self._thread.join(JOIN_THREAD_SECONDS)

    def _read_ledgers(self) -> None:
        """Beside what is refreshed: thousands of rounds take a while."""
        pause = LEDGER_SECONDS
        while not self._stopped.is_set():
            if self.snapshot.up:
                pause = self._read_ledger(pause)
            self._stopped.wait(pause)

    def _read_ledger(self, pause: float) -> float:
        """Read it once; how long to wait after that, if it was ``pause`` before."""
        try:
            self._ledger = self._source.ledger()
        except Exception as error:  # whatever it was: the last one stays
            if not self._stopped.is_set():
                logger.warning("who has given what cannot be read (%s); trying again", error)
            return min(2 * pause, LEDGER_SECONDS_MAX)
        return LEDGER_SECONDS

    def _note_failure(self, error: Exception, seconds: float) -> None:
        self._failures += 1
        if self._failures == 1 and not self._stopped.is_set():
            logger.warning("the swarm cannot be read (%s); trying again", error)
        self.snapshot = self.snapshot.failed(seconds)

    def _save(self) -> None:
        """Keep the counters on disk; without that, the monitor goes on all the same."""
        totals = self.snapshot.totals
        if self._state_file is None or totals == self._saved:
            return
        try:
            self._state_file.parent.mkdir(parents=True, exist_ok=True)
            save_totals(self._state_file, totals)
            self._saved, self._save_failed = totals, False
        except (OSError, FileError) as error:
            if not self._save_failed:
                logger.warning("counters are not kept over a restart: %s", error)
            self._save_failed = True

    def _watch(self) -> None:
        reconnect_at = FAILURES_BEFORE_NEW_NODE
        while not self._stopped.wait(self._interval):
            if not self._failures:
                reconnect_at = FAILURES_BEFORE_NEW_NODE
            elif self._failures >= reconnect_at:
                reconnect_at += min(self._failures, FAILURES_BETWEEN_NEW_NODES_MAX)
                self._reconnect()
            self.refresh()

    def _reconnect(self) -> None:
        """Replace the node, if a new one finds the same swarm; else keep it."""
        try:
            source, _ = self._connect(self.snapshot.manifest.swarm_id)
        except Exception as error:
            # As in `refresh`, which is going to count it.
            logger.info("no new way to the swarm: %s", error)
            return
        with self._replacing:
            if self._stopped.is_set():
                unused = source
            else:
                unused, self._source = self._source, source
        unused.close()
