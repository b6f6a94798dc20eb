"""Where peers go that see one another at different states: real links, told and fetched on loopback."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.pauses import Pauses
from dupt_swarm.network.rounds import follow
from dupt_swarm.network.rounds.follow import FIRST_SECONDS, LONGEST_SECONDS, Following
from dupt_swarm.network.rounds.history import History
from dupt_swarm.network.states import exchange
from dupt_swarm.network.states.download import always
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.replaying import Refuted, Replaying, RoundLog, fetch_inputs
from dupt_swarm.network.states.store import StateStore, name_of
from dupt_swarm.node.messages import CatchingUp, FetchFailed
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.replica.blob import Blob, Index
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.link import Link
from dupt_swarm.replica.replay import average_form
from dupt_swarm.replica.signed_words import LinkRecord, Words
from dupt_swarm.replica.state import ReplicaState
from tests.support.clock import Clock
from tests.support.hello import hello
from tests.support.kept_rounds import EXACT, NUMEL, KeptRounds, Shelf, forged
from tests.support.tiny import reduced_tables
from tests.support.vectors import encode_parts
from tests.support.words import FIVE, STATE, choice, link

NOWHERE = "f" * 64
ROUNDS = 4
LOOKS_MAX = 12  # of each peer, until all have gone where they go


@dataclass
class Decider:
    """What a peer takes part in; see there. It takes links if it leaves ``state``."""

    is_in_ballots: bool = False
    next_state: str = ""
    state: str = ""
    told: list[Link] = field(default_factory=list)
    compared: list[Link] = field(default_factory=list)

    def follow(self, link: Link) -> bool:
        if link.state == self.state:
            self.told.append(link)
        return link.state == self.state

    def compare(self, link: Link) -> None:
        self.compared.append(link)


class Peer:
    """One that follows others: what it is at is what its record says.

    Attributes:
        moved: to which states it has gone.
        said: what the trainer was told.
        asked: how often others have asked it for links.
    """

    def __init__(self, kept: KeptRounds, station: Any, rounds: int) -> None:
        """It is where these rounds have led by then, and keeps what went into them."""
        words = Words(kept.manifest.swarm_id)
        self.member = Membership(kept.manifest, station.p2p, station.key)
        self._station, self.exchange = station, Exchange(station.p2p)
        self.store = StateStore(kept.manifest, self.exchange)
        self.log, self.shelf = RoundLog(10, 1 << 24), Shelf(dict(kept.blobs))
        self.exchange.serve_from(self.shelf)
        state = kept.states[rounds]
        self.history = History(state, words, station.folder / "chain")
        self.history.chain = kept.chain(rounds)
        self.store.replace(state)
        replaying = Replaying(kept.manifest, self.exchange, self.log, self.store.empty, always=True)
        self.said: list[object] = []
        self.moved: list[str] = []
        self.asked = 0
        self.deciding = Decider()
        self.following = Following(
            *(self.history, self.store, self.member, replaying),
            self.deciding,  # type: ignore[arg-type]
            lambda said: self.said.append(said),
        )
        self.following.patience = 0.0
        self.tell: Callable[[Sequence[str]], Sequence[Link]] = self.history.chain.since
        self.exchange.tell_links(self._since)

    def _since(self, known: Sequence[str]) -> Sequence[Link]:
        self.asked += 1
        return self.tell(known)

    @property
    def peer_id(self) -> str:
        """Its peer id."""
        return self.member.peer_id

    @property
    def head(self) -> str:
        """Digest of the state to which its chain leads."""
        return self.history.chain.head

    async def open(self) -> None:
        """Begin to answer others, and tell where it is."""
        await self._station.p2p.serve(self.exchange)
        await self._station.p2p.serve(self.member.gossip)
        await self.be_at(self.store.current)

    async def be_at(self, state: ReplicaState, *, claiming: str = "") -> None:
        """Serve a state, and say that it has it; or that it has what is claimed."""
        if state is not self.store.current:
            self.store.replace(state)
        self.member.electorate = state.electorate
        self.exchange.publish(hello(state.digest), [state.blob])
        self.member.update(
            RecordUpdate(
                role="oracle",
                state="training",
                round=state.round,
                swarm_tokens=state.swarm_tokens,
                state_digest=claiming or state.digest,
            )
        )
        await self.member.publish()

    async def look(self) -> bool:
        """Read all records, and go where they make it go; whether it has found out about anything."""
        await self.member.refresh()
        self.following.look(self._adopt)
        task = self.following.task
        self.following.task = None
        if task is not None:
            await task
        return task is not None

    async def _adopt(self) -> None:
        assert self.store.newer is not None
        self.moved.append(self.store.newer.digest)
        await self.be_at(self.store.newer)

    def assert_moved(self, kept: KeptRounds, rounds: int | None = None) -> None:
        """It has gone where so many of these have led, or all, at once and by their links."""
        links = kept.links[:rounds]
        assert self.moved == [links[-1].after]
        assert self.history.chain.links == links

    def assert_unmoved(self, state: ReplicaState, links: Sequence[Link]) -> None:
        """It is where it was."""
        assert (self.moved, self.store.newer, self.store.current) == ([], None, state)
        assert self.history.chain.links == list(links)


@pytest.fixture
def kept(make_manifest, identities) -> KeptRounds:
    """Four strong rounds of three."""
    keys = [load_identity(path) for path in identities]
    return KeptRounds(make_manifest(**EXACT), keys, electing=3).go_on(ROUNDS)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """That by which others are asked again."""
    found = Clock()
    monkeypatch.setattr(follow, "time", SimpleNamespace(monotonic=found))
    monkeypatch.setattr(follow, "Pauses", partial(Pauses, clock=found))
    return found


@pytest.fixture
def peers_at(stations) -> Callable[..., AbstractAsyncContextManager[list[Peer]]]:
    """``async with peers_at((kept, 0), (other, 3)) as peers``: each is where these rounds lead by then."""

    @asynccontextmanager
    async def start(*where: tuple[KeptRounds, int]) -> AsyncIterator[list[Peer]]:
        async with stations(len(where), where[0][0].manifest) as started:
            peers = [
                Peer(kept, station, rounds) for station, (kept, rounds) in zip(started, where, strict=True)
            ]
            for each in peers:
                await each.open()
            yield peers

    return start


async def until_all_are_there(peers: Sequence[Peer]) -> str:
    """All look again and again; the state at which they meet."""
    for _ in range(LOOKS_MAX):
        for each in peers:
            await each.look()
        if len({each.head for each in peers}) == 1:
            break
    assert [each.store.current.digest for each in peers] == [peers[0].head] * len(peers)
    return peers[0].head


def assert_sound(chain: Chain, kept: KeptRounds) -> None:
    """Others would follow it."""
    other = kept.chain(0)
    words = Words(kept.manifest.swarm_id)
    other.follow([LinkRecord.of(link).link(words) for link in chain.links])
    assert other.head == chain.head


@pytest.mark.parametrize("how", ["computes", "fetches"])
async def test_one_that_was_away_catches_up(kept, peers_at, how: str) -> None:
    """By the links of another: it computes what it has missed, or fetches the state where it cannot."""
    async with peers_at((kept, 1), (kept, ROUNDS)) as [mine, theirs]:
        if how == "computes":
            theirs.exchange.publish(hello(theirs.head), [])
            theirs.exchange._cache._blobs.clear()
        else:
            theirs.shelf.found.clear()
        assert await mine.look()
        mine.assert_moved(kept)
        assert bool(mine.log.blobs) == (how == "computes")
        assert mine.said == [
            CatchingUp(fetching=True, newer=None),
            CatchingUp(fetching=False, newer=name_of(kept.states[-1])),
        ]
        assert theirs.store.newer is None
        assert [await mine.look(), await theirs.look()] == [False, False]


async def test_nobody_goes_back(kept, peers_at) -> None:
    """One at a state that we were at is not even asked: it comes to us."""
    async with peers_at((kept, ROUNDS), (kept, 1)) as peers:
        ahead, behind = peers
        assert not await ahead.look()
        assert behind.asked == 0
        assert await until_all_are_there(peers) == kept.states[-1].digest
        assert ahead.moved == []


async def test_links_longer_than_one_page(kept, peers_at, monkeypatch) -> None:
    """They are asked for page by page, and each page goes on from the one before."""
    longest = max(len(LinkRecord.of(link).to_bytes()) for link in kept.links)
    monkeypatch.setattr(exchange, "LINKS_BYTES_MAX", longest + 1)
    async with peers_at((kept, 0), (kept, ROUNDS)) as [mine, theirs]:
        await mine.look()
        mine.assert_moved(kept)
        assert theirs.asked == ROUNDS + 1


async def test_links_without_end(kept, peers_at) -> None:
    """Whoever tells the same again and again is asked no more, and moves nobody."""
    async with peers_at((kept, 0), (kept, ROUNDS)) as [mine, theirs]:
        theirs.tell = lambda _: kept.links[:1]
        await mine.look()
        assert theirs.asked == 2
        mine.assert_unmoved(kept.states[0], [])


def by_strangers(kept: KeptRounds, by: Sequence[int]) -> Link:
    """A strong link from the state after the first round, signed by these alone."""
    branch = kept.branch(1)
    return branch.link(branch.choice(branch.values(9), by), NOWHERE, by)


LIES: dict[str, Callable[[KeptRounds], list[Link]]] = {
    "no links": lambda _: [],
    "a forged signature": lambda kept: [kept.links[1], forged(kept.links[2]), kept.links[3]],
    "cut at the beginning": lambda kept: kept.links[2:],
    "cut in the middle": lambda kept: [kept.links[1], kept.links[3]],
    "turned": lambda kept: kept.links[1:][::-1],
    "less than a quorum": lambda kept: [replace(kept.links[1], acceptances=kept.links[1].acceptances[:1])],
    "one of three, and a stranger": lambda kept: [by_strangers(kept, [0, 3])],
    "a signature twice": lambda kept: [replace(kept.links[1], acceptances=kept.links[1].acceptances[:1] * 2)],
    "to another state": lambda kept: [replace(kept.links[1], after=NOWHERE)],
    "what we know already": lambda kept: kept.links[:1],
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_claim_moves_nobody(kept, peers_at, clock, lie: str) -> None:
    """Whatever its record says, and whatever it tells; and it is asked ever more rarely."""
    told = LIES[lie](kept)
    async with peers_at((kept, 1), (kept, 1)) as [mine, liar]:
        await liar.be_at(liar.store.current, claiming=NOWHERE)
        liar.tell = lambda known: told if kept.states[0].digest in known else []
        await mine.member.refresh()
        times = []
        for _ in range(300):
            before = liar.asked
            mine.following.look(mine._adopt)
            task, mine.following.task = mine.following.task, None
            if task is not None:
                await task
            if liar.asked > before:
                times.append(clock.now)
            clock.now += 1.0
        mine.assert_unmoved(kept.states[1], kept.links[:1])
        pauses = [after - before for before, after in pairwise(times)]
        assert len(pauses) >= 6
        assert pauses == [min(FIRST_SECONDS * 2**number, LONGEST_SECONDS) for number in range(len(pauses))]
        assert mine.said == []


async def test_links_of_another_swarm(kept, peers_at, identities) -> None:
    """Even where the same peers decide there, and from a state with the same bits."""
    other = KeptRounds(
        kept.manifest.model_copy(update={"name": "other"}),
        [load_identity(path) for path in identities],
        electing=3,
    )
    assert other.states[0].digest == kept.states[0].digest
    other.go_on(1)
    async with peers_at((kept, 0), (kept, ROUNDS)) as [mine, theirs]:
        theirs.tell = lambda _: other.links
        await mine.look()
        assert theirs.asked == 1
        mine.assert_unmoved(kept.states[0], [])


async def test_a_state_that_is_not_to_be_had(kept, peers_at, clock, caplog) -> None:
    """Its links are sound, and nobody has it: we stay, say so, and go there as soon as somebody gives it."""
    caplog.set_level(logging.ERROR)
    async with peers_at((kept, 0), (kept, ROUNDS), (kept, 0)) as [mine, empty, late]:
        blobs = dict(empty.shelf.found)
        for each in (empty, late):
            each.shelf.found.clear()
        empty.exchange.publish(hello(empty.head), [])
        empty.exchange._cache._blobs.clear()
        await mine.look()
        mine.assert_unmoved(kept.states[0], [])
        assert mine.said == [
            CatchingUp(fetching=True, newer=None),
            FetchFailed(),
            CatchingUp(fetching=False, newer=None),
        ]
        assert not await mine.look()  # it is not asked again at once
        late.shelf.found.update(blobs)
        clock.now += FIRST_SECONDS
        await mine.look()
        assert mine.moved == [kept.states[-1].digest]


@dataclass
class Giving:
    """Gives what went into rounds; of the blobs ``huge``, an index that says so."""

    blobs: dict[str, Blob]
    huge: bool = False

    async def fetch_index(self, digest: str, _: object) -> Index:
        index = self.blobs[digest].index
        return replace(index, sizes=(1 << 50,)) if self.huge else index

    async def fetch(self, assembly: Any, *_: object) -> Blob:
        assert not self.huge
        return self.blobs[assembly.index.digest]


async def test_a_link_that_lies_is_refuted(kept) -> None:
    """By what went into it, whoever has signed it: the state that it names is not even fetched."""
    before, link, donors = kept.states[0], kept.links[0], always([])
    giving: Any = Giving(dict(kept.blobs))
    replaying = Replaying(kept.manifest, giving, RoundLog(10, 1 << 24), torch.empty, always=True)
    state = await replaying.replay(before, [link], donors)
    assert state is not None and state.digest == link.after
    with pytest.raises(Refuted, match="does not lead to the state of its link"):
        await replaying.replay(before, [replace(link, after=NOWHERE)], donors)
    giving.huge = True
    with pytest.raises(ValueError, match="not what its digest was given for"):
        await fetch_inputs(kept.manifest, giving, link, before, donors)


async def test_an_average_that_leads_elsewhere_refutes_no_link(kept, make_manifest, caplog) -> None:
    """Nobody has signed it: one who tells a false one keeps nobody from the state, which is fetched."""
    manifest = make_manifest(**reduced_tables(outer=kept.manifest.outer.model_dump()))
    before = kept.states[0]
    form = average_form(manifest, NUMEL)
    average = form.build(Claim(before.round, before.digest, 10), encode_parts(form.codec, kept.values(7)))
    giving: Any = Giving({average.digest: average})
    replaying = Replaying(manifest, giving, RoundLog(10, 1 << 24), torch.empty, always=True)
    link = replace(kept.links[0], average=average.digest)
    assert await replaying.replay(before, [link], always([])) is None
    assert "does not lead to the state of its link" in caplog.text


async def test_a_weak_round_is_computed(kept) -> None:
    """Even where its state would have fewer bytes: few have signed it, and one of them may lie."""
    weak = kept.branch(0).go_on(1, [0], weak=True)
    giving: Any = Giving(kept.blobs | weak.blobs)
    replaying = Replaying(kept.manifest, giving, RoundLog(10, 1 << 24), torch.empty, always=False)
    assert await replaying.replay(kept.states[0], kept.links[:1], always([])) is None
    state = await replaying.replay(kept.states[0], weak.links, always([]))
    assert state is not None and state.digest == weak.links[0].after


async def test_those_whose_word_counts_are_asked_first(kept, peers_at) -> None:
    """A stranger that claims more than anybody holds nobody up."""
    kept = kept.branch(ROUNDS)
    async with peers_at((kept, 1), (kept, ROUNDS), (kept, 1), (kept, 1)) as [mine, member, _, stranger]:
        far = replace(stranger.store.current, round=1 << 40)
        await stranger.be_at(far)
        stranger.tell = lambda _: []
        await mine.look()
        assert (member.asked > 0, stranger.asked) == (True, 0)
        assert mine.moved == [kept.states[-1].digest]


async def test_the_weak_branch_goes_to_the_strong_one(kept, peers_at) -> None:
    """However much longer it has become; and not the other way round."""
    weak, strong = kept.branch(1).go_on(ROUNDS, [2], weak=True), kept.branch(2)
    async with peers_at((strong, 2), (strong, 2), (weak, 1 + ROUNDS)) as peers:
        one, other, third = peers
        assert await until_all_are_there(peers) == strong.states[-1].digest
        assert third.moved == [strong.states[-1].digest]
        assert (one.moved, other.moved) == ([], [])
        assert third.history.chain.links == strong.links
        assert weak.links[-1].after not in third.history.chain


async def test_of_a_branch_that_loses_nothing_more_is_read(kept, peers_at, monkeypatch) -> None:
    """However long it is: its first link tells, and would be on the first page."""
    monkeypatch.setattr(exchange, "LINKS_BYTES_MAX", 1)
    weak, strong = kept.branch(1).go_on(ROUNDS, [2], weak=True), kept.branch(2)
    async with peers_at((strong, 2), (weak, 1 + ROUNDS)) as [mine, theirs]:
        await mine.look()
        assert mine.moved == []
        assert theirs.asked == 1


async def test_of_two_weak_branches_that_of_more_members_stays(kept, peers_at) -> None:
    """Three that were split in one and two: the one goes to where the two are."""
    one = kept.branch(1).go_on(3, [2], weak=True)
    two = kept.branch(1).go_on(1, [0, 1], weak=True)
    async with peers_at((two, 2), (two, 2), (one, 4)) as peers:
        assert await until_all_are_there(peers) == two.states[-1].digest
        assert [each.moved for each in peers[:2]] == [[], []]
        assert peers[2].history.chain.links == two.links


async def test_those_that_began_without_one_another(kept, peers_at) -> None:
    """Three began each alone, and a first peer: of equal branches all choose the same, and nobody swaps."""
    begun = KeptRounds(kept.manifest, kept.keys, electing=0)
    alone = [begun.branch(0).go_on(1, [number], weak=True) for number in range(3)]
    async with peers_at(*((each, 1) for each in alone), (begun, 0)) as peers:
        met = await until_all_are_there(peers)
        assert met == max(each.links[0].after for each in alone)
        assert all(len(each.moved) <= 3 for each in peers)


async def test_a_strangers_weak_link_from_our_own_state(kept, peers_at) -> None:
    """While those who decide are here, nobody of them goes with a newcomer that goes on alone."""
    stranger = kept.branch(1).go_on(1, [3], weak=True)
    async with peers_at(*[(kept, 1)] * 3, (stranger, 2)) as peers:
        members, newcomer = peers[:3], peers[3]
        for each in members:
            each.deciding.is_in_ballots = True
            await each.look()
            each.assert_unmoved(kept.states[1], kept.links[:1])
        assert newcomer.head == stranger.states[-1].digest


@pytest.mark.parametrize("in_ballots", [False, True])
async def test_a_weak_link_of_one_of_three(kept, peers_at, in_ballots: bool) -> None:
    """One that decides and goes on alone takes nobody with it, as long as the other two are here."""
    one = kept.branch(1).go_on(1, [2], weak=True)
    async with peers_at((kept, 1), (kept, 1), (one, 2)) as peers:
        for each in peers[:2]:
            each.deciding.is_in_ballots = in_ballots
            await each.look()
            each.assert_unmoved(kept.states[1], kept.links[:1])


async def test_a_weak_link_is_not_followed_at_once(kept, peers_at) -> None:
    """Whoever does not decide waits as long as those who do may take for a strong link, from each state."""
    one = kept.branch(1).go_on(1, [1], weak=True)
    async with peers_at((kept, 1), (one, 2)) as peers:
        waiting = peers[0]
        waiting.following.patience = 60.0
        waiting.following._head, waiting.following._since = kept.states[0].digest, 0.0
        await waiting.look()
        waiting.assert_unmoved(kept.states[1], kept.links[:1])
        waiting.following.patience = 0.0
        waiting.following._pauses = Pauses(FIRST_SECONDS, LONGEST_SECONDS)
        await waiting.look()
        assert waiting.head == one.states[-1].digest


async def test_a_weak_link_of_all_who_are_left_is_followed_at_once(kept, peers_at) -> None:
    """Nobody is there who could make a strong one."""
    both = kept.branch(1).go_on(1, [0, 1], weak=True)
    async with peers_at((kept, 1), (both, 2)) as [mine, _]:
        mine.following.patience = 60.0
        await mine.look()
        assert mine.moved == [both.states[-1].digest]


async def test_a_state_that_says_otherwise_than_its_links(kept, peers_at) -> None:
    """Whoever has signed for it and gives it: who decides follows from the links alone."""
    false, one = replace(kept.states[2], round=9), kept.branch(1)
    lie = one.link(one.choice(one.values(9), [1], weak=True), false.digest, [1])
    async with peers_at((kept, 1), (kept, 1)) as [mine, liar]:
        await liar.be_at(false)
        liar.tell = lambda known: [lie] if kept.states[1].digest in known else []
        await mine.look()
        assert FetchFailed() in mine.said
        mine.assert_unmoved(kept.states[1], kept.links[:1])


async def test_strangers_have_less_time_to_tell(kept, peers_at, monkeypatch) -> None:
    """They could keep us from those who decide."""
    monkeypatch.setattr(follow, "STRANGER_SECONDS", 0.0)
    by_one = KeptRounds(kept.manifest, kept.keys, electing=1).go_on(1)
    for rounds, moves in ((by_one, False), (kept, True)):
        async with peers_at((rounds, 0), (rounds, 1)) as [mine, _]:
            await mine.look()
            assert bool(mine.moved) == moves


async def test_a_peer_that_was_left_alone_is_found_again(kept, peers_at) -> None:
    """Two of three were away while the third went on by a weak link: they go to it."""
    alone = kept.branch(1).go_on(3, [2], weak=True)
    async with peers_at((kept, 1), (alone, 4)) as peers:
        mine, theirs = peers
        assert await until_all_are_there(peers) == alone.states[-1].digest
        assert (mine.moved, theirs.moved) == ([alone.states[-1].digest], [])
        assert mine.history.chain.electorate.members == {kept.ids[2]}


async def test_a_link_that_was_invented_for_one_of_ours(kept, peers_at) -> None:
    """A stranger signs a weak link to a state to which ours leads already: our own link stays as it is."""
    first = kept.branch(0)
    invented = first.link(first.choice(first.values(9), [3], weak=True), kept.links[0].after, [3])
    async with peers_at((kept, 1), (kept, ROUNDS)) as [mine, theirs]:
        theirs.tell = lambda known: [invented, *kept.links[1:]] if kept.states[1].digest in known else []
        for _ in range(2):
            await mine.look()
        assert_sound(mine.history.chain, kept)
        assert mine.history.chain.links[0] == kept.links[0]


def while_it_fetches(mine: Peer, happens: Callable[[], object]) -> None:
    """This happens here as soon as a peer begins to fetch what others have."""

    def hear(said: object) -> None:
        if said == CatchingUp(fetching=True, newer=None):
            happens()

    mine.following._tell = hear


def end_rounds(mine: Peer, rounds: KeptRounds, number: int) -> None:
    """Rounds end here, by which a peer comes to where ``number`` of these have led."""
    mine.history.follow(rounds.links[len(mine.history.chain.links) : number])
    mine.store.newer = rounds.states[number]


async def test_a_round_that_ends_meanwhile(kept, peers_at) -> None:
    """Others' state is not given up for it where their links lead on from there, too."""
    async with peers_at((kept, 0), (kept, ROUNDS)) as [mine, _]:
        while_it_fetches(mine, lambda: end_rounds(mine, kept, 1))
        await mine.look()
        mine.assert_moved(kept)


