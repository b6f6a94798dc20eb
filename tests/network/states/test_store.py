"""How a peer fetches a state: only what it lacks, again after an interruption, and nothing oversized."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
import torch
from hivemind.p2p import PeerID

from dupt_swarm.errors import CheckpointError, NodeError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.network.states import store as store_module
from dupt_swarm.network.states.download import always
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.store import StateStore, numel_max
from dupt_swarm.replica import blob as blob_module
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import save_state
from tests.support.direct import Direct
from tests.support.tiny import tiny_manifest

CHUNK = 256
DONOR = PeerID(b"\x12\x20" + bytes(32)).to_base58()
DONORS = always([DONOR])


class Noting(Direct):
    """Notes the chunks that it asks for, and loses its connection when so many have come."""

    def __init__(self, donor: Exchange) -> None:
        super().__init__("joiner", {DONOR: donor})
        self.asked: list[int] = []
        self.gives_until = 10**9

    async def stream(self, peer, method, request):
        self.asked += request.numbers
        async with aclosing(super().stream(peer, method, request)) as chunks:
            async for chunk in chunks:
                if self.gives_until <= 0:
                    raise CallError(Refusal.UNREACHABLE, "connection lost")
                self.gives_until -= 1
                yield chunk


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch) -> None:
    monkeypatch.setattr(blob_module, "CHUNK_BYTES", CHUNK)


@pytest.fixture
def manifest(make_manifest) -> Manifest:
    return make_manifest(outer={"optimizer": "nesterov", "momentum": 0.9, "learning_rate": 0.7})


def state_of(seed: int, numel: int = 640, round: int = 3) -> ReplicaState:
    """Ten chunks of anchor and ten of velocity."""
    generator = torch.Generator().manual_seed(seed)
    anchor, velocity = torch.randn(numel, generator=generator), torch.randn(numel, generator=generator)
    return ReplicaState(round, 100 * round, ((numel,),), anchor, {"velocity": velocity})


def altered(state: ReplicaState, *slots: int) -> ReplicaState:
    """The same state but for the values at ``slots`` of the anchor."""
    anchor = state.anchor.clone()
    anchor[list(slots)] += 1
    return ReplicaState(state.round, state.swarm_tokens, state.layout, anchor, state.buffers)


async def give(state: ReplicaState) -> Exchange:
    exchange = Exchange(Direct("donor", {}))  # type: ignore[arg-type]
    exchange.publish(None, [state.blob])  # type: ignore[arg-type]
    return exchange


def keeper_of(manifest: Manifest, joiner: Noting, tell: Callable = lambda _: None) -> StateStore:
    return StateStore(manifest, Exchange(joiner), tell)  # type: ignore[arg-type]


async def test_a_joiner_fetches_everything(manifest) -> None:
    """Without a state of its own it asks for each chunk once, and hears how far it is."""
    state = state_of(1)
    told: list[Any] = []
    joiner = Noting(await give(state))
    fetched = await keeper_of(manifest, joiner, told.append).fetch(state.digest, DONORS)
    assert fetched.digest == state.digest
    assert torch.equal(fetched.buffers["velocity"], state.buffers["velocity"])
    assert sorted(joiner.asked) == list(range(20))
    assert told[-1].bytes_done == told[-1].bytes_total == 20 * CHUNK


async def test_a_peer_that_differs_fetches_only_what_differs(manifest) -> None:
    """Chunks of the own state, and of the one before it, are not asked for."""
    theirs = state_of(1)
    mine, before = altered(theirs, 0, 100, 639), altered(theirs, 300)
    joiner = Noting(await give(theirs))
    store = keeper_of(manifest, joiner)
    store.replace(mine)
    fetched = await store.fetch(theirs.digest, DONORS)
    assert fetched.digest == theirs.digest
    assert sorted(joiner.asked) == [0, 1, 9]
    joiner.asked.clear()
    store.replace(before)  # mine is the previous one now
    assert (await store.fetch(theirs.digest, DONORS)).digest == theirs.digest
    assert joiner.asked == []
    assert mine.digest != theirs.digest == state_of(1).digest  # nothing was changed in place


async def test_an_interrupted_download_is_gone_on_with(manifest) -> None:
    """What arrived is not fetched again, by the next attempt or for a newer state with the same chunks."""
    state = state_of(1)
    newer = altered(state, 639)
    donor = await give(state)
    joiner = Noting(donor)
    store = keeper_of(manifest, joiner)
    joiner.gives_until = 5
    with pytest.raises(NodeError, match="connection lost"):
        await store.fetch(state.digest, DONORS)
    joiner.asked, joiner.gives_until = [], 5
    with pytest.raises(NodeError, match="connection lost"):
        await store.fetch(state.digest, DONORS)
    assert len(set(joiner.asked)) <= 15
    donor.publish(None, [newer.blob])  # type: ignore[arg-type]
    joiner.asked, joiner.gives_until = [], 10**9
    assert (await store.fetch(newer.digest, DONORS)).digest == newer.digest
    assert 10 <= len(joiner.asked) <= 11
    joiner.asked.clear()
    assert store._unfinished is None  # its memory is free again


async def test_a_joiner_is_not_made_to_fetch_any_size(manifest, monkeypatch) -> None:
    """A state far larger than the manifest's model is refused by its index; an unusual layout is not."""
    monkeypatch.setattr(store_module, "numel_max", lambda _: 640)
    honest = ReplicaState(1, 1, ((4, 5, 2), (600,)), torch.ones(640), {"velocity": torch.ones(640)})
    large = state_of(1, numel=641)
    joiner = Noting(await give(large))
    with pytest.raises(NodeError, match="641 weights, and with this manifest at most 640 are accepted"):
        await keeper_of(manifest, joiner).fetch(large.digest, DONORS)
    assert joiner.asked == []
    joiner = Noting(await give(honest))
    fetched = await keeper_of(manifest, joiner).fetch(honest.digest, DONORS)
    assert fetched.layout == honest.layout


