"""An oracle that trains for some rounds at a time, as it is told, in a thread of this process."""

from __future__ import annotations

import sys
import threading

import torch

from dupt_swarm.learning.device import wait_for
from dupt_swarm.oracle.oracle import Oracle
from dupt_swarm.oracle.status import Status


class GatedOracle:
    """`Oracle.run`, held wherever a round has ended until it may go on.

    Attributes:
        trained: tokens of all inner steps so far.
        status: the last that it has reported.
    """

    def __init__(self, oracle: Oracle, device: torch.device) -> None:
        """It begins with `go_on`."""
        self.oracle, self._device = oracle, device
        self.trained = 0
        self.status: Status | None = None
        self._ended: object = None
        self._left, self._held, self._may = 0, threading.Event(), threading.Event()
        oracle.observe(self._count)
        self._thread = threading.Thread(target=oracle.run, args=(self._report,), daemon=True)

    def go_on(self, rounds: int) -> int:
        """Train until so many more rounds have ended well, and say how many tokens that took."""
        before = self.trained
        self._left = rounds
        self._held.clear()
        self._may.set()
        if not self._thread.is_alive():
            self._thread.start()
        while not self._held.wait(1.0):
            if not self._thread.is_alive():
                raise RuntimeError("the oracle has ended; see its message above")
        wait_for(self._device)
        return self.trained - before

    def end(self) -> None:
        """Stop it, with all that it does then."""
        self._left = sys.maxsize
        self._may.set()
        self.oracle.stop()
        self._thread.join(60)

    def _count(self, tokens: int, _: object) -> None:
        self.trained += tokens

    def _report(self, status: Status) -> None:
        self.status = status
        if status.last_round is None or status.last_round is self._ended:
            return
        self._ended = status.last_round
        self._left -= status.last_round.state is not None
        if self._left <= 0:
            self._may.clear()
            self._held.set()
            self._may.wait()
