"""The trainer's side of its node: commands with time limits, events, and a new process when one fails."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from dupt_swarm.errors import DuptError, NodeError
from dupt_swarm.node.link import Link
from dupt_swarm.node.memory import SharedMemory, anonymous_file
from dupt_swarm.node.messages import (
    CatchingUp,
    Checkup,
    Downloading,
    GroupFormed,
    Joined,
    RoundResult,
    StateName,
    Traffic,
)
from dupt_swarm.node.view import View
from dupt_swarm.settings import NodeSettings

DISCOVER_SECONDS = 120.0
OBSERVE_SECONDS = 60.0
CHECKUP_SECONDS = 120.0
REJOIN_SECONDS = 120.0
JOIN_SECONDS = 4 * 3600.0  # the state's download is bounded by the node itself
COMMAND_SECONDS = 30.0
SAVE_SECONDS = 300.0
CHECK_SECONDS = 1.0
RESTART_DELAYS = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)  # the last one again and again

logger = logging.getLogger(__name__)

_AILMENTS = {"exited": "has ended", "silent": "is silent"}


class Node:
    """A node process and the memory shared with it. Close it, or use it in a ``with`` statement.

    Once `supervise` was called, a process that dies or falls silent is replaced by a new one, with the
    same identity and ports and the replica state that is in the shared memory. Until that one has
    joined, every command raises `NodeError`; callers go on without.

    Attributes:
        view: the live peers as the node last saw them.
        catching_up: where it stands with fetching a newer state.
        group: the group of the round that is being ended; None if there is none yet.
        traffic: bytes exchanged with other peers by the present process, as of a second ago.
        restarts: how often the process was replaced, by reason.
        on_event: called with everything that the node tells unasked, in a thread of the node's.
    """

    def __init__(self, on_download: Callable[[Downloading], None] = lambda _: None) -> None:
        """Start the process; `join` then makes it a member of a swarm.

        Args:
            on_download: hears how far the download of a state is, in another thread.
        """
        self.downloading: Downloading | None = None
        self._on_download = on_download
        self.view = View(0.0, ())
        self.catching_up = CatchingUp(fetching=False, newer=None)
        self.group: GroupFormed | None = None
        self.restarts: Counter[str] = Counter()
        self._published: dict[str, Any] = {}
        self._log: Path | None = None
        self._settings: NodeSettings | None = None
        self._joined: Joined | None = None
        self._closing = threading.Event()
        self._supervisor: threading.Thread | None = None
        self.traffic = Traffic(received=0, sent=0)
        self.on_event: Callable[[object], None] = lambda _: None
        self._memory_fd = anonymous_file()
        self._link = Link(self._memory_fd, self._hear)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def discover(self, initial_peers: tuple[str, ...], swarm_id: str) -> bytes:
        """The canonical manifest of the swarm that these peers are in.

        Raises:
            DuptError: unreachable, or another swarm than expected.
        """
        manifest: bytes = self._call(
            "discover", DISCOVER_SECONDS, initial_peers=initial_peers, swarm_id=swarm_id
        )
        return manifest

    def check(self, settings: NodeSettings) -> Checkup:
        """Look around with these settings, without joining; see `Checkup`."""
        checkup: Checkup = self._call("check", CHECKUP_SECONDS, settings=settings)
        return checkup

    def log_to(self, log: Path) -> None:
        """Append the messages of the node and its daemon to ``log``; before that they are dropped."""
        self._log = log
        self._link.submit("log_to", log=log)

    def join(self, settings: NodeSettings) -> Joined:
        """Become a member of the swarm; may take as long as the download of the state.

        Raises:
            DuptError: why it cannot.
        """
        seconds = OBSERVE_SECONDS if settings.role == "observer" else JOIN_SECONDS
        joined: Joined = self._call("join", seconds, settings=settings, memory=None)
        self._settings = replace(
            settings,
            host_maddrs=joined.host_maddrs,
            manifest=joined.manifest,
            tokenizer=joined.tokenizer,
        )
        self._joined = joined
        return joined

    def attach(self) -> SharedMemory:
        """Share memory with the node; the replica state is in it when this returns."""
        assert self._joined is not None
        memory = SharedMemory(self._memory_fd, self._joined.layout, self._joined.buffer_names)
        self._call("attach", COMMAND_SECONDS, fd=self._memory_fd)
        return memory

    def supervise(self) -> None:
        """From now on replace the process when it fails; `attach` first."""
        self._supervisor = threading.Thread(target=self._watch, name="node supervisor", daemon=True)
        self._supervisor.start()

    def publish(self, *, now: bool = False, **fields: Any) -> None:
        """Change fields of our record; does not wait. See `view.PeerRecord` for the fields."""
        self._published |= fields
        self._link.submit("publish", now=now, fields=fields)

    def average(self, state: StateName, tokens: int, companions: tuple[str, ...]) -> Future[RoundResult]:
        """End the round with the contribution in the shared memory; see `NodeService.average`."""
        self.group = None
        return self._link.submit("average", state=state, tokens=tokens, companions=companions)

    def lost_round(self, tokens: int) -> RoundResult:
        """What is known of a round in which the process died; the others may have ended it with our part.

        ``tokens`` are those of our part: without a group, the round was ours alone.
        """
        total, mates = (self.group.tokens, self.group.mates) if self.group else (tokens, ())
        return RoundResult(None, "node_lost", total, mates, 0.0)

    def cancel_average(self) -> None:
        """Give up the all-reduce under way, if there is one; does not wait."""
        self._link.submit("cancel_average")

    def adopt(self) -> StateName:
        """Take over the newer state that the node has fetched.

        Raises:
            NodeError: the node is being started again, or must be.
        """
        self.catching_up = CatchingUp(fetching=False, newer=None)
        name: StateName = self._call("adopt", COMMAND_SECONDS)
        return name

    def save(self, path: Path) -> StateName:
        """Have the node write its replica state to ``path``.

        Raises:
            NodeError: as in `adopt`.
            CheckpointError: it cannot be written.
        """
        name: StateName = self._call("save", SAVE_SECONDS, path=path)
        return name

    def refresh(self) -> View:
        """Read the records of all peers now.

        Raises:
            NodeError: as in `adopt`.
        """
        self.view = self._call("view", COMMAND_SECONDS)
        return self.view

    def replace_process(self, reason: str) -> None:
        """Have the supervisor start a new process: this one does not do what it should."""
        logger.warning("the node gives no answer (%s)", reason)
        self._link.kill()

    def close(self) -> None:
        """Leave the swarm and end the node, by force if it does not answer; a second call does nothing."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._supervisor is not None:
            self._supervisor.join()
        self._link.close()
        os.close(self._memory_fd)

    def _call(self, command: str, seconds: float, **arguments: Any) -> Any:
        try:
            return self._link.submit(command, **arguments).result(seconds)
        except TimeoutError as error:
            if self._supervisor is not None:
                self.replace_process(command)
            raise NodeError(
                f"the node did not answer `{command}` within {seconds:.0f} s; start the peer again"
            ) from error

    def _hear(self, event: object) -> None:
        if isinstance(event, View):
            self.view = event
        elif isinstance(event, CatchingUp):
            self.catching_up = event
        elif isinstance(event, GroupFormed):
            self.group = event
        elif isinstance(event, Downloading):
            self.downloading = event
            with contextlib.suppress(Exception):  # a screen that fails must not end this thread
                self._on_download(event)
        elif isinstance(event, Traffic):
            self.traffic = event
        self.on_event(event)

    def _watch(self) -> None:
        """Runs in a thread of its own until the node is closed."""
        while not self._closing.wait(CHECK_SECONDS):
            reason = self._link.ailment()
            if reason:
                self.restarts[reason] += 1
                logger.warning(
                    "the node process %s: it starts again, and training goes on", _AILMENTS[reason]
                )
                self._link.kill()
                self._restart()

    def _restart(self) -> None:
        attempt = 0
        while not self._closing.wait(RESTART_DELAYS[min(attempt, len(RESTART_DELAYS) - 1)]):
            attempt += 1
            link = Link(self._memory_fd, self._hear)
            try:
                joined = self._rejoin(link)
            except (DuptError, TimeoutError) as error:
                logger.warning("the node could not start again: %s; trying again", error)
                link.kill()
                continue
            self._link = link
            # The last process may have come further than it could tell. Who adopts sees.
            self.catching_up = CatchingUp(fetching=False, newer=joined.state)
            self.publish(now=True)
            return

    def _rejoin(self, link: Link) -> Joined:
        """Bring a new process to where the last one was."""
        assert self._settings is not None
        assert self._joined is not None
        if self._log is not None:
            link.submit("log_to", log=self._log)
        memory = (self._memory_fd, self._joined.layout)
        joining = link.submit("join", settings=self._settings, memory=memory)
        joined = _while_open(self._closing, joining, REJOIN_SECONDS)
        link.submit("attach", fd=self._memory_fd).result(COMMAND_SECONDS)
        link.submit("publish", now=False, fields=self._published)
        return joined


def _while_open(closing: threading.Event, future: Future[Joined], seconds: float) -> Joined:
    """The future's result, but do not hold up the end of the peer."""
    for _ in range(int(seconds / CHECK_SECONDS)):
        with contextlib.suppress(TimeoutError):
            return future.result(CHECK_SECONDS)
        if closing.is_set():
            break
    raise NodeError(f"it did not join the swarm within {seconds:.0f} s")
