"""Loaded by Python itself in the node of a peer under test: kills that peer at a stage of a round.

DUPT_CHAOS_STAGE names the stage; without it, nothing happens. Killed are the trainer and the node's whole
group, as by a power cut.
"""

import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any


def power_cut() -> None:
    """End the trainer, this node and its daemon, without any goodbye."""
    os.kill(os.getppid(), signal.SIGKILL)
    os.killpg(0, signal.SIGKILL)


def before(owner: type, name: str, condition: Callable[..., bool] = lambda *_: True) -> None:
    """Cut the power when ``owner.name`` is called, where ``condition`` holds of what it is called with."""
    method = getattr(owner, name)

    def cut(*args: Any, **kwargs: Any) -> Any:
        if condition(*args):
            power_cut()
        return method(*args, **kwargs)

    setattr(owner, name, cut)


def arm(stage: str) -> None:
    """Set the trap."""
    from dupt_swarm.network.rounds.allreduce import AllReduce, PartReducer
    from dupt_swarm.network.rounds.deciding import Deciding
    from dupt_swarm.network.rounds.desk import Desk
    from dupt_swarm.network.rounds.judgement import Judgement
    from dupt_swarm.network.rounds.round import Round
    from dupt_swarm.network.rounds.session import Session
    from dupt_swarm.network.rounds.share import Share

    def among_three(round: Round) -> bool:
        """Where three decide or more: of two, who is left makes a weak link."""
        return len(round.ballots.electorate.members) > 2

    def coordinates(desk: Desk, *_: object) -> bool:
        round = desk.round
        return among_three(round) and round.remnant is None and round.ballots.coordinator == round.ballots.me

    if stage == "bringing":
        before(Deciding, "end")
    elif stage == "promising":
        before(Deciding, "ask")
    elif stage == "coordinating":
        before(Desk, "answer", coordinates)
    elif stage == "fetching":
        before(Share, "_fetch", lambda _, __, floor: among_three(floor.round))
    elif stage == "holding":
        before(Session, "hold", lambda session, *_: among_three(session.round))
    elif stage == "judging":
        before(Judgement, "accepts", lambda _, after: len(after.electorate.members) > 2)
    elif stage == "accepting":
        before(Round, "judge", lambda round, *_: among_three(round))
    elif stage == "link":
        before(Session, "_computed_by", lambda session, *_: among_three(session.round))
    elif stage == "sending":
        send = AllReduce.messages_of

        async def send_one(self: AllReduce, share: Any) -> AsyncGenerator[Any, None]:
            async for part in send(self, share):
                yield part
                power_cut()

        AllReduce.messages_of = send_one  # type: ignore[method-assign]
    elif stage == "reducing":
        before(PartReducer, "_run")
    else:
        raise ValueError(f"no such stage: {stage}")


if "dupt_swarm.network.process" in sys.orig_argv and os.environ.get("DUPT_CHAOS_STAGE"):
    arm(os.environ["DUPT_CHAOS_STAGE"])
