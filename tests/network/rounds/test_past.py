"""How a peer that has joined in the middle learns the rounds before: real links, told on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.bandwidth import TokenBucket
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.p2p.pauses import Pauses
from dupt_swarm.network.rounds import past
from dupt_swarm.network.rounds.history import History
from dupt_swarm.network.rounds.past import FIRST_SECONDS, Past, by_trust, chain_of
from dupt_swarm.network.states import exchange
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.replica.chain import Chain, counted_in
from dupt_swarm.replica.chain_file import ChainFile
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Brought, Choice, Link
from dupt_swarm.replica.signed_words import BeginningRecord, LinkRecord, Words
from tests.support.driven_swarm import Cluster
from tests.support.kept_rounds import EXACT, KeptRounds, forged
from tests.support.saved_models import small_manifest
from tests.support.waiting import wait_until

JOINED = 3  # the round of the state with which we have joined
ROUNDS = 5


@pytest.fixture
def kept(make_manifest, identities) -> KeptRounds:
    """Five rounds of three since round 0, and a fourth that never takes part."""
    keys = [load_identity(path) for path in identities[:4]]
    rounds = KeptRounds.from_round_0(make_manifest(**EXACT), keys[:3]).go_on(ROUNDS - 1)
    return replace(rounds, keys=keys)


@dataclass
class Newcomer:
    """One that has joined, and another that it can ask.

    Attributes:
        history: its own, of the rounds since.
        asks: learns those before.
        donor: the other's peer id.
        told: how many answers it has given.
    """

    history: History
    asks: Past
    donor: str
    exchange: Exchange
    told: int = 0


Tell = Callable[[Sequence[str]], Sequence[Link]]


@pytest.fixture
def joined(
    kept, stations, make_peer, tmp_path, monkeypatch
) -> Callable[..., AbstractAsyncContextManager[Newcomer]]:
    """``async with joined(tell, begins) as newcomer``: the other tells these links, which begin there."""
    monkeypatch.setattr(past, "LOOK_SECONDS", 0.01)

    @asynccontextmanager
    async def start(tell: Tell, begins: Chain | None) -> AsyncIterator[Newcomer]:
        async with stations(2) as [giving, asking]:
            await connect(asking.p2p, [giving.address])
            history = History(kept.states[JOINED], Words(kept.manifest.swarm_id), tmp_path / "chain")
            history.follow(kept.links[JOINED:])
            member = Membership(kept.manifest, asking.p2p, asking.key)
            member.living = (make_peer(giving.peer_id),)
            theirs, ours = Exchange(giving.p2p), Exchange(asking.p2p)
            newcomer = Newcomer(history, Past(history, member, ours, kept.manifest), giving.peer_id, ours)

            def count(known: Sequence[str]) -> Sequence[Link]:
                newcomer.told += 1
                return tell(known)

            theirs.tell_links(count, lambda: None if begins is None else BeginningRecord.of(begins))
            await giving.p2p.serve(theirs)
            yield newcomer

    return start


def on_disk(kept: KeptRounds, path: Path) -> Chain:
    """What is kept there."""
    return ChainFile(path, Words(kept.manifest.swarm_id)).load()


async def test_all_rounds_are_learnt(kept, joined, tmp_path, monkeypatch) -> None:
    """From round 0 on, page by page, in memory and on disk; and rounds go on as before."""
    longest = max(len(LinkRecord.of(link).to_bytes()) for link in kept.links)
    monkeypatch.setattr(exchange, "LINKS_BYTES_MAX", longest + 1)
    chain = kept.chain()
    async with joined(chain.since, chain) as newcomer:
        await newcomer.asks.learn()
        assert newcomer.told == JOINED
        found = newcomer.history.chain
        assert (found.first, found.links) == (kept.states[0].digest, kept.links)
        assert found.electorate == kept.states[-1].electorate
        assert on_disk(kept, tmp_path / "chain").links == kept.links
        kept.end_round()
        newcomer.history.follow(kept.links[-1:])
        assert on_disk(kept, tmp_path / "chain").links == kept.links


async def test_it_counts_as_received(kept, joined) -> None:
    """Where our rate is limited, what comes next waits until it may."""
    chain = kept.chain()
    async with joined(chain.since, chain) as newcomer:
        size = sum(len(LinkRecord.of(link).to_bytes()) for link in kept.links)
        received = newcomer.exchange._p2p.bandwidth.download = TokenBucket(rate=size / 10)
        await newcomer.asks.learn()
        assert received.debt_seconds > 5


@pytest.mark.parametrize("weak", [False, True], ids=["goes on", "wins"])
async def test_a_round_that_ends_while_it_is_written(kept, joined, tmp_path, monkeypatch, weak: bool) -> None:
    """It is on disk too, whether it goes on from ours or takes the place of a weak one."""
    branch = kept.branch(ROUNDS - 1).go_on(1, [0], weak=True)
    chain, write = kept.chain(), ChainFile.write
    kept.end_round()
    async with joined(chain.since, chain) as newcomer:
        history, loop = newcomer.history, asyncio.get_running_loop()
        if weak:
            history.chain.cut(kept.states[ROUNDS - 1].digest)
            history.follow(branch.links[-1:])

        async def follow() -> None:
            history.follow(kept.links[ROUNDS - 1 :])

        def slowly(file: ChainFile, chain: Chain) -> None:
            monkeypatch.undo()
            write(file, chain)
            asyncio.run_coroutine_threadsafe(follow(), loop).result(10)

        monkeypatch.setattr(ChainFile, "write", slowly)
        await newcomer.asks.learn()
        assert history.chain.links == on_disk(kept, tmp_path / "chain").links == kept.links


def by_a_stranger(kept: KeptRounds) -> list[Link]:
    """It alone has made weak links to the very states: so it says, and whose contributions counted."""
    branch = kept.branch(0)
    found = []
    for number in range(JOINED):
        brought = tuple(Brought(peer, "0" * 64, 10) for peer in sorted(kept.ids))
        found.append(branch.link(Choice(brought, weak=True), kept.states[number + 1].digest, [3]))
        branch.states.append(kept.states[number + 1])
    return found


def of_another_swarm(kept: KeptRounds) -> list[Link]:
    """The same peers made them, from the same state on."""
    manifest = kept.manifest.model_copy(update={"name": "other"})
    other = KeptRounds.from_round_0(manifest, kept.keys[:3], kept.states[0])
    return [*other.links, *kept.links[1:]]


LIES: dict[str, Callable[[KeptRounds], Sequence[Link]]] = {
    "nothing": lambda _: [],
    "a forged signature": lambda kept: [kept.links[0], forged(kept.links[1]), *kept.links[2:]],
    "one is missing": lambda kept: [kept.links[0], *kept.links[2:]],
    "cut": lambda kept: kept.links[:1],
    "one too many": lambda kept: [kept.links[0], kept.links[0], *kept.links[1:]],
    "of another swarm": of_another_swarm,
    "less than a quorum": lambda kept: [
        kept.links[0],
        replace(kept.links[1], acceptances=kept.links[1].acceptances[:1]),
        *kept.links[2:],
    ],
    "to the same states by a stranger": by_a_stranger,
}


@pytest.mark.parametrize("lie", LIES)
async def test_lies_are_not_taken(kept, joined, monkeypatch, lie: str) -> None:
    """Our chain stays as it is, and who tells them is not asked again at once."""
    told = LIES[lie](kept)
    now = [1000.0]
    monkeypatch.setattr(past, "Pauses", partial(Pauses, clock=lambda: now[0]))

    def tell(known: Sequence[str]) -> Sequence[Link]:
        return [] if known else told

    async with joined(tell, kept.chain(0)) as newcomer:
        learning = asyncio.create_task(newcomer.asks.learn())
        for times in (1, 2):
            await asyncio.sleep(0.3)
            chain = newcomer.history.chain
            assert (chain.first, chain.links) == (kept.states[JOINED].digest, kept.links[JOINED:])
            assert newcomer.told in (times, 2 * times)  # a page, and maybe that there is no other
            now[0] += FIRST_SECONDS
        learning.cancel()


@pytest.mark.parametrize("begins", [None, 1, JOINED], ids=["nowhere", "in the middle", "where ours does"])
async def test_a_peer_that_does_not_know_it_either(kept, joined, begins: int | None) -> None:
    """A chain that does not begin with round 0 takes the place of none."""
    chain = kept.chain() if begins is None else kept.chain().copied_from(kept.states[begins].digest)
    async with joined(chain.since, None if begins is None else chain) as newcomer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(newcomer.asks.learn(), 0.5)
        assert newcomer.history.chain.first == kept.states[JOINED].digest
        assert newcomer.told == 1


async def test_the_first_state_that_the_manifest_names(kept, joined) -> None:
    """A past that begins with another one is not this swarm's."""
    chain = kept.chain()
    async with joined(chain.since, chain) as newcomer:
        ours = newcomer.history.chain
        for digest in ("", kept.states[0].digest):
            named = kept.manifest.model_copy(update={"initial_digest": digest})
            given = (newcomer.exchange, newcomer.donor, named, ours.first, ours.electorate_of(ours.first))
            assert (await chain_of(*given, whole=True)).links == kept.links[:JOINED]
        named = kept.manifest.model_copy(update={"initial_digest": "1" * 64})
        with pytest.raises(ValueError, match="another state than the manifest names"):
            await chain_of(
                newcomer.exchange, newcomer.donor, named, ours.first, ours.electorate_of(ours.first)
            )


