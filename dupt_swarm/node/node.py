"""The trainer's side of its node: commands with time limits, events, and a new process when one fails."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from dupt_swarm.disk.anonymous import anonymous_file
from dupt_swarm.errors import DuptError, NodeError
from dupt_swarm.node.commands import (
    Adopt,
    Command,
    EndRound,
    Join,
    Judge,
    LogTo,
    Predecessor,
    Publish,
    ReadLedger,
    ReadView,
    WantOffered,
)
from dupt_swarm.node.heard import UP_TO_DATE, Hearing
from dupt_swarm.node.link import Link
from dupt_swarm.node.memory import SharedMemory
from dupt_swarm.node.messages import (
    Adopted,
    CatchingUp,
    Downloading,
    Joined,
    OfferedName,
    RoundResult,
    StateName,
)
from dupt_swarm.node.reasons import ENDINGS, Failure
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.node.view import View
from dupt_swarm.replica.ledger import Ledger
from dupt_swarm.settings import NodeSettings

OBSERVE_SECONDS = 60.0
REJOIN_SECONDS = 3600.0  # with months of rounds, whose signatures are verified again
CHECK_SECONDS = 1.0
RESTART_DELAYS = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)  # the last one repeatedly

logger = logging.getLogger(__name__)
Reply = TypeVar("Reply")


class Node:
    """A node process and the memory shared with it. Close it, or use it in a ``with`` statement.

    Once `supervise` was called, a process that dies or falls silent is replaced by a new one, with the
    same identity, the ports if they are free, and the replica state that is in the shared memory. Until
    that one has joined, every command raises `NodeError`; callers go on without.

    Attributes:
        hearing: what it tells unasked.
        restarts: how often the process was replaced, by reason; see `ENDINGS`.
    """

    def __init__(self, on_download: Callable[[Downloading], None] = lambda _: None) -> None:
        """Start the process; `join` then makes it a member of a swarm.

        Args:
            on_download: hears how far the download of a state is, in another thread.
        """
        self.hearing = Hearing(on_download)
        self.restarts: Counter[str] = Counter()
        self._published, self._wanted = RecordUpdate(), WantOffered(())
        self._remembering = threading.Lock()  # what the next process is told, too: the two above
        self._log: Path | None = None
        self._membership: tuple[NodeSettings, Joined] | None = None
        self._checks = 0  # by the supervisor, until now
        self._round: tuple[Future[RoundResult], float] | None = None  # and after how many checks it is late
        self._closing = threading.Event()
        self._supervisor: threading.Thread | None = None
        self._memory_fd = anonymous_file()
        self._link = Link(self._memory_fd, self.hearing.hear)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, command: Command[Reply], seconds: float | None = None) -> Reply:
        """The reply to ``command``, which has the command's own time unless ``seconds`` says otherwise.

        Raises:
            NodeError: the node is being started again, or must be.
            DuptError: why the command could not be carried out.
        """
        seconds = command.seconds if seconds is None else seconds
        try:
            return self._link.submit(command).result(seconds)
        except TimeoutError as error:
            name = type(command).__name__
            if self._supervisor is not None:
                self.replace_process(name)
            raise NodeError(
                f"the node did not answer {name} within {seconds:.0f} s; start the peer again"
            ) from error

    def tell(self, command: Command[None]) -> None:
        """Send ``command``, without waiting for it to be carried out."""
        self._link.submit(command)

    def log_to(self, log: Path) -> None:
        """Append the messages of the node and its daemon to ``log``; before that they are dropped."""
        self._log = log
        self._link.submit(LogTo(log))

    def join(self, settings: NodeSettings) -> Joined:
        """Join the swarm; may take as long as the download of the state.

        Raises:
            DuptError: why it cannot.
        """
        command = Join(settings, self._memory_fd)
        joined = self.ask(command, OBSERVE_SECONDS if settings.role == "observer" else command.seconds)
        known = replace(settings, manifest=joined.manifest, tokenizer=joined.tokenizer)
        self._membership = known, joined
        return joined

    def attach(self) -> SharedMemory:
        """The memory shared with the node, which must have joined; the replica state is in it."""
        assert self._membership is not None
        _, joined = self._membership
        return SharedMemory(self._memory_fd, joined.layout)

    def supervise(self) -> None:
        """From now on replace the process when it fails; `join` first."""
        self._supervisor = threading.Thread(target=self._watch, name="node supervisor", daemon=True)
        self._supervisor.start()

    def publish(self, update: RecordUpdate, *, now: bool = False) -> None:
        """Change our record; does not wait. ``now``: the others should learn of it at once."""
        with self._remembering:
            self._published |= update
        self._link.submit(Publish(update, now))

    def want_offered(self, files: Sequence[OfferedName]) -> None:
        """Have these files fetched, and no others any more; does not wait."""
        wanted = WantOffered(tuple(files))
        with self._remembering:
            self._wanted = wanted
        self._link.submit(wanted)

    def average(self, order: EndRound, seconds: float) -> Future[RoundResult]:
        """End the round with the contribution in the shared memory; `supervise` first.

        A process that dies is a round that failed, though the others may have ended it with our part; and so
        is one that does not answer within ``seconds``, which is replaced. Like silence they are counted in
        checks: an answer that came while the whole peer was suspended is read before it is late.
        """
        self.hearing.group = self.hearing.candidate = None
        ended: Future[RoundResult] = Future()

        def tell(answer: Future[RoundResult]) -> None:
            error = answer.exception()
            if error is None:
                ended.set_result(answer.result())
            elif isinstance(error, NodeError):
                group = self.hearing.group  # without one, the round was ours alone
                total, mates = (group.tokens, group.mates) if group else (order.tokens, ())
                ended.set_result(RoundResult(None, Failure.NODE_LOST, total, mates, 0.0))
            else:
                ended.set_exception(error)

        self._link.submit(order).add_done_callback(tell)
        self._round = ended, self._checks + seconds / CHECK_SECONDS
        return ended

    def judge(self, digest: str, *, accepted: bool) -> None:
        """Whether to vote for the candidate with this digest; does not wait."""
        self.hearing.judged(digest)
        self._link.submit(Judge(digest, accepted))

    def adopt(self, state: StateName) -> Adopted:
        """Take over the newer state that the node has fetched; ``state`` is the trainer's.

        Raises:
            NodeError: the node is being started again, or must be.
        """
        self.hearing.catching_up = UP_TO_DATE
        return self.ask(Adopt(state))

    def refresh(self) -> View:
        """Read the records of all peers now.

        Raises:
            NodeError: as in `adopt`.
        """
        self.hearing.view = view = self.ask(ReadView())
        return view

    def ledger(self) -> Ledger:
        """Read who has given what, by the chain of rounds.

        Raises:
            NodeError: nobody tells it; or as in `adopt`.
        """
        return self.ask(ReadLedger())

    def replace_process(self, command: str) -> None:
        """Have the supervisor replace a process that does not answer ``command``."""
        logger.warning("the node gives no answer (%s)", command)
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

    def _watch(self) -> None:
        """Runs in a thread of its own until the node is closed."""
        while not self._closing.wait(CHECK_SECONDS):
            self._checks += 1
            if self._round is not None:
                ended, late = self._round
                if self._checks > late and not ended.done():
                    self.replace_process("EndRound")
            reason = self._link.ailment()
            if reason:
                self.restarts[reason] += 1
                logger.warning("the node process %s; it is restarted, and training goes on", ENDINGS[reason])
                self._link.kill()
                self._restart(ENDINGS[reason])

    def _restart(self, ending: str) -> None:
        attempt, same_ports = 0, True
        while not self._closing.wait(RESTART_DELAYS[min(attempt, len(RESTART_DELAYS) - 1)]):
            attempt += 1
            try:
                link, joined = self._rejoin(ending, same_ports=same_ports)
            except (DuptError, OSError, RuntimeError) as error:  # a full disk, no more processes, no thread
                logger.warning("the node could not be restarted: %s; trying again", error)
                # Whoever was to take any free port may have got one that another program has now.
                same_ports = same_ports and "host_maddrs" not in getattr(error, "settings", ())
                continue
            self._link = link
            # The last process may have progressed further than it could report; adopting will show.
            self.hearing.catching_up = CatchingUp(fetching=False, newer=joined.state)
            with self._remembering:  # who has said something until now may have told the last process
                link.submit(self._wanted)
                link.submit(Publish(self._published, now=True))
            return

    def _rejoin(self, ending: str, *, same_ports: bool) -> tuple[Link, Joined]:
        """Bring a new process to where the last one was, which came to this ``ending``."""
        assert self._membership is not None
        settings, before = self._membership
        ports = before.host_maddrs if same_ports else settings.host_maddrs
        left = Predecessor(before.layout, ending)
        join = Join(replace(settings, host_maddrs=ports), self._memory_fd, left)
        with contextlib.ExitStack() as failed:
            link = Link(self._memory_fd, self.hearing.hear)
            failed.callback(link.kill)
            if self._log is not None:
                link.submit(LogTo(self._log))
            joined = _while_open(self._closing, link, link.submit(join))
            failed.pop_all()
        self._membership = settings, joined
        return link, joined


def _while_open(closing: threading.Event, link: Link, future: Future[Joined]) -> Joined:
    """The future's result, as long as its ``link`` is well; but do not hold up the end of the peer."""
    for _ in range(int(REJOIN_SECONDS / CHECK_SECONDS)):
        with contextlib.suppress(TimeoutError):
            return future.result(CHECK_SECONDS)
        if closing.is_set():
            raise NodeError("this peer is being ended")
        if ailment := link.ailment():
            raise NodeError(f"it {ENDINGS[ailment]}")
    raise NodeError(f"it did not join the swarm within {REJOIN_SECONDS:.0f} s")
