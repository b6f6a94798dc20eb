"""What the owner can tell a running peer to do, and what it reports."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from dupt_swarm.settings import Role
from peers.control.socket import Action

if TYPE_CHECKING:
    from dupt_swarm.oracle.oracle import Oracle
    from dupt_swarm.swarm import Swarm

STOP_SECONDS = 0.1
# What an oracle answers to each command that is a method of it, too.
ANSWERS = {
    "pause": "pauses; `dupt-peer resume` continues",
    "resume": "trains",
    "finish": "contributes at the end of this round, then leaves",
}


class PeerControl:
    """The control of one peer: tell it of signs of life by `beat`, and of the oracle once there is one.

    Attributes:
        oracle: what pause, resume and finish act on; None for other roles and while an oracle starts.
    """

    def __init__(self, swarm: Swarm, role: Role, name: str) -> None:
        self.oracle: Oracle | None = None
        self._role, self._stops = role, False
        self._about = {
            "role": role,
            "name": name,
            "swarm_id": swarm.manifest.swarm_id,
            "peer_id": swarm.peer_id,
            "pid": os.getpid(),
        }
        self.beat("starting", swarm.state.round)

    def beat(self, state: str, round: int, activity: str = "") -> None:
        """The peer is alive, in this state, at this round, and does this."""
        self._state, self._round, self._activity = state, round, activity
        self._beaten = time.monotonic()

    def beaten_by(self, progress: Callable[[int, int], None]) -> Callable[[int, int], None]:
        """``progress`` of preparing the corpus, each call of which is a sign of life too."""

        def watched(done: int, total: int) -> None:
            self.beat(self._state, self._round, f"preparing {100 * done // max(total, 1)} %")
            progress(done, total)

        return watched

    @property
    def actions(self) -> Mapping[str, Action]:
        """For `serve_control`."""
        told = {command: partial(self._tell_oracle, command) for command in ANSWERS}
        return {"status": self._status, **told, "stop": self._stop}

    def _status(self) -> Mapping[str, Any]:
        silence = time.monotonic() - self._beaten
        return {
            **self._about,
            "state": self._state,
            "activity": self._activity,
            "round": self._round,
            "silence_seconds": silence,
        }

    def _tell_oracle(self, command: str) -> Mapping[str, Any]:
        if self._role != "oracle":
            raise ValueError(
                f"a {self._role} does not train, so it cannot {command}; `dupt-peer stop` ends it"
            )
        if self.oracle is None:
            raise ValueError(f"it is still starting and cannot {command} yet; try again in a moment")
        if self.oracle.leaving and command != "finish":
            raise ValueError(f"it is about to leave and cannot {command}; `dupt-peer stop` ends it now")
        getattr(self.oracle, command)()
        return {"message": ANSWERS[command]}

    def _stop(self) -> Mapping[str, Any]:
        # As an operator would: one way to end, and it works while the peer is still starting.
        # A moment later, so that the answer is out before. Once: a second signal would end it at once.
        if not self._stops:
            self._stops = True
            threading.Timer(STOP_SECONDS, os.kill, (os.getpid(), signal.SIGTERM)).start()
        return {"message": "stops" if self._role == "evaluator" else "stops, with a checkpoint"}
