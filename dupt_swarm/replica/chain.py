"""The chain of rounds: all links since the first state, and which branch to follow where two part.

Nobody follows a claim: whoever sees that others are elsewhere takes their links from the last state that both
know, and verifies each by the electorate of the state before it. Signatures are checked elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Link

# What is older is final: who decided then, and is not there any more, decides nothing again.
FINAL_ROUNDS = 1024
# Where nobody decides yet, anybody can begin a branch; swarms that began at once meet by then.
FINAL_FIRST_ROUNDS = 8


class Chain:
    """Links from a state that is trusted on: a checkpoint of our own, or one that was attested.

    Attributes:
        first: digest of that state.
        links: in order.
    """

    def __init__(self, first: str, electorate: Electorate) -> None:
        """``electorate`` is that of the state ``first``."""
        self.first, self.links = first, list[Link]()
        self._electorates = [electorate]
        self._places = {first: 0}

    @property
    def head(self) -> str:
        """Digest of the last state."""
        return self.links[-1].after if self.links else self.first

    @property
    def electorate(self) -> Electorate:
        """That of the last state."""
        return self._electorates[-1]

    def __contains__(self, state: object) -> bool:
        return state in self._places

    @property
    def begins(self) -> int:
        """The round of the state `first`; 0: the chain is whole."""
        return self._electorates[0].round

    def electorate_of(self, state: str) -> Electorate:
        """That of ``state``.

        Raises:
            ValueError: that is none of this chain.
        """
        return self._electorates[self._place_of(state)]

    def copied_from(self, state: str) -> Chain:
        """A copy of the part that begins with ``state``.

        Raises:
            ValueError: that is none of this chain.
        """
        place = self._place_of(state)
        found = Chain(state, self._electorates[place])
        found.links, found._electorates = self.links[place:], self._electorates[place:]
        found._places = {each: number for number, each in enumerate(found._states)}
        return found

    def cut(self, state: str) -> None:
        """Forget what comes after ``state``, which is a part of it."""
        place = self._places[state]
        for link in self.links[place:]:
            del self._places[link.after]
        del self.links[place:], self._electorates[place + 1 :]

    def from_state(self, state: str) -> Link | None:
        """The link that leaves ``state``; None: it is the last one, or none of ours."""
        place = self._places.get(state, len(self.links))
        return self.links[place] if place < len(self.links) else None

    def between(self, before: str, after: str) -> list[Link] | None:
        """The links that lead from one state to the other; None: that is not known."""
        places = self._places.get(before), self._places.get(after)
        if places[0] is None or places[1] is None or places[0] > places[1]:
            return None
        return self.links[places[0] : places[1]]

    def known(self) -> list[str]:
        """Digests by which another finds the last state that both know: the last ones, then ever fewer."""
        states = self._states
        found, back = [], 1
        while back < len(states):
            found.append(states[-back])
            back += 1 if back < 8 else back // 2
        return [*found, self.first]

    def _place_of(self, state: str) -> int:
        if state not in self._places:
            raise ValueError("links from a state that we do not know")
        return self._places[state]

    @property
    def _states(self) -> list[str]:
        return [self.first, *(each.after for each in self.links)]

    def _state_at(self, place: int) -> str:
        return self.links[place - 1].after if place else self.first

    def since(self, known: Sequence[str]) -> list[Link]:
        """The links after the last state that is among ``known``; all, if nothing is known."""
        places = [self._places[each] for each in known if each in self._places]
        if not known:
            return self.links
        return self.links[max(places) :] if places else []

    def follow(self, links: Sequence[Link]) -> list[Link]:
        """Follow another's links from a state of ours on, if they go on from ours or win where they part.

        Returns:
            Our links that are no more part of the chain.

        Raises:
            ValueError: they begin elsewhere or lead back, or one does not leave the state before it.
        """
        if not links:
            return []
        start = self._place_of(links[0].state)
        shared = self._verify_shared(links, start)
        place, theirs = start + shared, links[shared:]
        state, electorate = self._state_at(place), self._electorates[place]
        electorates = _verified(theirs, state, electorate)
        if not theirs:
            return []
        places = {each.after: self._places.get(each.after, place + 1) for each in theirs}
        # A state says its round: those are invented.
        if len(places) < len(theirs) or min(places.values()) <= place:
            raise ValueError("links that lead back")
        lost = self.links[place:]
        if lost:
            is_final = len(lost) > (FINAL_ROUNDS if electorate.members else FINAL_FIRST_ROUNDS)
            if is_final or theirs[0].worth(electorate) <= lost[0].worth(electorate):
                return []
        self.cut(state)
        self.links += theirs
        self._electorates += electorates
        self._places |= {each.after: number for number, each in enumerate(theirs, place + 1)}
        return lost

    def _verify_shared(self, links: Sequence[Link], place: int) -> int:
        """Verify those of ``links`` that lead where ours from ``place`` on lead, and say how many these are.

        What more of the electorate have signed for a weak one is added to ours.
        """
        ours = self.links[place:]
        for number, (theirs, own) in enumerate(zip(links, ours, strict=False)):
            if theirs.after != own.after:
                return number
            electorate = self._electorates[place + number]
            theirs.check(electorate)
            if theirs.state != own.state:
                raise ValueError("links that do not follow from one another")
            if theirs.choice.weak and theirs.choice == own.choice:
                self.links[place + number] = own.joined(theirs, electorate.members)
        return min(len(links), len(ours))


def counted_in(links: Iterable[Link]) -> dict[str, int]:
    """Tokens of the contributions that counted in these rounds, by maker."""
    found: Counter[str] = Counter()
    for link in links:
        found.update({each.maker: each.tokens for each in link.counting})
    return dict(found)


def _verified(links: Sequence[Link], state: str, electorate: Electorate) -> list[Electorate]:
    """The electorates of the states to which they lead."""
    found = []
    for link in links:
        if link.state != state:
            raise ValueError("links that do not follow from one another")
        known = replace(electorate)  # what it works out is not kept for each of thousands of rounds
        link.check(known)
        electorate = link.electorate(known)
        found.append(electorate)
        state = link.after
    return found
