"""What a coordinator answers, and how soon."""

import asyncio
import hashlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.network.rounds import desk
from dupt_swarm.network.rounds.desk import Desk
from dupt_swarm.network.rounds.evidence import Evidence
from dupt_swarm.network.rounds.reports import Report
from dupt_swarm.network.rounds.stock import MAKERS_MAX
from dupt_swarm.replica.link import Brought
from dupt_swarm.replica.signed_words import Words
from tests.support.members import Members
from tests.support.words import acceptance, choice, promise

NEVER = 600.0  # seconds


@pytest.mark.parametrize("soon", [True, False])
async def test_what_comes_here_is_told_together(monkeypatch: pytest.MonkeyPatch, soon: bool) -> None:
    """A contribution that comes wakes nobody before its time; anything else wakes all at once."""
    monkeypatch.setattr(desk, "ANSWER_SECONDS", NEVER)
    monkeypatch.setattr(desk, "HELD_SECONDS", 0.1 if soon else NEVER)
    members = Members("abc")
    said = {name: Brought(name, hashlib.sha256(name.encode()).hexdigest(), 10) for name in "abc"}
    for name, each in said.items():
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
    round.stock.held.add(said[other].digest)
    here.tell()
    if not soon:
        await asyncio.wait([waiting], timeout=0.3)
        assert not waiting.done()
        await answered(late)
    await waiting


async def test_what_strangers_were_told_is_not_kept_without_end() -> None:
    """Each may be another key, and costs memory; of those who decide it is known, however late they come."""
    members = Members("abc", strangers="x")
    here = Desk(members.rounds[members.coordinator(0)], Words("swarm"), Evidence((), lambda *_: None), 1e9)
    report = members.rounds["x"].report()
    for number in range(MAKERS_MAX + 100):
        maker = f"stranger {number}"
        said = replace(report, promise=replace(report.promise, maker=maker))
        await here.answer(maker, cast(Any, SimpleNamespace(report=lambda *_, said=said: said)))
    report = members.rounds[members.coordinator(1)].report()
    await here.answer(report.promise.maker, cast(Any, SimpleNamespace(report=lambda *_: report)))
    assert len(here._told) == MAKERS_MAX + 1 and report.promise.maker in here._told


async def test_a_peer_that_contradicts_itself_is_exposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it reports of itself, or of another."""
    monkeypatch.setattr(desk, "ANSWER_SECONDS", 0.0)
    members, proofs = Members("abcde"), list[str]()
    evidence = Evidence("abcde", lambda word, _: proofs.append(word.maker))
    here = Desk(members.rounds["a"], Words("swarm"), evidence, weight_max=1e9)
    leave = Report(promise("c", leaves=True))
    late = Report(promise("c", 1))
    for accepts, leaves in (("abc", ()), ("de", (leave,)), ("abc", (late,))):
        said = Report(promise("b"), acceptance=acceptance("b", choice(accepts)), leaves=leaves)
        await here.answer("b", cast(Any, SimpleNamespace(report=lambda *_, said=said: said)))
    assert proofs == ["b", "c"]


async def test_a_report_that_cannot_be_read_is_refused() -> None:
    """Nothing of it is noted."""
    members = Members("abcde")
    here = Desk(members.rounds["a"], Words("swarm"), Evidence("abcde", lambda *_: None), weight_max=10)
    before = here.round.answer()

    def report(_: Words, caller: str, weight_max: float) -> Report:
        assert (caller, weight_max) == ("b", 10)
        raise ValueError("a contribution that stands for more than it can")

    with pytest.raises(CallError) as caught:
        await here.answer("b", cast(Any, SimpleNamespace(report=report)))
    assert caught.value.refusal is Refusal.MALFORMED and here.round.answer() == before
