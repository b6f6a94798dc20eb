"""Loaded by Python itself in the node of a peer under test: kills that peer at a stage of a round.

DUPT_CHAOS_STAGE names the stage; without it, nothing happens. Killed are the trainer and the node's whole
group, as by a power cut.
"""

import os
import signal
import sys


def power_cut() -> None:
    """End the trainer, this node and its daemon, without any goodbye."""
    os.kill(os.getppid(), signal.SIGKILL)
    os.killpg(0, signal.SIGKILL)


def before(owner: type, name: str) -> None:
    """Cut the power when ``owner.name`` is called."""

    def cut(*_: object, **__: object) -> None:
        power_cut()

    setattr(owner, name, cut)


def among_three(owner: type, name: str, members) -> None:
    """Cut it when ``owner.name`` is called, in a group of three or more: of two, who is left decides nothing.

    ``members`` tells how many there are, from what the method is called with.
    """
    method = getattr(owner, name)

    def cut(*args, **kwargs):
        if members(*args) > 2:
            power_cut()
        return method(*args, **kwargs)

    setattr(owner, name, cut)


def arm(stage: str) -> None:
    """Set the trap."""
    from dupt_swarm.network.averaging.allreduce import AllReduce, PartReducer
    from dupt_swarm.network.averaging.polls import Polls
    from dupt_swarm.network.averaging.rounds import Rounds, SwarmAverager
    from dupt_swarm.network.averaging.session import Session
    from dupt_swarm.network.averaging.share import Collection

    if stage == "matchmaking":
        before(SwarmAverager, "average")
    elif stage == "group":
        before(SwarmAverager, "_average_in")
    elif stage == "sending":
        send = AllReduce.messages_of

        async def send_one(self, share):
            async for part in send(self, share):
                yield part
                power_cut()

        AllReduce.messages_of = send_one  # type: ignore[method-assign]
    elif stage == "reducing":
        before(PartReducer, "_run")
    elif stage == "outer step":
        among_three(Rounds, "_finish", lambda _, __, outcome, *___: 1 + len(outcome.mates))
    elif stage == "voting":
        among_three(Polls, "_ask", lambda _, __, box, *___: len(box.members))
    elif stage == "fetching":
        among_three(Collection, "_fetch", lambda collection, *_: len(collection._session.group.members))
    elif stage == "coordinating":
        among_three(Session, "answer", lambda session, *_: len(session.group.members))
    else:
        raise ValueError(f"no such stage: {stage}")


if "dupt_swarm.network.process" in sys.orig_argv and os.environ.get("DUPT_CHAOS_STAGE"):
    arm(os.environ["DUPT_CHAOS_STAGE"])
