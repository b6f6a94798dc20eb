"""Who has given what, for somebody who only looks on: by links that are verified, whoever tells them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dupt_swarm.errors import NodeError
from dupt_swarm.network import watching as watching_module
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.states import exchange as exchange_module
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.watching import Watching, _Seen
from dupt_swarm.node.view import View
from dupt_swarm.replica.ledger import Bookkeeping, Ledger
from dupt_swarm.replica.signed_words import BeginningRecord
from tests.support.hello import hello
from tests.support.kept_rounds import KeptRounds


@pytest.fixture
def kept(make_manifest, identities) -> KeptRounds:
    """Four rounds of three."""
    keys = [load_identity(path) for path in identities[:3]]
    return KeptRounds.from_round_0(make_manifest(), keys).go_on(3)


def counted(rounds: KeptRounds) -> Ledger:
    return Bookkeeping().read(rounds.chain())


class Swarm:
    """Peers that tell a chain and give its last state, and somebody who looks on."""

    def __init__(self, mine: Any, others: list[Any], make_peer: Callable[..., Any]) -> None:
        self._others, self._make_peer, self.state = others, make_peer, ""
        self.exchanges = [Exchange(each.p2p) for each in others]
        connection: Any = SimpleNamespace(
            exchange=Exchange(mine.p2p),
            p2p=mine.p2p,
            handshake=SimpleNamespace(peer_ids=[]),
            membership=SimpleNamespace(refresh=self._refresh, holders=self._holders, view=View(0.0, ())),
        )
        self.connection = connection

    async def _refresh(self) -> View:
        peers = (self._make_peer(each.peer_id, state_digest=self.state) for each in self._others)
        self.connection.membership.view = View(0.0, tuple(peers))
        return self.connection.membership.view

    async def _holders(self, _: str) -> list[str]:
        return [each.peer_id for each in self._others]

    def tell_all(self, told: KeptRounds, true: KeptRounds, begins: int = 0) -> None:
        """All peers do so; see `tell`."""
        for place in range(len(self.exchanges)):
            self.tell(place, told, true, begins)

    def tell(self, place: int, told: KeptRounds, true: KeptRounds, begins: int = 0) -> None:
        """This peer tells one chain, from this round on, and gives the last state of the other."""
        self.state, exchange = true.states[-1].digest, self.exchanges[place]
        exchange.publish(hello(self.state), [true.states[-1].blob])
        chain = told.chain().copied_from(told.states[begins].digest)
        record = BeginningRecord.of(chain)
        exchange.tell_links(chain.since, lambda: record)


@pytest.fixture
def looking(kept, stations, make_peer):
    """``async with looking() as swarm``: one of two peers."""

    @asynccontextmanager
    async def start() -> AsyncIterator[Swarm]:
        async with stations(3) as (mine, *others):
            await connect(mine.p2p, [each.address for each in others])
            swarm = Swarm(mine, others, make_peer)
            swarm.connection.manifest = kept.manifest
            for each, exchange in zip(others, swarm.exchanges, strict=True):
                await each.p2p.serve(exchange)
            yield swarm

    return start


async def test_it_goes_on_with_what_it_knows(kept, looking, monkeypatch) -> None:
    """The first time all links are fetched, then those that are new."""
    async with looking() as swarm:
        swarm.tell_all(kept, kept)
        watching, asked = Watching(swarm.connection), []
        links_of = swarm.connection.exchange.links_of

        def note(peer: str, known: list[str], **how: bool) -> Any:
            asked.append(len(known))
            return links_of(peer, known, **how)

        monkeypatch.setattr(swarm.connection.exchange, "links_of", note)
        assert await watching.ledger() == counted(kept)
        assert await watching.ledger() == counted(kept)
        kept.go_on(2)
        swarm.tell_all(kept, kept)
        assert await watching.ledger() == counted(kept)
        assert counted(kept).round == 6
        assert asked[0] == 0
        assert len(asked) == 2
        assert asked[1] > 0


async def test_what_comes_after_the_state_does_not_count(kept, looking) -> None:
    """Anybody can sign weak links that go on from it, with as many tokens as they like."""
    forged = kept.branch(4)
    liar = KeptRounds(kept.manifest, kept.keys[:1], 1, [forged.states[-1]]).go_on(1, weak=True)
    forged.links, forged.states = [*forged.links, *liar.links], [*forged.states, *liar.states[1:]]
    async with looking() as swarm:
        swarm.tell_all(forged, kept)
        watching = Watching(swarm.connection)
        for _ in range(2):
            assert await watching.ledger() == counted(kept)


async def test_a_chain_that_begins_late_is_the_last_choice(kept, looking, monkeypatch) -> None:
    """Newcomers' do, and a liar's might: who has all of it is looked for, from time to time again."""
    async with looking() as swarm:
        swarm.tell_all(kept, kept, begins=2)
        watching = Watching(swarm.connection)
        assert (await watching.ledger()).begins == 2
        swarm.tell(0, kept, kept)
        assert (await watching.ledger()).begins == 2
        monkeypatch.setattr(watching_module, "WHOLE_SECONDS", 0.0)
        for _ in range(3):
            assert await watching.ledger() == counted(kept)


async def test_more_pages_than_are_told_at_once(kept, looking, monkeypatch) -> None:
    """Whoever asks goes on from where the last ones ended."""
    monkeypatch.setattr(exchange_module, "LINKS_BYTES_MAX", 1)  # one link a page
    monkeypatch.setattr(exchange_module, "PAGES_MAX", 2)
    kept.go_on(6)
    async with looking() as swarm:
        swarm.tell_all(kept, kept)
        assert await Watching(swarm.connection).ledger() == counted(kept)


async def test_a_peer_that_tells_another_chain_is_passed_over(kept, looking) -> None:
    """It does not lead to the state that half of the oracles have, or not with that one's electorate."""
    other = kept.branch(2)
    other.end_round(weak=True, number=50)
    other.end_round(weak=True, number=70)
    async with looking() as swarm:
        swarm.tell(0, other, kept)
        swarm.tell(1, kept, kept)
        for _ in range(4):  # it draws the peer that it asks first
            assert await Watching(swarm.connection).ledger() == counted(kept)


async def test_where_nobody_tells_the_chain_that_is_said(kept, looking) -> None:
    """Rather than something that cannot be verified."""
    other = kept.branch(2)
    async with looking() as swarm:
        swarm.tell_all(other, kept)
        with pytest.raises(NodeError, match="nobody tells the links of the rounds"):
            await Watching(swarm.connection).ledger()


async def test_a_branch_that_the_swarm_has_left_counts_no_more(kept, looking) -> None:
    """Whoever looks on follows, too."""
    weak = kept.branch(2)
    weak.end_round(weak=True, number=50)
    async with looking() as swarm:
        swarm.tell_all(weak, weak)
        watching = Watching(swarm.connection)
        assert await watching.ledger() == counted(weak)
        swarm.tell_all(kept, kept)
        assert await watching.ledger() == counted(kept)


def test_what_a_chain_must_count(kept) -> None:
    """The tokens that the state has."""
    watching, state = Watching(cast(Any, SimpleNamespace(manifest=kept.manifest))), kept.states[-1]
    seen = _Seen(state.digest, state.electorate, state.swarm_tokens)
    watching._check(kept.chain(), seen)
    with pytest.raises(ValueError, match="count other tokens"):
        watching._check(kept.chain(), replace(seen, tokens=seen.tokens + 1))