@pytest.mark.parametrize(
    ("known", "lacking"),
    [
        (lambda kept, _: kept.chain(2), ROUNDS - 2),
        (lambda _, left: left.chain(), ROUNDS - 3),
        (lambda kept, _: kept.go_on(1).chain(), 0),
    ],
    ids=["a part", "a branch that was left", "more"],
)
async def test_a_known_chain_is_gone_on_with(kept, joined, known, lacking: int) -> None:
    """What it has is not told again, and what does not lead to the state is cut, of a copy."""
    chain, state = kept.chain(), kept.states[-1]
    left = kept.branch(3).go_on(1, [0], weak=True)
    ours, told = known(kept, left), list[Link]()

    def tell(known: Sequence[str]) -> Sequence[Link]:
        links = chain.since(known)
        told.extend(links)
        return links

    async with joined(tell, chain) as newcomer:
        where = newcomer.exchange, newcomer.donor, kept.manifest
        before = list(ours.links)
        found = await chain_of(*where, state.digest, state.electorate, known=ours)
        assert (found.first, found.links) == (chain.first, chain.links)
        assert told == chain.links[ROUNDS - lacking :] and ours.links == before
        with pytest.raises(ValueError, match="another electorate"):
            await chain_of(*where, state.digest, Electorate(state.round), known=ours)


