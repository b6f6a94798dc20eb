"""The life of a contribution: fresh, sent, perhaps uncertain, and then in the swarm's state or given up.

Pure arithmetic on plain values: no torch, no network, and no clock of its own. Each event gives the
contribution that follows and what the training strategy has to do about it::

              send                     succeed
    FRESH ───────────► SENT ─────────────────────────► FRESH   (it is in the state)
      ▲   nothing left │  ▲
      ├────────────────┤  │ send, as it was
      │                │  │
      │    may have    ▼  │             meet: the state has it
      │     arrived  UNCERTAIN ──────────────────────► FRESH   (it is in the state)
      │                │
      └────────────────┘ meet: the swarm went on without it; our progress is kept

An average that is not finite, and a doubtful contribution (see `restored`) that meets a newer state,
are given up. What a branch has learnt that is left for another one is brought again, by each of its oracles
once and for no more tokens than a contribution may stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from dupt_swarm.node.messages import Adopted, Lost, RoundResult, StateName
from dupt_swarm.node.reasons import Failure, Fate

# Give the others' records time to show whether the round succeeded without us.
RETRY_SECONDS = 2.5
ADOPT_SECONDS = 0.5


class Order(Enum):
    """What the training strategy has to do after an event; see `Strategy`."""

    NOTHING = "go on as you are"
    CONTRIBUTE = "what is done so far is the contribution"
    ACCEPT = "go on from the anchor; what was sent is in it"
    REBASE = "go on from the anchor; nothing of ours is in it"
    BRING_BACK = "the same, and what was lost with the state before is to be contributed again"
    DISCARD = "go on from the anchor and give up all progress"


@dataclass(frozen=True)
class Attempt:
    """A round that failed for us, although it may have succeeded for others.

    Attributes:
        tokens: those that its average stands for.
        mates: ids of the other peers of its group.
    """

    tokens: int
    mates: tuple[str, ...]


@dataclass(frozen=True)
class Contribution:
    """One oracle's progress since the anchor, and what has become of it.

    Attributes:
        sent: whether a round is being ended with it.
        tokens: all that were trained on since the last contribution, what was sent included.
        sent_tokens: those that what was last sent was trained on; of no meaning while it is fresh.
        attempts: the failed rounds that it may be in all the same; while there are any, it is uncertain.
        doubtful: whether it may be in a newer state for reasons that nobody remembers.
        retry_at: no round is ended before; the clock is the caller's.
        mates: ids of the peers whose contributions went into the present state with ours.
        contributed_tokens: those that its contributions stand for in the swarm's state, ever.
        failed_rounds: how many rounds did not succeed for this oracle, ever.
    """

    sent: bool = False
    tokens: int = 0
    sent_tokens: int = 0
    attempts: tuple[Attempt, ...] = ()
    doubtful: bool = False
    retry_at: float = 0.0
    mates: tuple[str, ...] = ()
    contributed_tokens: int = 0
    failed_rounds: int = 0

    @classmethod
    def restored(cls, saved: Mapping[str, Any], *, doubtful: bool) -> Contribution:
        """One that was `saved`.

        ``doubtful``: the oracle went on after it was saved. So it may be in a newer state of the swarm,
        and is given up when there is one.
        """
        return cls(
            tokens=saved["round_tokens"],
            contributed_tokens=saved["tokens_total"],
            failed_rounds=saved["failed_rounds"],
            doubtful=doubtful or saved["doubtful"],
        )

    def saved(self) -> dict[str, int | bool]:
        """What a checkpoint keeps: not which rounds it may be in, but that it may be in one."""
        assert not self.sent
        return {
            "round_tokens": self.tokens,
            "tokens_total": self.contributed_tokens,
            "failed_rounds": self.failed_rounds,
            "doubtful": self.doubtful or bool(self.attempts),
        }

    def train(self, tokens: int) -> Contribution:
        """An inner step on ``tokens`` more."""
        return replace(self, tokens=self.tokens + tokens)

    def send(self) -> tuple[Contribution, Order]:
        """A round is to be ended with it.

        What may have arrived in spite of a failure is sent again as it was: then it is known what arrived.
        """
        assert not self.sent
        if self.attempts:
            return replace(self, sent=True), Order.NOTHING
        return replace(self, sent=True, sent_tokens=self.tokens), Order.CONTRIBUTE

    def end(self, result: RoundResult, now: float, round_seconds: float = 0.0) -> tuple[Contribution, Order]:
        """The round that it was sent to has ended, well or not, at ``now``, ``round_seconds`` after it began.

        One that was rejected is tried again when as much has been trained as before: the same would be again.
        """
        assert self.sent
        if result.state is not None:
            return self._accepted(result.mates, result.own)
        fate = (result.reason or Failure.OTHER).fate
        back = replace(self, sent=False)
        if fate is Fate.NOT_TRIED:
            return replace(back, retry_at=now + ADOPT_SECONDS), Order.NOTHING
        failed = replace(back, retry_at=now + RETRY_SECONDS, failed_rounds=self.failed_rounds + 1)
        if fate is Fate.GIVEN_UP:
            return failed._given_up()
        if fate is Fate.MADE_ANEW:
            later = now + max(RETRY_SECONDS, round_seconds)
            return replace(failed._fresh(), doubtful=self.doubtful, retry_at=later), Order.NOTHING
        if not result.tokens:
            return failed, Order.NOTHING  # there was no group that it could have been sent to
        attempts = (*self.attempts, Attempt(result.tokens, result.mates))
        return replace(failed, attempts=attempts), Order.NOTHING

    def meet(self, before: StateName, adopted: Adopted, me: str, most: int) -> tuple[Contribution, Order]:
        """The swarm has gone on from state ``before``, and not in a round of ours.

        Args:
            before: the state that we are at.
            adopted: what it has gone on to.
            me: our peer id.
            most: for so many tokens may a contribution stand.
        """
        assert not self.sent
        after, counted = adopted.state, adopted.counted
        if after == before:
            return self, Order.NOTHING
        if adopted.lost is not None:
            return self._parted(adopted.lost, None if counted is None else counted.get(me, 0), most)
        if counted is not None and me not in counted:
            return replace(self, mates=())._fresh(), Order.REBASE
        if counted is None or self.doubtful:
            return self._guess(before, after)
        mates = tuple(sorted(counted.keys() - {me}))
        if self.attempts:
            return self._accepted(mates, counted[me])
        contributed = self.contributed_tokens + counted[me]
        return replace(self, mates=mates, contributed_tokens=contributed)._given_up()

    def _parted(self, lost: Lost, kept: int | None, most: int) -> tuple[Contribution, Order]:
        """What we had contributed is in a branch that was left; the other one has tokens ``kept`` of ours."""
        contributed = max(0, self.contributed_tokens - lost.tokens) + (kept or 0)
        after = replace(self, mates=(), contributed_tokens=contributed)._fresh()
        if kept is None or kept > lost.both:
            return after, Order.REBASE  # what the other branch alone has of ours may be in our progress too
        again = min(lost.since, max(0, most - self.tokens))
        if lost.origin is None or not again:
            return after, Order.REBASE
        return replace(after, tokens=self.tokens + again), Order.BRING_BACK

    def _guess(self, before: StateName, after: StateName) -> tuple[Contribution, Order]:
        """Nobody says whether ours is in the state ``after``; the number of tokens may."""
        for attempt in self.attempts:
            if after == StateName(before.round + 1, before.swarm_tokens + attempt.tokens, after.digest):
                # The average that did not reach us whole reached others, with all contributions in it.
                return self._accepted(attempt.mates, self.sent_tokens)
        alone = replace(self, mates=())
        if self.doubtful:
            return alone._given_up()
        return alone._fresh(), Order.REBASE

    def _accepted(self, mates: tuple[str, ...], own: int) -> tuple[Contribution, Order]:
        rest = replace(
            self,
            tokens=self.tokens - self.sent_tokens,
            contributed_tokens=self.contributed_tokens + own,
            mates=mates,
        )
        return rest._fresh(), Order.ACCEPT

    def _given_up(self) -> tuple[Contribution, Order]:
        return replace(self._fresh(), tokens=0), Order.DISCARD

    def _fresh(self) -> Contribution:
        return replace(self, sent=False, sent_tokens=0, attempts=(), doubtful=False)
