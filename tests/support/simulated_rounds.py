"""A swarm that decides what follows its states, on a clock of its own and a network that loses and delays.

What decides is what ships: `Round`, `Chain`, and what is beneath them. Contributions are names, a state's
digest is a hash of what led to it, and a computed state is there at once.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any

from dupt_swarm.network.rounds.ballots import Ballots
from dupt_swarm.network.rounds.reports import Answer, Pace, Report
from dupt_swarm.network.rounds.round import Round
from dupt_swarm.network.rounds.voice import Pledged, Voice
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Brought, Choice, Link, Word, contradict

PACE = Pace(gather=4.0, exchange=12.0, silence=2.0)
TICK, LOOK = 0.7, 2.0
SEEN_SECONDS, SETTLING_SECONDS = 8.0, 120.0
# As many ballots as may fail, and then a remnant's attempts.
PROGRESS_SECONDS = 8 * (PACE.gather + PACE.exchange + 4 * PACE.silence)
FIRST = "first state"


def state_after(state: str, choice: Choice) -> str:
    """Digest of what ``choice`` makes of ``state``."""
    return hashlib.sha256(f"{state} {choice.id}".encode()).hexdigest()[:16]


class Network:
    """Time, messages, and what both do to peers.

    Attributes:
        now: seconds.
        loss: the part of messages that do not arrive.
        slow: seconds that a message takes at most.
        hush: the part of decisions after which their coordinator is not heard for a while.
        sides: which peers can talk; all, if it is empty.
        said: every word that somebody has signed, by its maker.
    """

    def __init__(self, seed: int, loss: float = 0.0, slow: float = 0.3, hush: float = 0.0) -> None:
        self.random = Random(seed)
        self.now, self.loss, self.slow, self.hush = 0.0, loss, slow, hush
        self.sides: list[set[str]] = []
        self.peers: dict[str, SimPeer] = {}
        self.said: dict[str, list[Word]] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, time: float, what: Callable[[], None]) -> None:
        """Do it then."""
        heapq.heappush(self._events, (max(time, self.now), next(self._numbers), what))

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()
        self.now = until

    def together(self, one: str, other: str) -> bool:
        """Whether they can talk."""
        return not self.sides or any(one in side and other in side for side in self.sides)

    def call(
        self, caller: SimPeer, peer: str, ask: Callable[[SimPeer], Any], then: Callable[[Any], None]
    ) -> None:
        """Ask ``peer`` something, twice now and then, and hear its answer, if nothing gets lost."""
        asked = self.peers[peer]
        session = caller.session
        if not asked.online and self.together(caller.name, peer):
            caller.gone.add(peer)
            return

        def arrive() -> None:
            if asked.online and self.together(caller.name, peer):
                answer = ask(asked)
                if self.random.random() >= self.loss and asked.muted < self.now:
                    self.at(self.now + self.delay(), lambda: back(answer))

        def back(answer: Any) -> None:
            if caller.online and caller.session == session and self.together(caller.name, peer):
                caller.gone.discard(peer)
                then(answer)

        for _ in range(2 if self.random.random() < 0.05 else 1):
            if self.random.random() >= self.loss and caller.muted < self.now:
                self.at(self.now + self.delay(), arrive)

    def delay(self) -> float:
        """Of one message; some overtake others."""
        return self.random.uniform(0.01, self.slow)


class SimPeer:
    """An oracle: it trains, brings a contribution, and takes part until there is a link; then again.

    Attributes:
        chain: kept on disk, as `pledged` is: the words on each state.
        tokens: trained in all.
        contributed: those that it believes to be in the state.
    """

    honest = True

    def __init__(self, network: Network, name: str, electorate: Electorate) -> None:
        self.network, self.name = network, name
        self.chain = Chain(FIRST, electorate)
        self.pledged: dict[str, Pledged] = {}
        self.online, self.session, self.muted = False, 0, -1.0
        self.gone: set[str] = set()
        self.seen: dict[str, tuple[float, str]] = {}
        self.tokens = self.contributed = 0
        self.round: Round
        network.peers[name] = self
        network.said[name] = []

    # What happens to it.

    def start(self) -> None:
        """It comes, or comes back with what it had on disk."""
        if self.online:
            return
        self.online, self.session = True, self.session + 1
        self.gone.clear()
        self.seen.clear()
        self._begin()
        session = self.session
        for period, what in ((TICK, self._tick), (LOOK, self._look)):
            self._repeat(period, what, session)

    def crash(self) -> None:
        """It is gone, and says nothing."""
        self.online = False

    def mute(self) -> None:
        """It hears, and for a while nothing that it says arrives."""
        self.muted = self.network.now + self.network.random.uniform(3, 15)

    def leave(self) -> None:
        """It says its last word on this state to some, and goes."""
        if not self.online:
            return
        state, report = self.chain.head, self.round.leave()
        for peer in sorted({self.round.ballots.coordinator, *self.there()} - {self.name, ""}):
            self.network.call(self, peer, lambda other: other.note(report), lambda _: None)
        self.network.at(self.network.now + 1.0, lambda: self._go(state))

    def _go(self, state: str) -> None:
        self.online = self.online and self.chain.head != state

    # What it does.

    def there(self) -> set[str]:
        """Others that are at this state, as far as it has seen."""
        now, head = self.network.now, self.chain.head
        return {
            peer
            for peer, (at, state) in self.seen.items()
            if state == head and now - at < SEEN_SECONDS and peer not in self.gone
        }

    def _coming(self) -> set[str]:
        """Others that are on their way here from the states before."""
        now, states = self.network.now, {self.chain.first, *(each.state for each in self.chain.links[-2:])}
        coming = {
            peer for peer, (at, state) in self.seen.items() if state in states and now - at < SEEN_SECONDS
        }
        return coming - self.gone

    def note(self, report: Report) -> Answer | list[Link]:
        """Another asks; one at another state gets our links."""
        promise = report.promise
        self.seen[promise.maker] = (self.network.now, promise.state)
        if promise.state != self.chain.head:
            return self.chain.since([promise.state])
        self.round.note(report, self.network.now)
        return self.round.answer()

    def _begin(self) -> None:
        """At another state: a new contribution, and new ballots."""
        network, state = self.network, self.chain.head
        voice = Voice(self.name, self._sign, lambda pledged: self._keep(state, pledged))
        kept = self.pledged.get(state)
        self.round = Round(Ballots(voice, state, self.chain.electorate, PACE, network.now, kept))
        session = self.session

        def bring() -> None:
            if self.online and self.session == session and self.chain.head == state:
                self.tokens += network.random.randint(1, 9)
                made = self.tokens - self.contributed
                digest = f"{self.name} {state} {made}"
                self.round.bring(Brought(self.name, digest, made), network.now)

        network.at(network.now + network.random.uniform(1.0, 5.0), bring)

    def _keep(self, state: str, pledged: Pledged) -> None:
        self.pledged[state] = pledged

    def _sign(self, word: Word) -> bytes:
        self.network.said[self.name].append(word)
        return b"signed"

    def _tick(self) -> None:
        now, round = self.network.now, self.round
        round.consider(now, self.there(), self._coming(), self.gone)
        if (choice := round.to_judge) is not None:
            self._judge(choice)
        if round.link is not None:
            if round.part.coordinator == self.name and self.network.random.random() < self.network.hush:
                self.mute()  # it alone knows what was decided
            self._follow([round.link])
            return
        for brought in round.stock.missing:
            self._fetch(brought)
        if round.coordinator:
            self._ask(round.coordinator)

    def _judge(self, choice: Choice) -> None:
        self.round.judge(choice, state_after(self.chain.head, choice))

    def _ask(self, peer: str) -> None:
        network, round, report = self.network, self.round, self.round.report()

        def hear(answer: Answer | list[Link]) -> None:
            if isinstance(answer, list):
                self._follow(answer)
            elif self.round is round:
                self.seen[peer] = (network.now, self.chain.head)
                if answer.link is not None and not self._is_sound(answer.link):
                    answer = replace(answer, link=None)
                round.hear(peer, answer, network.now)

        network.call(self, peer, lambda other: other.note(report), hear)

    def _is_sound(self, link: Link) -> bool:
        try:
            link.check(self.chain.electorate)
        except ValueError:
            return False
        return link.state == self.chain.head

    def _fetch(self, brought: Brought) -> None:
        """From whoever has it: its maker, or another who has fetched it."""
        network, round = self.network, self.round
        holders = [
            peer.name
            for peer in network.peers.values()
            if peer.online and peer is not self and brought.digest in peer.round.stock.held
        ]
        holders = [peer for peer in holders if network.together(peer, self.name)]
        if holders and network.random.random() < 0.7:
            here = network.now + network.random.uniform(0.1, 1.5)
            network.at(here, lambda: round.stock.held.add(brought.digest))

    def _look(self) -> None:
        """What another is at; its links, if it is elsewhere."""
        others = sorted(self.network.peers.keys() - {self.name})
        if not others:
            return
        elsewhere = [peer for peer in others if peer in self.seen and self.seen[peer][1] not in self.chain]
        random, known = self.network.random, self.chain.known()
        peer = random.choice(elsewhere if elsewhere and random.random() < 0.5 else others)

        def hear(answer: tuple[str, list[Link]]) -> None:
            head, links = answer
            self.seen[peer] = (self.network.now, head)
            self._follow(links)

        def tell(other: SimPeer) -> tuple[str, list[Link]]:
            other.seen[self.name] = (self.network.now, known[0])
            return other.chain.head, other.chain.since(known)

        self.network.call(self, peer, tell, hear)

    def _follow(self, links: list[Link]) -> None:
        before, length = self.chain.head, len(self.chain.links)
        try:
            lost = self.chain.follow(links)
        except ValueError:
            return
        if self.chain.head == before:
            return
        kept = length - len(lost)
        self.contributed -= self.mine(lost)
        self.contributed += self.mine(self.chain.links[kept:])
        self._begin()

    def mine(self, links: Sequence[Link]) -> int:
        """Tokens of its own that these brought into the state."""
        return sum(each.tokens for link in links for each in link.choice.brought if each.maker == self.name)

    def _repeat(self, period: float, what: Callable[[], None], session: int) -> None:
        def again() -> None:
            if self.online and self.session == session:
                what()
                self._repeat(period, what, session)

        self.network.at(self.network.now + period * self.network.random.uniform(0.7, 1.3), again)


@dataclass(frozen=True)
class Schedule:
    """What happens to a swarm.

    Attributes:
        voters: so many are of the first electorate.
        newcomers: so many come besides.
        events: when, which peer, what: ``crash``, ``start``, ``leave``, ``mute``; or ``split``, into parts
            that follow from the number, and ``heal``.
    """

    seed: int
    voters: int
    newcomers: int = 0
    loss: float = 0.0
    slow: float = 0.3
    hush: float = 0.0
    events: tuple[tuple[float, int, str], ...] = ()
    seconds: float = 60.0
    quiet: float = 30.0


@dataclass
class Outcome:
    """What became of it."""

    network: Network
    honest: list[SimPeer]
    strong: dict[str, dict[str, Link]] = field(default_factory=dict)
    progress: int = 0

    @property
    def second_links(self) -> list[str]:
        """States that two strong links leave."""
        return [state for state, links in self.strong.items() if len(links) > 1]

    @property
    def is_one_branch(self) -> bool:
        """Whether all that are there are on the longest chain."""
        there = sorted((peer for peer in self.honest if peer.online), key=lambda peer: len(peer.chain.links))
        return all(peer.chain.head in there[-1].chain for peer in there)

    @property
    def exposed(self) -> set[str]:
        """Those whose words contradict each other."""
        return {
            name
            for name, words in self.network.said.items()
            if any(contradict(one, other) for one, other in _pairs(words))
        }


def _pairs(words: list[Word]) -> Any:
    by_state: dict[str, list[Word]] = {}
    for word in set(words):
        by_state.setdefault(word.state, []).append(word)
    for group in by_state.values():
        for place, one in enumerate(group):
            for other in group[:place]:
                yield one, other


def simulate(schedule: Schedule, liars: dict[int, type[SimPeer]] | None = None) -> Outcome:
    """Run it, with peers that lie by their number; then heal everything, and let some time pass in quiet."""
    network = Network(schedule.seed, schedule.loss, schedule.slow, schedule.hush)
    names = [f"p{number}" for number in range(schedule.voters + schedule.newcomers)]
    electorate = Electorate().after(names[: schedule.voters], weak=True)
    kinds = liars or {}
    peers = [kinds.get(number, SimPeer)(network, name, electorate) for number, name in enumerate(names)]
    outcome = Outcome(network, [peer for peer in peers if peer.honest])
    _watch(outcome)
    for peer in peers:
        network.at(network.random.uniform(0, 3), peer.start)
    for time, number, what in schedule.events:
        peer = peers[number % len(peers)]
        if what == "split":
            network.at(time, lambda number=number: _split(network, names, number))  # type: ignore[misc]
        elif what == "heal":
            network.at(time, network.sides.clear)
        else:
            network.at(time, getattr(peer, what))
    network.run(schedule.seconds)
    network.sides.clear()
    network.loss, network.slow, network.hush = 0.0, 0.3, 0.0
    network.run(schedule.seconds + schedule.quiet)
    before = max((len(peer.chain.links) for peer in outcome.honest if peer.online), default=0)
    ends = network.now + PROGRESS_SECONDS
    while network.now < ends and outcome.progress < 1:
        network.run(network.now + LOOK)
        lengths = [len(peer.chain.links) for peer in outcome.honest if peer.online]
        outcome.progress = min(lengths, default=before + 1) - before
    for peer in peers:
        if not peer.honest:
            peer.crash()
    ends = network.now + SETTLING_SECONDS
    while network.now < ends and not outcome.is_one_branch:  # a fork may be a second old, and heals
        network.run(network.now + LOOK)
    return outcome


def _split(network: Network, names: list[str], number: int) -> None:
    random = Random(number)
    one = {name for name in names if random.random() < 0.5}
    network.sides[:] = [one, set(names) - one]


def _watch(outcome: Outcome) -> None:
    """Note every strong link that an honest peer takes."""
    for peer in outcome.honest:
        follow = peer.chain.follow

        def noting(links: Sequence[Link], follow: Any = follow) -> list[Link]:
            lost: list[Link] = follow(links)
            for each in links:
                if not each.choice.weak:
                    outcome.strong.setdefault(each.state, {}).setdefault(each.after, each)
            return lost

        peer.chain.follow = noting  # type: ignore[method-assign]
