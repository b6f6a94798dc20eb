"""The chain that comes along with a pulled state, of peers that know all of it, a part, or nothing."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dupt_swarm.errors import CheckpointError
from dupt_swarm.network import pulling
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.node.view import View
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.signed_words import BeginningRecord
from tests.support.kept_rounds import KeptRounds

ROUNDS = 4
PULLED = 3  # the state after so many rounds; peers have gone on since


@pytest.fixture
def kept(make_manifest, identities) -> KeptRounds:
    """Four rounds of three."""
    keys = [load_identity(path) for path in identities[:3]]
    return KeptRounds.from_round_0(make_manifest(), keys).go_on(ROUNDS - 1)


async def pulled(
    kept: KeptRounds, stations: Any, make_peer: Any, known: Sequence[int | None]
) -> Chain | None:
    """What an observer gets where each peer's chain begins at this round; None: it tells nothing."""
    async with stations(1 + len(known)) as (mine, *others):
        await connect(mine.p2p, [each.address for each in others])
        for round, each in zip(known, others, strict=True):
            exchange = Exchange(each.p2p)
            if round is not None:
                chain = kept.chain().copied_from(kept.states[round].digest)
                begins = BeginningRecord.of(chain)
                exchange.tell_links(chain.since, lambda begins=begins: begins)  # type: ignore[misc]
            await each.p2p.serve(exchange)

        async def refresh() -> View:
            return View(0.0, tuple(make_peer(each.peer_id) for each in others))

        connection: Any = SimpleNamespace(
            manifest=kept.manifest,
            exchange=Exchange(mine.p2p),
            handshake=SimpleNamespace(peer_ids=[each.peer_id for each in others]),
            membership=SimpleNamespace(refresh=refresh),
        )
        return await pulling._chain_to(kept.states[PULLED], connection)


@pytest.mark.parametrize(
    ("known", "begins"), [((None, 2, 0), 0), ((2, None, 1), 1), ((ROUNDS, PULLED), PULLED)], ids=str
)
async def test_the_chain_begins_as_early_as_anybody_tells(
    kept, stations, make_peer, known: Sequence[int | None], begins: int
) -> None:
    """It leads to the state, whatever came after, and is verified from where it begins."""
    chain = await pulled(kept, stations, make_peer, known)
    assert chain is not None
    assert (chain.first, chain.head) == (kept.states[begins].digest, kept.states[PULLED].digest)
    assert chain.links == kept.links[begins:PULLED]


async def test_where_nobody_tells_any(kept, stations, make_peer) -> None:
    """There is none: the state is pulled all the same."""
    assert await pulled(kept, stations, make_peer, [None, None]) is None


def test_a_disk_that_is_full(kept, tmp_path) -> None:
    """It is the same error as of the state itself."""
    with pytest.raises(CheckpointError, match="cannot be written"):
        pulling._save_chain(kept.chain(), kept.manifest, tmp_path / "none" / "chain.jsonl")
