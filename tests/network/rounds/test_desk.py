"""What a coordinator answers, and how soon."""

import asyncio
import hashlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dupt_swarm.network.rounds import desk
from dupt_swarm.network.rounds.desk import Desk
from dupt_swarm.network.rounds.evidence import Evidence
from dupt_swarm.replica.link import Brought
from dupt_swarm.replica.signed_words import Words
from tests.support.members import Members

NEVER = 600.0  # seconds


@pytest.mark.parametrize("soon", [True, False])
async def test_what_comes_here_is_told_together(monkeypatch: pytest.MonkeyPatch, soon: bool) -> None:
    """A contribution that comes wakes nobody before its time; anything else wakes all at once."""
    monkeypatch.setattr(desk, "ANSWER_SECONDS", NEVER)
    monkeypatch.setattr(desk, "HELD_SECONDS", 0.1 if soon else NEVER)
    members = Members("abc")
    brought = {name: Brought(name, hashlib.sha256(name.encode()).hexdigest(), 10) for name in "abc"}
    for name, each in brought.items():
        members.rounds[name].bring(each, 0.0)
    coordinator = members.coordinator(0)
    other, late = sorted({*"abc"} - {coordinator})
    round = members.rounds[coordinator]
    here = Desk(round, Words("swarm"), Evidence((), lambda *_: None), weight_max=1e9)

    async def answered(name: str) -> None:
        report = members.rounds[name].report()
        await here.answer(name, cast(Any, SimpleNamespace(report=lambda *_: report)))

    await answered(other)
    waiting = asyncio.create_task(answered(other))
    round.hold(brought[other].digest)
    here.tell()
    if not soon:
        await asyncio.wait([waiting], timeout=0.3)
        assert not waiting.done()
        await answered(late)
    await waiting