async def test_rounds_that_end_on_a_branch_that_loses_meanwhile(kept, peers_at) -> None:
    """One that goes on weakly, round by round, gets to the others all the same, however long that takes."""
    alone = kept.branch(1)
    for _ in range(3):
        alone.end_round([2], weak=True)
    async with peers_at((alone, 2), (kept, ROUNDS)) as [mine, _]:
        while_it_fetches(mine, lambda: end_rounds(mine, alone, 4))
        await mine.look()
        mine.assert_moved(kept)


async def test_a_round_that_wins_meanwhile(kept, peers_at) -> None:
    """What a quorum has decided here while a state was being fetched to which a weak link leads stays."""
    alone = kept.branch(1).go_on(1, [2], weak=True)
    async with peers_at((kept, 1), (alone, 2)) as [mine, _]:
        while_it_fetches(mine, lambda: end_rounds(mine, kept, 2))
        await mine.look()
        mine.assert_moved(kept, 2)


async def test_ballots_that_begin_meanwhile(kept, peers_at) -> None:
    """A weak link that was to be followed, as nobody else was here, is not followed any more."""
    alone = kept.branch(2).go_on(1, [2], weak=True)
    async with peers_at((kept, 1), (alone, 3)) as [mine, _]:

        def meet() -> None:
            end_rounds(mine, kept, 2)
            mine.deciding.is_in_ballots = True

        while_it_fetches(mine, meet)
        await mine.look()
        mine.assert_moved(kept, 2)


