"""Members of one electorate in one round, who talk at once and lose nothing; a test says when."""

from __future__ import annotations

from collections.abc import Callable, Collection

from dupt_swarm.network.rounds.ballots import Ballots
from dupt_swarm.network.rounds.reports import Pace
from dupt_swarm.network.rounds.round import Round
from dupt_swarm.network.rounds.voice import Voice
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Brought, Choice, Link, coordinator_of
from tests.support.words import STATE, brought

PACE = Pace(gather=10.0, exchange=20.0, silence=5.0)


def after(choice: Choice) -> str:
    """The state to which it leads."""
    return choice.id[::-1]


class Members:
    """Rounds by the names of their members.

    Attributes:
        electorate: all the members, but for strangers.
        now: seconds.
        refusing: who accepts nothing.
    """

    def __init__(self, names: str, strangers: str = "", *, wary: bool = False) -> None:
        self.electorate = Electorate().after(names, weak=True)
        self.now = 0.0
        self.refusing: set[str] = set()
        self.rounds = {
            name: Round(Ballots(Voice(name), STATE, self.electorate, PACE, self.now, wary=wary))
            for name in (*names, *strangers)
        }

    def bring(self, names: str) -> None:
        """These come with a contribution."""
        for name in names:
            self.rounds[name].bring(brought(name), self.now)

    def coordinator(self, ballot: int) -> str:
        """Whose turn it is in a ballot."""
        return coordinator_of(self.electorate, STATE, ballot)

    def talk(
        self,
        names: Collection[str],
        there: Collection[str] | None = None,
        holds: Callable[[str, Brought], bool] = lambda *_: True,
        times: int = 6,
    ) -> None:
        """These do what is due and report it to their coordinator, if it is one of them, some times over."""
        for _ in range(times):
            for name in names:
                self._act(name, set(names) if there is None else set(there), holds)
            for name in names:
                peer = self.rounds[name].coordinator
                if peer and peer in names:
                    self.rounds[peer].note(self.rounds[name].report(), self.now)
                    self.rounds[name].hear(peer, self.rounds[peer].answer(), self.now)

    def _act(self, name: str, there: set[str], holds: Callable[[str, Brought], bool]) -> None:
        round = self.rounds[name]
        round.consider(self.now, there - {name})
        for each in round.stock.missing:
            if holds(name, each):
                round.stock.held.add(each.digest)
        if (choice := round.to_judge) is not None:
            round.judge(choice, after(choice), accepts=name not in self.refusing)
        round.consider(self.now, there - {name})

    def wait(
        self,
        names: Collection[str],
        seconds: float,
        there: Collection[str] | None = None,
        holds: Callable[[str, Brought], bool] = lambda *_: True,
    ) -> None:
        """Time passes, while these go on."""
        for _ in range(int(seconds)):
            self.now += 1.0
            self.talk(names, there, holds, times=1)

    def links(self, names: Collection[str]) -> set[Link | None]:
        """What these know that was decided."""
        return {self.rounds[name].link for name in names}
