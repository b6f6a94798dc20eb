"""The end of a round beside training: a contribution is encoded, and handed to the node."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import torch

from dupt_swarm.learning.strategies import Strategy
from dupt_swarm.node.messages import RoundResult
from dupt_swarm.optimizer.feedback import ErrorFeedback
from dupt_swarm.swarm import Averaging, Swarm

LOOK_SECONDS = 0.05


class Ending:
    """Ends rounds, one at a time, in a thread of its own."""

    def __init__(self, swarm: Swarm, strategy: Strategy, feedback: ErrorFeedback, *, judged: bool) -> None:
        """Begin.

        Args:
            swarm: the node's side.
            strategy: has what was contributed.
            feedback: encodes it.
            judged: whether this oracle judges the states that rounds lead to.
        """
        self._swarm, self._strategy = swarm, strategy
        self._feedback, self._judged = feedback, judged
        self._sent_bytes = 0
        # One thread, also within PyTorch: those of the inner steps need the other cores.
        self._beside = ThreadPoolExecutor(1, "round", initializer=torch.set_num_threads, initargs=(1,))
        self._under_way: Future[Averaging] | None = None
        self._interrupted = threading.Event()

    @property
    def under_way(self) -> bool:
        """Whether a round is being ended."""
        return self._under_way is not None

    @property
    def done(self) -> bool:
        """Whether `result` need not wait."""
        return self._under_way is not None and self._under_way.done()

    def begin(self, tokens: int, companions: tuple[str, ...], *, anew: bool) -> None:
        """End a round with what was marked; if not ``anew``, with the same as before."""
        self._interrupted.clear()
        self._under_way = self._beside.submit(self._send, tokens, companions, anew)

    def result(self, meanwhile: Callable[[], None]) -> RoundResult:
        """How it went; calls ``meanwhile`` again and again until that is known."""
        assert self._under_way is not None
        while not wait((self._under_way,), LOOK_SECONDS).done:
            meanwhile()
        ended, self._under_way = self._under_way, None
        return ended.result().result()

    def interrupt(self) -> None:
        """Give up the round that is being ended, from another thread; the contribution is kept."""
        self._interrupted.set()
        self._swarm.cancel_average()

    def _send(self, tokens: int, companions: tuple[str, ...], anew: bool) -> Averaging:
        if anew:
            contribution = self._feedback.encode(self._strategy.contribute())
            self._sent_bytes = len(contribution)
            self._swarm.contribution[: self._sent_bytes] = contribution
        averaging = self._swarm.average(self._sent_bytes, tokens, companions, judged=self._judged)
        if self._interrupted.is_set():  # while it was encoded
            self._swarm.cancel_average()
        averaging.wait()
        return averaging
