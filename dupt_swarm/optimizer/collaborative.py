"""`CollaborativeOptimizer`: inner steps on this machine, and rounds with the swarm between them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from torch import nn, optim

from dupt_swarm.errors import ManifestError, NodeError
from dupt_swarm.learning.strategies import build_strategy
from dupt_swarm.node.messages import RoundResult, StateName
from dupt_swarm.node.progress import RoundProgress, round_progress
from dupt_swarm.node.view import Peer
from dupt_swarm.swarm import Swarm
from dupt_swarm.timing.speed import Speed

PUBLISH_SECONDS = 1.0
RETRY_SECONDS = 2.5
ADOPT_SECONDS = 0.5
# Rounds shorter than this would outrun those who are about to come in.
CATCH_UP_SECONDS = 5.0
# The node found that the swarm is further: its state is adopted first.
NOT_TRIED = ("stale", "behind")
ANSWER_SECONDS = 30.0  # beyond the round's own time limits

logger = logging.getLogger(__name__)


class CollaborativeOptimizer(optim.Optimizer):
    """A `torch.optim.Optimizer` whose steps are inner steps, and which ends rounds when it is time.

    Attributes:
        tokens_total: tokens of this oracle that went into the swarm's state.
        round_tokens: tokens since the last contribution.
        last_round: how the last round that this oracle took part in ended.
        failed_rounds: how many did not succeed for this oracle.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], swarm: Swarm) -> None:
        """Set ``parameters`` to the swarm's anchor.

        Args:
            parameters: all parameters of the model, in the order that the swarm's first peer gave.
            swarm: an open membership as oracle.

        Raises:
            ManifestError: they do not have the shapes of the swarm's parameters.
        """
        own = list(parameters)
        layout = tuple(tuple(parameter.shape) for parameter in own)
        if layout != swarm.layout:
            raise ManifestError(
                "the model's parameters do not have the shapes of the swarm's; "
                "build it from swarm.manifest.model"
            )
        super().__init__(own, {})
        self._swarm, self._manifest = swarm, swarm.manifest
        self._strategy = build_strategy(own, swarm.manifest, swarm.anchor)
        self._pending: Future[RoundResult] | None = None
        self._sent_tokens = 0
        self._retry_at = 0.0
        self._mates: tuple[str, ...] = ()
        self._round_started = time.monotonic()
        self._round_began = time.time()
        self._published = 0.0
        self._speed = Speed()
        self.tokens_total = self.round_tokens = self.failed_rounds = 0
        self.last_round: RoundResult | None = None
        self._failed: list[RoundResult] = []
        self._doubtful = False
        swarm.node.publish(now=True, state="training")

    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None, *, tokens: int
    ) -> None:
        """One inner step with the gradients that the parameters have; ends the round when it is time.

        Args:
            closure: must be None; it is there because `torch.optim.Optimizer` has it.
            tokens: how many tokens the gradients are the mean over.
        """
        assert closure is None, "closures are not supported"
        self._strategy.inner_step(tokens, self._manifest.schedule.factor(self.update))
        self.round_tokens += tokens
        self._speed.add(tokens)
        self._publish()
        if self._pending is not None:
            if self._pending.done():
                self._finish_round()
        elif not self.follow() and self._is_due():
            self._end_round()

    @property
    def update(self) -> float:
        """The number of the update for the schedule: complete rounds, and the part of this one."""
        per_round = self._manifest.updates_per_round
        done = min(1.0, self.round_tokens / self._manifest.rounds.tokens_per_round)
        return (self._swarm.state.round + done) * per_round

    @property
    def learning_rate(self) -> float:
        """What the schedule gives now: of the inner steps, or of the outer one with `gradient`."""
        manifest = self._manifest
        gradient = manifest.rounds.strategy == "gradient"
        peak = manifest.outer.learning_rate if gradient else manifest.inner.learning_rate
        return peak * manifest.schedule.factor(self.update)

    @property
    def tokens_per_second(self) -> float:
        """Own speed over the last seconds."""
        return self._speed.per_second

    @property
    def averaging(self) -> bool:
        """Whether a round is being ended at this moment."""
        return self._pending is not None

    @property
    def progress(self) -> RoundProgress:
        """How full this round is."""
        return round_progress(self._manifest, self._companions(), self.round_tokens, time.time())

    def follow(self) -> bool:
        """Take over the swarm's newer state, if there is one; between steps, and while paused."""
        if self._swarm.node.catching_up.newer is None:
            return False
        self._adopt()
        return True

    def pause(self) -> None:
        """Tell the others that no steps come for a while; settles first."""
        self.settle()
        self._speed.restart()
        self._publish(now=True)
        self._swarm.node.publish(now=True, state="paused")

    def resume(self) -> None:
        """Steps come again."""
        self._speed.restart()
        self._round_started = time.monotonic()  # what was rested does not make the round due
        self._swarm.node.publish(now=True, state="training")

    def settle(self) -> None:
        """Wait until no round is being ended, so that the state may be saved."""
        if self._pending is not None:
            self._finish_round()

    def interrupt(self) -> None:
        """Give up the round that is being ended, from another thread; the contribution is kept."""
        self._swarm.node.cancel_average()

    def state_dict(self) -> dict[str, Any]:
        """What is needed, beside the replica state, to go on as if never stopped; `settle` first."""
        assert self._pending is None
        return {
            "strategy": self._strategy.state_dict(),
            "round_tokens": self.round_tokens,
            "tokens_total": self.tokens_total,
            "failed_rounds": self.failed_rounds,
            "doubtful": bool(self._failed),
        }

    def load_state_dict(self, state_dict: dict[str, Any], *, doubtful: bool = False) -> None:
        """Go on from ``state_dict``; the swarm must hold the replica state saved with it.

        Args:
            state_dict: from `state_dict`.
            doubtful: whether this oracle trained on after it was saved. What it had done by then may
                be in a newer state of the swarm already, so it is given up when there is one.
        """
        self._doubtful = doubtful or state_dict["doubtful"]
        self._strategy.load_state_dict(state_dict["strategy"])
        self.round_tokens = state_dict["round_tokens"]
        self.tokens_total = state_dict["tokens_total"]
        self.failed_rounds = state_dict["failed_rounds"]

    def _companions(self) -> tuple[Peer, ...]:
        """The other live oracles of this round.

        Records lag a little behind, so those that ended the last round with us still count as here.
        """
        view, state = self._swarm.view, self._swarm.state
        companions = view.companions(state.digest, self._swarm.peer_id)
        mates = set(self._mates).difference(peer.peer_id for peer in companions)
        return (*companions, *view.arriving(mates, state.round, state.digest, self._round_began))

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now < self._retry_at:
            return False
        elapsed = now - self._round_started
        known = {*self._mates, self._swarm.peer_id}  # our own record may lag too
        if elapsed < CATCH_UP_SECONDS and self._swarm.view.behind(self._swarm.state.tokens_total, known):
            return False
        if elapsed >= self._manifest.rounds.max_round_seconds:
            return True
        # With a newer state on the way, this round is over for the others.
        return self.progress.complete and not self._swarm.node.catching_up.fetching

    def _end_round(self) -> None:
        companions = tuple(peer.peer_id for peer in self._companions())
        # What may have arrived in spite of a failure is sent again as it was: then it is known what arrived.
        if not self._failed:
            self._strategy.contribute(self._swarm.contribution)
            self._sent_tokens = self.round_tokens
        self._pending = self._swarm.node.average(self._swarm.state, self._sent_tokens, companions)
        # Alone, the outer step takes no time, and what follows should not depend on the clock.
        if not companions or not self._manifest.rounds.overlap:
            self._finish_round()

    def _finish_round(self) -> None:
        assert self._pending is not None
        try:
            result = self._pending.result(self._patience)
        except NodeError:
            result = self._swarm.node.lost_round(self._sent_tokens)
        except TimeoutError:
            self._swarm.node.replace_process("average")
            result = self._swarm.node.lost_round(self._sent_tokens)
        self._pending = None
        self.last_round = result
        if result.state is None:
            self._keep_contribution(result)
        else:
            self._advance(result.state, result.mates)

    @property
    def _patience(self) -> float:
        """Seconds that the end of a round may take."""
        rounds = self._manifest.rounds
        return 2 * rounds.matchmaking_seconds + rounds.allreduce_seconds + ANSWER_SECONDS

    def _advance(self, state: StateName, mates: tuple[str, ...]) -> None:
        """The swarm is at ``state``, and what we sent is in it."""
        self._strategy.accept(self._swarm.anchor)
        self._swarm.state, self._mates = state, mates
        self.tokens_total += self._sent_tokens
        self.round_tokens -= self._sent_tokens
        self._begin_round()

    def _keep_contribution(self, result: RoundResult) -> None:
        """A failed round: what was sent is still in the next contribution, unless it is not finite."""
        if result.reason in NOT_TRIED:
            self._retry_at = time.monotonic() + ADOPT_SECONDS
            return
        self.failed_rounds += 1
        if result.tokens:
            self._failed.append(result)
        # Give the others' records time to show whether the round succeeded without us.
        self._retry_at = time.monotonic() + RETRY_SECONDS
        logger.warning("round %d failed (%s)", self._swarm.state.round, result.reason)
        if result.reason in ("not_finite", "outer_overflow"):
            self._give_up_progress()

    def _give_up_progress(self) -> None:
        self._strategy.discard()
        self._failed.clear()
        self.round_tokens = 0

    def _adopt(self) -> None:
        """The swarm went on without us: take its state, and carry our progress over to it."""
        before = self._swarm.state
        try:
            state = self._swarm.node.adopt()
        except NodeError:
            return  # the node starts again, and then there is a state to adopt
        if state == before:
            return
        for failed in self._failed:
            if state == StateName(before.round + 1, before.tokens_total + failed.tokens, state.digest):
                # The average that did not reach us whole reached others, with all contributions in it.
                self._advance(state, failed.mates)
                return
        self._swarm.state, self._mates = state, ()
        if self._doubtful:
            self._give_up_progress()
        self._strategy.rebase(self._swarm.anchor)
        self._begin_round()

    def _begin_round(self) -> None:
        self._failed, self._doubtful = [], False
        self._round_started, self._round_began = time.monotonic(), time.time()
        self._publish(now=True)

    def _publish(self, now: bool = False) -> None:
        if not now and time.monotonic() - self._published < PUBLISH_SECONDS:
            return
        self._published = time.monotonic()
        self._swarm.node.publish(
            now=now,
            round_tokens=self.round_tokens,
            tokens_total=self.tokens_total,
            tokens_per_second=self._speed.per_second,
            failed_rounds=self.failed_rounds,
        )
