"""What an audit, and a peer that is behind, make of links that are honest, forged or incomplete."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dupt_swarm.network import auditing
from dupt_swarm.network.auditing import Auditor
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.states import exchange
from dupt_swarm.network.states.download import always
from dupt_swarm.network.states.exchange import Exchange, LinksMessage
from dupt_swarm.network.states.replaying import Replaying, RoundLog
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.link import Choice, Link
from dupt_swarm.replica.signed_words import LinkRecord, Words
from tests.support.kept_rounds import EXACT, KeptRounds, Shelf, forged
from tests.support.words import FIVE, choice
from tests.support.words import link as link_by

NUMBERS = (9, 19, 29)  # of contributions so large that a bit of them is one of the state


@pytest.fixture
def kept(make_manifest, identities) -> KeptRounds:
    """Three honest rounds of one who decides alone."""
    keys = [load_identity(path) for path in identities[:2]]
    rounds = KeptRounds(make_manifest(**EXACT), keys, electing=1)
    for number in NUMBERS:
        rounds.end_round(number=number)
    return rounds


@pytest.fixture
def keeper(stations, kept) -> Callable[..., Any]:
    """``async with keeper() as (exchange, donor)``: one peer keeps these rounds, another asks it."""

    @asynccontextmanager
    async def start(
        tell: Callable[[Sequence[str]], Sequence[Link]] | None = None,
    ) -> AsyncIterator[tuple[Exchange, str]]:
        async with stations(2) as [donor, asking]:
            await connect(asking.p2p, [donor.address])
            given = Exchange(donor.p2p)
            given.serve_from(Shelf(kept.blobs | {state.digest: state.blob for state in kept.states}))
            given.tell_links(tell or kept.chain().since)
            await donor.p2p.serve(given)
            yield Exchange(asking.p2p), str(donor.p2p.peer_id)

    return start


def flipped(values: torch.Tensor) -> torch.Tensor:
    """One bit of them is another: the last of the last mantissa."""
    bits = values.clone().view(torch.int32)
    bits[-1] ^= 1
    return bits.view(torch.float32)


def connection_of(kept: KeptRounds, exchange: Exchange) -> Any:
    """What an auditor sees of a swarm."""
    return SimpleNamespace(manifest=kept.manifest, exchange=exchange)


async def verdicts(
    kept: KeptRounds, keeper, chain: list[Link], holding: slice = slice(None), last: int = 4
) -> list[tuple[str, str]]:
    """What an audit says of the rounds in ``chain``, where somebody holds these states."""
    async with keeper() as (exchange, donor):
        auditor = Auditor(
            connection=connection_of(kept, exchange),
            store=StateStore(kept.manifest, exchange),
            peers=[donor],
            links={link.after: [link] for link in chain},
            holders={state.digest: [donor] for state in kept.states[holding]},
        )
        found = auditor.chain_to(chain[-1].after)
        assert found == chain
        judged = await auditor.walk(found, len(found), last)
        assert [each.round for each in judged] == [last - 2, last - 1, last]
        assert [each.contributions for each in judged] == [len(link.choice.brought) for link in chain]
        return [(each.verdict, each.reason) for each in judged]


async def test_honest_rounds_are_equal(kept, keeper) -> None:
    """Each leads to the state that its link names."""
    assert await verdicts(kept, keeper, kept.links) == [("equal", "")] * 3


async def test_one_state_is_enough(kept, keeper) -> None:
    """From the oldest one all others are computed."""
    assert await verdicts(kept, keeper, kept.links, slice(1)) == [("equal", "")] * 3


async def test_a_flipped_bit_is_found(kept, keeper) -> None:
    """A contribution that differs in one bit, of its own maker, leads elsewhere; the rest is equal."""
    last = kept.links.pop()
    kept.states.pop()
    false = kept.link(kept.choice(flipped(kept.values(NUMBERS[-1])), [0]), last.after, [0])
    *equal, (verdict, reason) = await verdicts(kept, keeper, [*kept.links, false])
    assert equal == [("equal", "")] * 2
    assert (verdict, reason[:22]) == ("differs", "it leads to the state ")


def more_tokens(kept: KeptRounds, link: Link, by: int | None) -> Link:
    """A link like that one, with more tokens than were contributed; ``by`` signs it, or nobody does."""
    [brought] = link.choice.brought
    choice = Choice((replace(brought, tokens=1000),))
    if by is None:
        return replace(link, choice=choice)
    return kept.branch(1).link(choice, link.after, [by])


@pytest.mark.parametrize(
    ("by", "problem"),
    [
        (None, "acceptances of something else"),
        (0, "not what its digest was given for"),
        (1, "less than a quorum"),
    ],
)
async def test_a_forged_link_is_found(kept, keeper, by: int | None, problem: str) -> None:
    """Whoever has signed it; and the next round is judged from the state that was claimed."""
    false = more_tokens(kept, kept.links[1], by)
    first, second, third = await verdicts(kept, keeper, [kept.links[0], false, kept.links[2]])
    assert (first[0], second[0], third[0]) == ("equal", "differs", "equal")
    assert problem in second[1]


async def test_what_is_gone_is_no_longer_held(kept, keeper) -> None:
    """A round without its contributions cannot be judged; a damaged one is not given for the real one."""
    [brought] = kept.links[1].choice.brought
    damaged = bytearray(kept.blobs[brought.digest].sections[0])
    damaged[5] ^= 1
    kept.blobs[brought.digest] = Blob(kept.blobs[brought.digest].index, (memoryview(damaged),))
    first, second, third = await verdicts(kept, keeper, kept.links)
    assert (first[0], second[0], third[0]) == ("equal", "no longer held", "equal")
    assert "does not have the hash" in second[1]


async def test_what_follows_a_state_that_nobody_holds(kept, keeper) -> None:
    """Rounds are judged from the first state on that somebody still has."""
    first, second, third = await verdicts(kept, keeper, kept.links, slice(2, 3))
    assert first == second == ("no longer held", "nobody holds the state before it")
    assert third == ("equal", "")


async def test_whether_what_is_gone_was_signed(kept, keeper, identities) -> None:
    """Where all links since round 0 are told, those of whoever decided are checked without any state."""
    keys = [load_identity(path) for path in identities[:2]]
    begun = KeptRounds.from_round_0(kept.manifest, keys).go_on(2)
    gone = ("no longer held", "nobody holds the state before it, but those who decided have signed")
    assert await verdicts(begun, keeper, begun.links, slice(0), last=3) == [gone] * 3
    few = replace(begun.links[1], acceptances=begun.links[1].acceptances[:1])
    first, second, third = await verdicts(
        begun, keeper, [begun.links[0], few, begun.links[2]], slice(0), last=3
    )
    assert first == third == gone
    assert (second[0], "less than a quorum" in second[1]) == ("differs", True)


async def links_of(
    kept: KeptRounds, keeper, tell: Callable[[Sequence[str]], Sequence[Link]] | None
) -> list[Link]:
    """What an auditor takes of what a peer tells."""
    async with keeper(tell) as (exchange, donor):
        words = Words(kept.manifest.swarm_id)
        return await auditing._links_of(connection_of(kept, exchange), donor, words)


async def test_links_longer_than_one_answer(kept, keeper, monkeypatch) -> None:
    """They are asked for again from where the last answer ended."""
    longest = max(len(LinkRecord.of(link).to_bytes()) for link in kept.links)
    monkeypatch.setattr(exchange, "LINKS_BYTES_MAX", longest + 1)
    assert len(LinksMessage.of(kept.links).links) == 1
    with monkeypatch.context() as small:
        small.setattr(exchange, "LINKS_BYTES_MAX", 1)  # else a longer one would hold up all who are behind
        assert len(LinksMessage.of(kept.links).links) == 1
    assert await links_of(kept, keeper, None) == kept.links


async def test_a_peer_that_tells_links_without_end(kept, keeper, monkeypatch) -> None:
    """The same again and again: it is not asked for ever."""
    monkeypatch.setattr(exchange, "PAGES_MAX", 4)
    assert await links_of(kept, keeper, lambda _: kept.links[:1]) == kept.links[:1] * 4


async def test_links_that_nobody_signed_are_not_taken(kept, keeper) -> None:
    """Of a peer that passes one on nothing is taken from there on."""

    def tell(known: Sequence[str]) -> Sequence[Link]:
        return kept.links[:1] if not known else [forged(kept.links[1])]

    assert await links_of(kept, keeper, tell) == kept.links[:1]


async def test_a_peer_that_is_behind_computes(kept, keeper) -> None:
    """From an old state it comes to the very state that it could have fetched, and keeps the rounds."""
    async with keeper() as (exchange, donor):
        donors = always([donor])
        log = RoundLog(10, 1 << 20)
        replaying = Replaying(kept.manifest, exchange, log, torch.empty, always=True)
        wanted = kept.states[-1].digest
        state = await replaying.replay(kept.states[0], kept.links, donors)
        fetched = await StateStore(kept.manifest, exchange).fetch(wanted, donors)
        assert state is not None
        assert state.digest == fetched.digest == wanted
        assert all(log.get(digest) is not None for digest in kept.blobs)
        oracle = Replaying(kept.manifest, exchange, RoundLog(10, 0), torch.empty, always=False)
        assert await oracle.replay(kept.states[0], kept.links, donors) is None  # the state has fewer bytes
        for wrong in (replace(kept.links[2], choice=kept.links[1].choice), kept.links[0]):
            links = [*kept.links[:2], wrong]
            assert await replaying.replay(kept.states[0], links, donors) is None  # and is fetched


def test_what_the_log_keeps(kept) -> None:
    """The last rounds within the limit, the last one in any case, and a state to begin from."""
    rounds = [
        (link.after, {each.digest: kept.blobs[each.digest] for each in link.choice.brought}, state)
        for link, state in zip(kept.links, kept.states, strict=False)
    ]
    [first], [second], [last] = (list(blobs) for _, blobs, _ in rounds)
    log = RoundLog(1, 1 << 20)
    for each in rounds:
        log.add(*each)
    assert log.get(first) is None
    assert [log.get(digest) for digest in (second, last)] == [kept.blobs[second], kept.blobs[last]]
    kept_states = [blob.digest for blob in log.blobs if "layout" in blob.index.header]
    assert kept_states and set(kept_states) <= {state.digest for state in kept.states[1:3]}
    assert log.get(kept_states[0]) is not None
    assert log.bytes == sum(sum(blob.index.sizes) for blob in log.blobs)
    small = RoundLog(10, 1)
    for each in rounds:
        small.add(*each)
    assert [blob.digest for blob in small.blobs] == [last]
    three = {digest: blob for _, blobs, _ in rounds for digest, blob in blobs.items()}
    full = RoundLog(10, 2 * sum(kept.states[0].blob.index.sizes))
    full.add(kept.links[0].after, three, kept.states[0])  # with the state it would be more than the limit
    assert {blob.digest for blob in full.blobs} == three.keys()


def test_a_large_state_gives_way_to_several_rounds(kept) -> None:
    """It would take the log of a model of 117 million weights for itself."""
    log = RoundLog(10, 4 * 4 * kept.states[0].anchor.numel())
    for link, state in zip(kept.links, kept.states, strict=False):
        large = replace(state, buffers=dict.fromkeys(("mean", "variance"), state.anchor))
        log.add(link.after, {each.digest: kept.blobs[each.digest] for each in link.choice.brought}, large)
    brought = [each.digest for link in kept.links for each in link.choice.brought]
    assert [blob.digest for blob in log.blobs] == brought


def auditor(links: dict[str, list[Link]]) -> Auditor:
    """One that was told these."""
    nothing: Any = None
    return Auditor(nothing, nothing, [], links, {})


def test_which_of_several_links_counts() -> None:
    """A strong one, however often weak ones are told; of equals the one that most tell."""
    strong, weak = link_by("abc", choice("abc")), link_by("x", choice("x", weak=True))
    other = link_by("abd", choice("abcde"))
    assert auditor({strong.after: [weak, weak, strong]}).chain_to(strong.after) == [strong]
    assert auditor({strong.after: [strong, other, other]}).chain_to(strong.after) == [other]


def test_links_that_lead_in_a_circle() -> None:
    """Anybody can sign some: they are followed once."""
    there = link_by("x", choice("x", weak=True))
    back = replace(there, state=there.after, after=there.state)
    looked: list[str] = []

    class Told(dict[str, list[Link]]):
        def __getitem__(self, digest: str) -> list[Link]:
            looked.append(digest)
            assert len(looked) < 10
            return super().__getitem__(digest)

    told = Told({there.after: [there], back.after: [back]})
    assert set(auditor(told).chain_to(there.after)) == {there, back}


def test_a_link_that_lies_about_the_contributions() -> None:
    """That others have signed for the same state says nothing for it."""
    signed, lie = link_by("abc", choice("abc")), link_by("x", choice("x"))
    told = auditor({signed.after: [signed, lie]})
    told._check(signed, FIVE)
    told._check(replace(lie, choice=signed.choice), FIVE)
    with pytest.raises(ValueError):
        told._check(lie, FIVE)
