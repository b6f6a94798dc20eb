"""`CollaborativeOptimizer`: inner steps on this machine, and rounds with the swarm between them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn, optim

from dupt_swarm.errors import CheckpointError, ManifestError, UsageError
from dupt_swarm.learning.device import free_memory
from dupt_swarm.learning.inner.unigrams import Unigrams
from dupt_swarm.learning.strategies import Strategy, build_strategy
from dupt_swarm.manifest.layout import layout_of
from dupt_swarm.manifest.learning_rate import inner_learning_rate, scheduled_learning_rate, update_number
from dupt_swarm.node.messages import Lost, RoundResult
from dupt_swarm.node.progress import RoundProgress
from dupt_swarm.node.record import SPEED_MAX, RecordUpdate
from dupt_swarm.optimizer.contribution import Contribution, Order
from dupt_swarm.optimizer.costs import RoundCosts
from dupt_swarm.optimizer.due import Due
from dupt_swarm.optimizer.feedback import ErrorFeedback
from dupt_swarm.replica.codec import build_codec
from dupt_swarm.replica.storage import load_anchor
from dupt_swarm.speed import Speed
from dupt_swarm.swarm import Swarm

PUBLISH_SECONDS = 1.0
LOOK_SECONDS = 0.05

logger = logging.getLogger(__name__)

State = tuple[str, Tensor]
"""Digest and anchor of a replica state: fp32 ``[numel]`` on the CPU, not to be written."""


Judge = Callable[[int, State, State], bool]
"""Whether a round of so many tokens trained on here may lead from the first state to the second."""


class CollaborativeOptimizer(optim.Optimizer):
    """A `torch.optim.Optimizer` whose steps are inner steps, and which ends rounds when it is time.

    What a round costs is done beside training, in a thread of its own: the thread that trains only copies
    the parameters when the round is to be ended, and moves them when it has ended.

    Attributes:
        last_round: how the last round that this oracle took part in ended.
        rounds_done: how many ended well with it, by this object.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        swarm: Swarm,
        matrices: Iterable[nn.Parameter] | None = None,
        judge: Judge | None = None,
        unigrams: Unigrams | None = None,
        *,
        offload: bool = False,
    ) -> None:
        """Set ``parameters`` to the swarm's anchor.

        Args:
            parameters: all parameters of the model, in the order that the swarm's first peer gave.
            swarm: an open membership as oracle.
            matrices: those of the parameters that are matrices of the model's blocks (`block_matrices`), for
                a manifest with Muon; None: they are guessed from the order of the parameters.
            judge: called in the thread that trains, between micro-batches, before this peer accepts the
                state that a round leads to; None: it accepts what it has computed.
            unigrams: of the model (`unigrams_of`), for a manifest in which it says how common tokens are;
                None: embeddings have second moments of their own.
            offload: have the inner optimizer's moments in the main memory, and not on a GPU.

        Raises:
            UsageError: they are groups, or have names.
            ManifestError: they do not have the shapes of the swarm's parameters.
        """
        own = list(parameters)
        if not all(isinstance(each, Tensor) for each in own):
            raise UsageError("all parameters are alike here: give model.parameters(), no groups and no names")
        if layout_of(own) != swarm.layout:
            raise ManifestError(
                "the model's parameters do not have the shapes of the swarm's; "
                "build it from swarm.manifest.model"
            )
        super().__init__(own, {})
        self._swarm, self._manifest = swarm, swarm.manifest
        self._strategy = build_strategy(
            own, swarm.manifest, swarm.anchor, matrices, unigrams, offload=offload
        )
        self._contribution, self._judge = Contribution(), judge
        encoding = swarm.manifest.encoding
        self._feedback = ErrorFeedback(build_codec(encoding.contribution, encoding), encoding.feedback)
        self._ending = Ending(swarm, self._strategy, self._feedback, judged=judge is not None)
        self._result: Future[RoundResult] | None = None  # of the round that is being ended
        self._device = own[0].device
        self._speed, self._costs = Speed(), RoundCosts(self._device)
        self.last_round: RoundResult | None = None
        self.rounds_done = 0
        self._published = 0.0
        self._due = Due(swarm)
        swarm.publish(RecordUpdate(state="training"), now=True)

    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None, *, tokens: int
    ) -> None:
        """One inner step with the gradients that the parameters have; ends the round when it is time.

        Args:
            closure: must be None; it is there because `torch.optim.Optimizer` has it.
            tokens: how many tokens the gradients are the mean over.
        """
        assert closure is None, "closures are not supported"
        self._strategy.inner_step(tokens, inner_learning_rate(self._manifest, self.update))
        self._contribution = self._contribution.train(tokens)
        self._speed.add(tokens)
        self._costs.train()
        self._attend()

    def attend(self) -> None:
        """Between the micro-batches of an inner step: end the round if it is time, or take over how it ended.

        So an oracle whose steps take long is not missing when the others meet. It contributes the steps that
        are complete. The gradients of the one under way stay as they are, and come to parameters that have
        moved meanwhile, as whole steps do when rounds overlap; where they do not, this does nothing.
        """
        if self._manifest.rounds.overlap and self.round_tokens:
            self._attend()

    @property
    def contributed_tokens(self) -> int:
        """Tokens of this oracle that went into the swarm's state."""
        return self._contribution.contributed_tokens

    @property
    def round_tokens(self) -> int:
        """Tokens since the last contribution that went into it."""
        return self._contribution.tokens

    @property
    def failed_rounds(self) -> int:
        """How many rounds did not succeed for this oracle."""
        return self._contribution.failed_rounds

    @property
    def update(self) -> float:
        """The number of the update for the schedule: complete rounds, and the part of this one."""
        return update_number(self._manifest, self._swarm.state.round, self.round_tokens)

    @property
    def learning_rate(self) -> float:
        """What the schedule gives now: of the inner steps, or of the outer one with `gradient`."""
        return scheduled_learning_rate(self._manifest, self.update)

    @property
    def tokens_per_second(self) -> float:
        """Own speed over the last seconds."""
        return self._speed.per_second

    @property
    def averaging(self) -> bool:
        """Whether a round is being ended at this moment."""
        return self._contribution.sent

    @property
    def progress(self) -> RoundProgress:
        """How full this round is."""
        return self._due.progress(self._contribution)

    def follow(self) -> bool:
        """Take over the swarm's newer state, if there is one; between steps, and while paused."""
        if self._swarm.catching_up.newer is None:
            return False
        before = self._swarm.state
        with self._costs.waiting():
            adopted = self._swarm.adopt()
            lost, origin = _read_origin(adopted.lost)
        most = int(self._manifest.weight_limit(adopted.state.round))
        outcome = self._contribution.meet(before, replace(adopted, lost=lost), self._swarm.peer_id, most)
        self._apply(outcome, lost, origin)
        if adopted.state != before:
            self._begin_round()
        return True

    def pause(self) -> None:
        """Announce a pause, after settling any round under way, and leave the device to others."""
        self.settle()
        if self._device.type != "cpu":
            self._strategy.move_to(torch.device("cpu"))
            free_memory(self._device)
        self._speed.restart()
        self._costs.pause()
        self._publish(now=True)
        self._swarm.publish(RecordUpdate(state="paused"), now=True)

    def take_device(self) -> None:
        """After a pause, have parameters and moments on the device again."""
        if self._device.type != "cpu":
            self._strategy.move_to(self._device)

    def resume(self) -> None:
        """Steps come again."""
        self.take_device()
        self._speed.restart()
        self._due.resume()
        self._swarm.publish(RecordUpdate(state="training"), now=True)

    def settle(self) -> None:
        """Wait until no round is being ended, so that the state may be saved."""
        if self._result is None:
            return
        with self._costs.waiting():
            while not wait((self._result,), LOOK_SECONDS).done:
                self._judge_candidate()
        ended, self._result = self._result, None
        self.last_round = result = ended.result()
        self._swarm.state = result.state or self._swarm.state
        self._apply(self._contribution.end(result, time.monotonic(), self._due.seconds))
        if result.state is not None:
            self.rounds_done += 1
            self._begin_round()
        elif result.tried:
            logger.warning("round %d failed (%s)", self._swarm.state.round + 1, result.reason)

    def interrupt(self) -> None:
        """Give up the round that is being ended, from another thread; the contribution is kept."""
        self._ending.interrupt()

    def state_dict(self) -> dict[str, Any]:
        """What is needed, beside the replica state, to go on as if never stopped; `settle` first."""
        assert self._result is None
        return {
            "strategy": self._strategy.state_dict(),
            "feedback": self._feedback.state_dict(),
            **self._contribution.saved(),
        }

    def load_state_dict(self, state_dict: dict[str, Any], *, doubtful: bool = False) -> None:
        """Go on from ``state_dict``; the swarm must hold the replica state saved with it.

        Args:
            state_dict: from `state_dict`.
            doubtful: whether this oracle trained on after it was saved. What it had done by then may
                be in a newer state of the swarm already, so it is given up when there is one.
        """
        self._strategy.load_state_dict(state_dict["strategy"])
        self._feedback.load_state_dict(state_dict["feedback"])
        self._contribution = Contribution.restored(state_dict, doubtful=doubtful)

    def _attend(self) -> None:
        self._publish()
        if self._result is not None and self._result.done():
            self.settle()
        elif self._result is not None:
            if self._swarm.candidate is not None:
                with self._costs.holding_up():
                    self._judge_candidate()
        elif not self.follow() and self._due.now(self._contribution):
            self._end_round()

    def _judge_candidate(self) -> None:
        """If the round under way leads to a state now, say whether to accept it."""
        candidate, swarm = self._swarm.candidate, self._swarm
        if self._judge is not None and candidate is not None:
            before = swarm.state.digest, swarm.anchor
            swarm.judge(candidate[0], accepted=self._judge(self._contribution.sent_tokens, before, candidate))

    def _end_round(self) -> None:
        alone = not self._due.companions(self._contribution)
        outcome = self._contribution.send()
        self._apply(outcome)
        anew = outcome[1] is Order.CONTRIBUTE
        self._result = self._ending.begin(self._contribution.sent_tokens, anew=anew)
        # Alone, the outer step takes no time, and what follows should not depend on the clock.
        if alone or not self._manifest.rounds.overlap:
            self.settle()

    def _apply(
        self, outcome: tuple[Contribution, Order], lost: Lost | None = None, origin: Tensor | None = None
    ) -> None:
        """Apply the contribution's outcome to the parameters and to error feedback.

        Args:
            outcome: the contribution as it is now, and what to do about it.
            lost: what was lost with a branch that was left, if one was.
            origin: the anchor from which that was learnt: fp32 ``[numel]``.
        """
        before, (self._contribution, order) = self._contribution, outcome
        with self._costs.holding_up():
            match order:
                case Order.CONTRIBUTE:
                    self._strategy.mark()
                case Order.ACCEPT:
                    self._feedback.commit()
                    self._strategy.accept(self._swarm.anchor)
                case Order.REBASE:
                    self._feedback.drop()
                    self._strategy.rebase(self._swarm.anchor)
                case Order.BRING_BACK:
                    assert lost is not None and origin is not None
                    self._feedback.drop()
                    again = self._contribution.tokens - before.tokens
                    logger.warning(
                        "the swarm has left our branch: of %d tokens there we bring %d again",
                        *(lost.since, again),
                    )
                    self._strategy.bring_back(self._swarm.anchor, origin, again / lost.since)
                case Order.DISCARD:
                    self._feedback.forget()
                    self._strategy.discard()
                    self._strategy.rebase(self._swarm.anchor)
        if order is Order.DISCARD:
            self._costs.give_up()

    def _begin_round(self) -> None:
        self._due.begin()
        self._costs.end_round()
        self._publish(now=True)

    def _publish(self, now: bool = False) -> None:
        if not now and time.monotonic() - self._published < PUBLISH_SECONDS:
            return
        self._published = time.monotonic()
        progress = RecordUpdate(
            round_tokens=self.round_tokens,
            tokens_total=self.contributed_tokens,
            tokens_per_second=min(self._speed.per_second, SPEED_MAX),
            failed_rounds=self.failed_rounds,
        )
        self._swarm.publish(progress | self._costs.update(), now=now)