async def test_a_state_that_is_reached_meanwhile(kept, peers_at) -> None:
    """Who has come there by rounds of its own, and takes part in the next one, is not called away from it."""
    async with peers_at((kept, 0), (kept, ROUNDS)) as [mine, _]:

        def arrive() -> None:
            end_rounds(mine, kept, ROUNDS)
            mine.store.replace(kept.states[-1])

        while_it_fetches(mine, arrive)
        await mine.look()
        assert mine.moved == []
        assert mine.history.chain.links == kept.links


async def test_states_that_are_reached_while_links_are_told(kept, peers_at, clock) -> None:
    """However often that happens, whoever has told the links is asked again soon: it has not lied."""
    async with peers_at((kept, 0), (kept, 0)) as [mine, theirs]:

        def tell(known: Sequence[str]) -> list[Link]:
            place = len(mine.history.chain.links)
            if place < min(len(theirs.history.chain.links), ROUNDS - 1):
                end_rounds(mine, kept, place + 1)
                mine.store.replace(kept.states[place + 1])
            return theirs.history.chain.since(known)

        theirs.tell = tell
        for number in range(ROUNDS):
            theirs.history.follow(kept.links[number : number + 1])
            await theirs.be_at(kept.states[number + 1])
            assert await mine.look()
            clock.now += FIRST_SECONDS
        assert mine.moved == [kept.states[-1].digest]


