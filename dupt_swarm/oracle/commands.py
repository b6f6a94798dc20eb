"""What an oracle is to do: by command of its owner, outside its hours, and while others need the machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

from dupt_swarm.settings import ALWAYS, Hours


class Command(Enum):
    """What an oracle is to do now."""

    RUN = "run"  # train
    PAUSE = "pause"  # take no steps, but stay in the swarm and follow it
    FINISH = "finish"  # contribute at the end of this round, then end
    STOP = "stop"  # save and end


class Commands:
    """The command in force: `STOP` before `FINISH`, both for good; then what was last said; then the hours.

    While others use the machine there is a pause, unless somebody has said `RUN` since they came.

    Safe from any thread and from signal handlers, without a lock: each change is one assignment or one
    addition to a set, and what is for good is never taken back.
    """

    def __init__(
        self,
        hours: Hours = ALWAYS,
        clock: Callable[[], float] = time.time,
        is_free: Callable[[], bool] = lambda: True,
    ) -> None:
        """Nothing was said yet.

        Args:
            hours: in which to train.
            clock: seconds since the epoch.
            is_free: whether others leave the machine alone.
        """
        self._hours, self._clock, self._is_free = hours, clock, is_free
        self._despite = False  # whether to train although others use the machine
        self._for_good: set[Command] = set()
        # By hand, and until when it overrides the hours (None: forever).
        self._said: tuple[Command, float | None] | None = None

    def give(self, command: Command) -> None:
        """``RUN`` and ``PAUSE`` hold until the hours next begin or end, the others for good."""
        if command in (Command.RUN, Command.PAUSE):
            self._despite = command is Command.RUN
            self._said = command, self._hours.next_border(self._clock())
        else:
            self._for_good.add(command)

    @property
    def current(self) -> Command:
        """What to do now."""
        for command in (Command.STOP, Command.FINISH):
            if command in self._for_good:
                return command
        return Command.PAUSE if self.waits else self._wanted

    @property
    def waits(self) -> bool:
        """Whether there is a pause for others only, who use the machine."""
        if self._is_free():
            self._despite = False
            return False
        return self._wanted is Command.RUN and not self._despite

    @property
    def _wanted(self) -> Command:
        now, said = self._clock(), self._said
        if said is not None and (said[1] is None or now < said[1]):
            return said[0]
        return Command.RUN if self._hours.contain(now) else Command.PAUSE

    @property
    def paused_until(self) -> float | None:
        """When the hours end a pause, in seconds since the epoch; None: they do not.

        To be asked while paused: then the next border of the hours is either where they begin, or where
        they end and so begin later.
        """
        border = self._hours.next_border(self._clock())
        if border is None or self._hours.contain(border):
            return border
        return self._hours.next_border(border)
