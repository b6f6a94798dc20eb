"""What refusals lead to, in a session whose round proposes the same again and again."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dupt_swarm.network.host import background
from dupt_swarm.network.rounds import session as sessions
from dupt_swarm.network.rounds.session import Session
from dupt_swarm.replica.link import Brought, Choice
from tests.support.words import brought, choice

OLD, NEW = brought("a", 10), brought("a", 20)


class Insisting:
    """In place of a `Round`: every ballot has the same proposal, and ends once we have refused that."""

    remnant = roll = None

    def __init__(self) -> None:
        self.to_judge: Choice | None = choice("ab")
        self.ballots: Any = SimpleNamespace(ballot=0, brought=OLD)

    def judge(self, *_: object, accepts: bool) -> None:
        """See `Round`."""
        assert not accepts
        self.ballots.ballot += 1

    def bring(self, brought: Brought, _: float) -> None:
        """See `Round`."""
        self.ballots.brought = brought

    def retract(self) -> None:
        """See `Round`."""
        self.ballots.brought = None

    def consider(self, *_: object) -> None:
        """See `Round`."""


def refusing(judging: Callable[[Session], None]) -> Session:
    """A session to which all leads to no state; each time ``judging`` is called."""

    async def average(*_: object) -> None:
        judging(session)
        raise ValueError("none is sound")

    desk: Any = SimpleNamespace(round=Insisting(), tell=int, change=lambda _: asyncio.sleep(0))
    others: Any = SimpleNamespace(here=lambda _: (), present=lambda _: (), coming=(), gone=(), unable=())
    nothing: Any = SimpleNamespace(digest="", average=average)
    session = Session(desk, nothing, others, nothing, lambda _: nothing, nothing)
    return session


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits after a refusal."""
    monkeypatch.setattr(sessions, "RETRY_SECONDS", 0.0)


async def judged(session: Session) -> None:
    """Let it judge for many turns of the loop."""
    async with background(session._judge_forever()):
        for _ in range(50):
            await asyncio.sleep(0)


async def test_after_a_rejection_nothing_is_judged_until_there_is_new_work() -> None:
    """What was brought is brought no more, and the next ballots wait for what is learnt from then on."""
    seen: list[Session] = []
    session = refusing(seen.append)
    await judged(session)
    assert (len(seen), session.rejected.done(), session.round.ballots.brought) == (1, True, None)
    session.bring(NEW)
    assert not session.rejected.done()
    await judged(session)
    assert (len(seen), session.rejected.done()) == (2, True)


async def test_new_work_that_comes_while_the_old_is_refused_stays() -> None:
    """The refusal is not of it: it is not given up before it was ever proposed."""

    def bring(session: Session) -> None:
        session.bring(NEW)
        cast(Any, session.round).to_judge = None

    session = refusing(bring)
    await judged(session)
    assert (session.rejected.done(), session.round.ballots.brought) == (False, NEW)