async def test_a_round_that_ends_while_links_are_told(kept, peers_at) -> None:
    """They are looked at from where we are by then, and not asked for again: another round could end."""
    async with peers_at((kept, 0), (kept, ROUNDS)) as [mine, theirs]:

        def tell(known: Sequence[str]) -> list[Link]:
            if mine.store.newer is None:
                end_rounds(mine, kept, 1)
            return theirs.history.chain.since(known)

        theirs.tell = tell
        await mine.look()
        mine.assert_moved(kept)


async def test_a_round_that_wins_while_links_are_told(kept, peers_at) -> None:
    """A weak link that would have led on from where we were leads nowhere."""
    alone = kept.branch(1).go_on(1, [2], weak=True)
    async with peers_at((kept, 1), (alone, 2)) as [mine, theirs]:

        def tell(known: Sequence[str]) -> list[Link]:
            if theirs.asked == 2:  # for the next page
                end_rounds(mine, kept, 2)
            return theirs.history.chain.since(known)

        theirs.tell = tell
        await mine.look()
        assert (mine.moved, mine.store.newer) == ([], kept.states[2])
        assert mine.history.chain.links == kept.links[:2]


async def test_the_round_in_which_we_are_goes_on_by_a_link(kept, peers_at) -> None:
    """What it holds of that link's contributions need not be fetched; others are not asked meanwhile."""
    async with peers_at((kept, 0), (kept, 1), (kept, 1)) as [mine, ahead, _]:
        mine.deciding.state = kept.states[0].digest
        assert await mine.look()
        assert mine.deciding.told == kept.links[:1]
        mine.assert_unmoved(kept.states[0], [])
        assert mine.said == []
        mine.deciding.next_state = kept.states[1].digest
        assert not await mine.look()
        await ahead.be_at(kept.states[2])
        ahead.history.follow(kept.links[1:2])
        assert await mine.look()
        assert mine.moved == [kept.states[2].digest]  # it has missed more than the round in which it is
        assert len(mine.deciding.told) == 1


