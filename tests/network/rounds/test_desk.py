"""What a coordinator answers, and how soon."""

import asyncio
import hashlib
import time
from types import SimpleNamespace
from typing import Any, cast

from dupt_swarm.network.rounds.desk import HELD_SECONDS, Desk
from dupt_swarm.network.rounds.evidence import Evidence
from dupt_swarm.replica.link import Brought
from dupt_swarm.replica.signed_words import Words
from tests.support.members import Members


def test_what_comes_here_wakes_nobody_at_once() -> None:
    """Of the contributions that come within a moment others are told together; of anything else at once."""

    async def scenario() -> None:
        members = Members("abc")
        brought = {name: Brought(name, hashlib.sha256(name.encode()).hexdigest(), 10) for name in "abc"}
        for name, each in brought.items():
            members.rounds[name].bring(each, 0.0)
        coordinator = members.coordinator(0)
        other, late = sorted({*"abc"} - {coordinator})
        round = members.rounds[coordinator]
        desk = Desk(round, Words("swarm"), Evidence((), lambda *_: None), weight_max=1e9)

        async def answered(name: str) -> float:
            """Seconds until a member hears something."""
            report = members.rounds[name].report()
            began = time.monotonic()
            await desk.answer(name, cast(Any, SimpleNamespace(report=lambda *_: report)))
            return time.monotonic() - began

        await answered(other)
        waiting = asyncio.create_task(answered(other))
        await asyncio.sleep(0)
        round.hold(brought[other].digest)
        desk.tell()
        assert await waiting >= HELD_SECONDS
        waiting = asyncio.create_task(answered(other))
        await answered(late)
        assert await waiting < HELD_SECONDS

    asyncio.run(asyncio.wait_for(scenario(), 30))