def weakly(kept: KeptRounds, rounds: int, *, aside: bool) -> list[Link]:
    """What a stranger can sign: weak links on from there, where one has given for another, to the last state.

    ``aside``: by states that nobody has.
    """
    liar = kept.branch(rounds)
    for link, state in zip(kept.links[rounds:], kept.states[rounds + 1 :], strict=True):
        first, second, third = link.choice.brought
        brought = replace(first, tokens=first.tokens + 9), replace(second, tokens=second.tokens - 9), third
        after = replace(state, anchor=state.anchor + 1) if aside and link is not kept.links[-1] else state
        choice = replace(link.choice, brought=brought, weak=True)
        liar.links.append(liar.link(choice, after.digest, [3]))
        liar.states.append(after)
    assert liar.chain().electorate == kept.states[-1].electorate
    assert sum(counted_in(liar.links).values()) == kept.states[-1].swarm_tokens
    return liar.links


@pytest.mark.parametrize("begins", [0, 1, 2])
@pytest.mark.parametrize("page_bytes", [1, exchange.LINKS_BYTES_MAX])
async def test_what_is_known_is_not_told_otherwise(kept, joined, monkeypatch, page_bytes, begins) -> None:
    """What a quorum has signed is not replaced by what anybody can sign, from wherever on that is told."""
    monkeypatch.setattr(exchange, "LINKS_BYTES_MAX", page_bytes)
    known, state, told = kept.chain(ROUNDS - 1), kept.states[-1], list[Link]()

    def tell(states: Sequence[str]) -> Sequence[Link]:
        place = next((place for place, link in enumerate(told) if [link.after] == [*states]), -1)
        return told[begins if len(states) > 1 else place + 1 :]

    async with joined(tell, kept.chain()) as newcomer:
        where = newcomer.exchange, newcomer.donor, kept.manifest, state.digest, state.electorate
        for told in (kept.links, weakly(kept, 2, aside=False)):
            found = await chain_of(*where, known=known)
            assert [link.choice for link in found.links] == [link.choice for link in [*known.links, told[-1]]]
        told = weakly(kept, 2, aside=True)
        with pytest.raises(ValueError, match="part from what is known"):
            await chain_of(*where, known=known)
        told = kept.links[:3] * 2  # and so on
        with pytest.raises(ValueError, match="do not follow from one another"):
            await chain_of(*where, known=known)


async def test_a_past_that_leads_elsewhere(kept, tmp_path) -> None:
    """It is not begun with, and no link is taken beyond the round of our state: liars have any number."""
    words, ours = Words(kept.manifest.swarm_id), kept.states[JOINED]
    history = History(ours, words, tmp_path / "chain")
    with pytest.raises(ValueError, match="does not lead to our chain"):
        await history.begin(kept.chain())
    assert history.chain.links == [] and history.chain.begins == JOINED
    chain = kept.chain(0)
    with pytest.raises(ValueError, match="go on after the round of the state"):
        past._follow(chain, list(map(LinkRecord.of, kept.links)), words, chain.head, "f" * 64, JOINED)
    assert chain.links == kept.links[:JOINED]


def test_which_peer_is_asked_first(make_peer) -> None:
    """Those who decide, and then first peers: they were there from the beginning."""
    peers = [make_peer("a"), make_peer("b", role="bootstrap"), make_peer("c"), make_peer("d")]
    assert [peer.peer_id for peer in by_trust(peers, {"c"})][:2] == ["c", "b"]


@pytest.mark.usefixtures("nothing_left")
def test_an_oracle_that_joins_late(tmp_path) -> None:
    """It has the links of all rounds on disk soon, and goes on with them."""
    manifest = small_manifest()
    with Cluster(tmp_path, manifest, names=("ada",)) as cluster:
        cluster.end_round()
        cluster.end_round()
        late = cluster.add("late")

        def links() -> list[Link]:
            return ChainFile(late.folder.chain, Words(manifest.swarm_id)).load().links

        wait_until(lambda: len(links()) == 2, "it has learnt the rounds before")
        cluster.end_round()
        wait_until(lambda: len(links()) == 3, "the next round is kept with them")