async def test_a_state_of_another_outer_optimizer(make_manifest, tmp_path) -> None:
    """It is refused by its index, before anything of it is fetched; and so is a checkpoint."""
    state = state_of(1)
    joiner = Noting(await give(state))
    store = keeper_of(make_manifest(outer={"optimizer": "adamw", "momentum": 0.0}), joiner)
    with pytest.raises(NodeError, match="belongs to another outer optimizer"):
        await store.fetch(state.digest, DONORS)
    assert joiner.asked == []
    save_state(state, tmp_path / "state")
    with pytest.raises(CheckpointError, match="saved with another outer optimizer"):
        await store.load(tmp_path / "state")


def test_the_bound_is_generous() -> None:
    """A small manifest allows modules of 200 million weights, a large one several times its GPT."""
    small = tiny_manifest().model
    assert numel_max(tiny_manifest()) >= 200_000_000
    large = tiny_manifest(model={"width": 4096, "hidden_width": 16384, "layers": 48})
    assert numel_max(large) == 16 * large.model.numel > 100 * small.numel


async def test_nobody_has_it(manifest) -> None:
    """Each donor is named with its reason."""
    joiner = Noting(await give(state_of(1)))
    with pytest.raises(NodeError, match=f"{DONOR}: the donor does not hold this blob any more"):
        await keeper_of(manifest, joiner).fetch(state_of(2).digest, DONORS)


async def test_a_swarm_begins_with_the_state_that_its_manifest_names(make_manifest) -> None:
    """Another state of round 0 is refused by its index; a later one has its own weights, and is not."""
    named, other, later = state_of(1, round=0), state_of(2, round=0), state_of(2, round=1)
    manifest = make_manifest(
        outer={"optimizer": "nesterov", "momentum": 0.9, "learning_rate": 0.7}, initial_digest=named.digest
    )
    for state in (named, later):
        fetched = await keeper_of(manifest, Noting(await give(state))).fetch(state.digest, DONORS)
        assert fetched.digest == state.digest
    joiner = Noting(await give(other))
    with pytest.raises(NodeError, match="of round 0, and not the one that the manifest names"):
        await keeper_of(manifest, joiner).fetch(other.digest, DONORS)
    assert joiner.asked == []