def _read_origin(lost: Lost | None) -> tuple[Lost | None, Tensor | None]:
    """What was ``lost``, and the anchor from which it was learnt; where that cannot be read, without it."""
    if lost is None or lost.origin is None:
        return lost, None
    try:
        return lost, load_anchor(lost.origin)
    except CheckpointError as error:
        logger.warning("what a branch has learnt that was left is lost: %s", error)
        return replace(lost, origin=None), None


class Ending:
    """Ends rounds beside training, one at a time: encodes what is contributed, and hands it to the node."""

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
        self._interrupted = threading.Event()

    def begin(self, tokens: int, *, anew: bool) -> Future[RoundResult]:
        """End a round with what was marked; if not ``anew``, with the same as before."""
        self._interrupted.clear()
        return self._beside.submit(self._send, tokens, anew)

    def interrupt(self) -> None:
        """Give up the round that is being ended, from another thread; the contribution is kept."""
        self._interrupted.set()
        self._swarm.cancel_average()

    def _send(self, tokens: int, anew: bool) -> RoundResult:
        if anew:
            contribution = self._feedback.encode(self._strategy.contribute())
            self._sent_bytes = len(contribution)
            self._swarm.contribution[: self._sent_bytes] = contribution
        result = self._swarm.average(self._sent_bytes, tokens, judged=self._judged)
        if self._interrupted.is_set():  # while it was encoded
            self._swarm.cancel_average()
        return result.result()
