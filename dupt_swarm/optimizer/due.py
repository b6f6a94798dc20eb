"""When a round is to be ended, and with which peers."""

from __future__ import annotations

import time

from dupt_swarm.node.progress import RoundProgress, round_progress
from dupt_swarm.node.view import Peer
from dupt_swarm.optimizer.contribution import Contribution
from dupt_swarm.swarm import Swarm

# Shorter rounds would outrun oracles that are about to join, or that resume when this one does.
CATCH_UP_SECONDS = 5.0


class Due:
    """Knows since when this oracle trains from the present state, and since when it trains at all."""

    def __init__(self, swarm: Swarm) -> None:
        """Training begins."""
        self._swarm, self._manifest = swarm, swarm.manifest
        self.begin()
        self.resume()

    def begin(self) -> None:
        """There is a new state to train from."""
        self._training_since = time.monotonic()
        self._state_since = time.time()  # to compare with the times of records

    def resume(self) -> None:
        """Time spent paused does not make the round due, and nothing that others said meanwhile ends it."""
        self._training_since = time.monotonic()
        self._resumed = time.time()  # to compare with the times of views

    @property
    def seconds(self) -> float:
        """How long it trains from there."""
        return time.monotonic() - self._training_since

    def progress(self, contribution: Contribution) -> RoundProgress:
        """How full the round is, with our ``contribution``, as those say who vote on what follows.

        What newcomers claim costs nothing: it neither ends a round for the others nor keeps them from it.
        """
        voters, round = self._swarm.view.voters, self._swarm.state.round
        companions = tuple(
            peer for peer in self.companions(contribution) if not voters or peer.peer_id in voters
        )
        return round_progress(self._manifest, round, companions, time.time(), contribution.tokens)

    def companions(self, contribution: Contribution) -> tuple[Peer, ...]:
        """The other live oracles of this round.

        Records lag a little behind, so those that ended the last round with us still count as here.
        """
        view, state = self._swarm.view, self._swarm.state
        companions = view.companions(state.digest, self._swarm.peer_id)
        missing = set(contribution.mates).difference(peer.peer_id for peer in companions)
        return (*companions, *view.arriving(missing, state.round, state.digest, self._state_since))

    def now(self, contribution: Contribution) -> bool:
        """Whether to end the round now, with this contribution."""
        if time.monotonic() < contribution.retry_at:
            return False
        now = time.time()  # the machine's clock may have been set back since
        self._resumed, self._state_since = min(self._resumed, now), min(self._state_since, now)
        progress = self.progress(contribution)
        # Where another one ends the round already, whoever waits for stragglers is left out of it with them.
        if (
            self.seconds < CATCH_UP_SECONDS
            and not progress.others_averaging
            and self._stragglers(contribution)
        ):
            return False
        if self._others_may_resume:
            return False
        if self.seconds >= self._manifest.rounds.max_round_seconds:
            return True
        # With a newer state on the way, this round is over for the others.
        return progress.complete and not self._swarm.catching_up.fetching

    @property
    def _others_may_resume(self) -> bool:
        """Whether oracles that seem to be away may be there already.

        Where all oracles resume at the same hour, each sees the others' last records from before that. Ending
        a round on their strength, all would end it alone, each with another state. A view that was read some
        seconds later shows who is still paused, however long it takes to come.
        """
        others = self._swarm.view.without(self._swarm.peer_id)
        return others.oracles != others.at_work and others.time < self._resumed + CATCH_UP_SECONDS

    def _stragglers(self, contribution: Contribution) -> tuple[Peer, ...]:
        """Oracles that are about to reach our state, as their records tell; those and our own may lag.

        So is a peer that ended the last round with us and whose record since then says that it is not there.
        """
        here = {*(peer.peer_id for peer in self.companions(contribution)), self._swarm.peer_id}
        return self._swarm.view.stragglers(self._swarm.state.swarm_tokens, here)