async def test_what_was_signed_for_links_is_compared(kept, peers_at) -> None:
    """With all that was said in ballots, of those that lead on as of those that do not."""
    one = kept.branch(1).go_on(1, [2], weak=True)
    async with peers_at((kept, 2), (one, 2)) as [mine, theirs]:
        mine.deciding.state = kept.states[1].digest
        assert await mine.look()
        assert (mine.deciding.compared, mine.deciding.told) == (one.links[1:], [])
        mine.assert_unmoved(kept.states[2], kept.links[:2])
        assert await theirs.look()
        assert theirs.deciding.compared == kept.links[1:2]
        assert theirs.moved == [kept.states[2].digest]


async def test_one_at_a_time(kept, peers_at) -> None:
    """While something is being fetched, nothing else is begun."""
    async with peers_at((kept, 0), (kept, ROUNDS), (kept, ROUNDS)) as peers:
        mine = peers[0]
        await mine.member.refresh()
        assert not mine.following.is_busy
        mine.following.look(mine._adopt)
        task = mine.following.task
        assert task is not None and mine.following.is_busy
        mine.following.look(mine._adopt)
        assert mine.following.task is task
        await task
        assert not mine.following.is_busy
        assert mine.moved == [kept.states[-1].digest]


async def test_what_is_remembered_of_those_asked_is_bounded(kept, peers_at, clock) -> None:
    """Anybody can make as many keys as it likes: who was not asked for long is forgotten."""
    async with peers_at((kept, 0)) as peers:
        following = peers[0].following
        for number in range(1000):
            following._pauses.note(f"liar{number}", useful=False)
            clock.now += 1.0
        assert len(following._pauses._ends) <= FIRST_SECONDS + LONGEST_SECONDS + 1


def test_when_those_who_decide_may_have_left_our_state() -> None:
    """Not while a quorum is seen there; and nobody goes with strangers while one lives that knows it."""

    def may(living: str, makers: str) -> bool:
        peers = [SimpleNamespace(peer_id=each, record=SimpleNamespace(state_digest=STATE)) for each in living]
        chain = SimpleNamespace(electorate=FIVE)
        following: Any = SimpleNamespace(history=SimpleNamespace(chain=chain), _living=peers)
        return Following._may_be_left(following, link(makers, choice(makers, weak=True)))

    assert [may("abc", "d"), may("ab", "d"), may("a", "xyz"), may("", "xyz")] == [False, True, False, True]
