"""Blocks of text that comes in shards are dealt out without waiting, and go on exactly where they stopped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest
import torch

from dupt_swarm.errors import CheckpointError, CorpusError
from dupt_swarm.learning.batches import Batches
from dupt_swarm.learning.offered import AHEAD, PATIENCE_SECONDS, OfferedBlocks, shard_order
from dupt_swarm.learning.token_files import Split, TokenIds

K = 4
BLOCKS = 6  # in a shard
APART = 1000  # between the tokens of two shards: a token tells where it is from


class Shards:
    """Shards in memory, of which some are here; see `OfferedText`."""

    def __init__(self, sizes: Sequence[int], here: Sequence[int] | None = None) -> None:
        """``here``: all, if it is None."""
        self.shards = sizes
        self.held_out = Split([np.arange(K + 1, dtype="<u2")])
        self.here = [*(range(len(sizes)) if here is None else here)]
        self.wanted: list[list[int]] = []
        self.unusable: set[int] = set()

    def read(self, shard: int) -> TokenIds | None:
        if shard not in self.here:
            return None
        self.here = [*(each for each in self.here if each != shard), shard]
        size = 0 if shard in self.unusable else self.shards[shard]
        return np.arange(APART * shard, APART * shard + size, dtype="<u2")

    def want(self, shards: Sequence[int]) -> None:
        self.wanted.append([*shards])


def shards(count: int, here: Sequence[int] | None = None) -> Shards:
    return Shards([BLOCKS * K + 1] * count, here)


def deal(blocks: OfferedBlocks, count: int) -> list[tuple[int, int]]:
    """Shard and block of the next ``count`` blocks."""
    found = []
    for split, block in (blocks.next() for _ in range(count)):
        first = int(split.read(block * K, block * K + 1)[0])
        found.append((first // APART, first % APART // K))
    return found


def test_an_epoch_has_every_block_once() -> None:
    """Shard by shard, in the peer's own order, and each shard's blocks in another one."""
    blocks = OfferedBlocks(shards(5), K, 1, "a")
    dealt = deal(blocks, 2 * blocks.count)
    assert blocks.count == 5 * BLOCKS
    for epoch in (0, 1):
        of_epoch = dealt[epoch * blocks.count : (epoch + 1) * blocks.count]
        assert tuple(shard for shard, _ in of_epoch[::BLOCKS]) == shard_order(5, 1, "a", epoch)
        assert len(set(of_epoch)) == blocks.count
    orders = [[block for _, block in dealt[start : start + BLOCKS]] for start in range(0, len(dealt), BLOCKS)]
    assert len(set(map(tuple, orders))) > 2


def test_peers_read_shards_in_orders_of_their_own() -> None:
    """So that oracles do not all read the same ones at the same time."""
    orders = {tuple(shard_order(20, 1, peer, 0)) for peer in ("a", "b", "c")}
    assert len(orders) == 3


def test_the_next_shards_are_wanted_while_one_is_read() -> None:
    """The one that is read stays, and the next ones come, those of the next epoch at its end."""
    text = shards(3)
    order, again = shard_order(3, 1, "a", 0), shard_order(3, 1, "a", 1)
    deal(OfferedBlocks(text, K, 1, "a"), 3 * BLOCKS)
    upcoming = [*order, *again]
    for number, wanted in enumerate(text.wanted):
        assert wanted == [*dict.fromkeys(upcoming[number : number + 1 + AHEAD])]


def test_what_is_here_is_read_again_while_the_next_shard_is_not() -> None:
    """Training does not wait; the shard read longest ago comes first, and one that is late has its turn."""
    order = shard_order(6, 1, "a", 0)
    text = shards(6, here=order[:2])
    blocks = OfferedBlocks(text, K, 1, "a")
    read = [shard for shard, _ in deal(blocks, 5 * BLOCKS)[::BLOCKS]]
    assert read == [order[0], order[1], order[0], order[1], order[0]]
    text.here = [order[2], *text.here]
    assert [shard for shard, _ in deal(blocks, BLOCKS)] == [order[2]] * BLOCKS


def test_a_shard_that_nobody_has_any_more_is_passed_over() -> None:
    """At once if the one after it has come; alone, when it is late: others are asked for."""
    order = shard_order(9, 1, "a", 0)
    text, now = shards(9, here=[order[0], order[2]]), 0.0
    blocks = OfferedBlocks(text, K, 1, "a", clock=lambda: now)
    assert [shard for shard, _ in deal(blocks, 2 * BLOCKS)[::BLOCKS]] == [order[0], order[2]]
    assert text.wanted[-1] == [*order[2:5]]
    for late in (4, 5):
        deal(blocks, 100 * BLOCKS)  # however fast the device is
        assert text.wanted[-1][1:] == [*order[late - 1 : late + 1]]
        now += PATIENCE_SECONDS + 1
        deal(blocks, BLOCKS)
        assert text.wanted[-1][1:] == [*order[late : late + 2]]


def test_a_shard_that_was_removed_is_read_again_from_memory() -> None:
    """It was read as a whole: whatever becomes of the file, training goes on."""
    text = shards(4, here=shard_order(4, 1, "a", 0)[:1])
    blocks = OfferedBlocks(text, K, 1, "a")
    first = deal(blocks, BLOCKS)
    text.here = []
    second = deal(blocks, BLOCKS)
    assert sorted(second) == sorted(first)
    assert second != first


def test_nothing_here_is_an_error_with_a_remedy() -> None:
    """Whoever opens the stock waits for the first shard; without it there is nothing to do."""
    with pytest.raises(CorpusError, match="join again where it can be fetched"):
        OfferedBlocks(shards(2, here=()), K, 1, "a").next()


def test_shards_that_were_made_wrong_are_passed_over() -> None:
    """They cost their own tokens only, also where others are not here yet; if that is all, it is said."""
    order = shard_order(5, 1, "a", 0)
    text = shards(5)
    text.unusable = {order[0], order[2], order[3]}
    dealt = deal(OfferedBlocks(text, K, 1, "a"), 2 * BLOCKS)
    assert [shard for shard, _ in dealt[::BLOCKS]] == [order[1], order[4]]
    text = shards(5, here=[order[0], order[4]])
    text.unusable = {order[0]}
    blocks = OfferedBlocks(text, K, 1, "a")
    assert {shard for shard, _ in deal(blocks, 2 * BLOCKS)} == {order[4]}
    assert text.wanted[-1] == [order[4], *order[1:3]]
    text = shards(5)
    text.unusable = {*range(5)}
    with pytest.raises(CorpusError, match="no text of the swarm's is here"):
        OfferedBlocks(text, K, 1, "a").next()


def test_a_text_shorter_than_a_block_is_refused() -> None:
    """Before anything is fetched."""
    with pytest.raises(CorpusError, match="shorter than a block"):
        OfferedBlocks(Shards([K]), K, 1, "a")


@pytest.mark.parametrize("taken", [0, 1, BLOCKS, 2 * BLOCKS + 3, 5 * BLOCKS - 1])
def test_it_goes_on_exactly_where_it_stopped(taken: int) -> None:
    """After a restart the same blocks follow, if the shard that was read is still here."""
    blocks = OfferedBlocks(shards(3), K, 1, "a")
    deal(blocks, taken)
    state = json.loads(json.dumps(blocks.state_dict()))
    again = OfferedBlocks(shards(3), K, 1, "a")
    again.load_state_dict(state)
    assert deal(again, 20) == deal(blocks, 20)


def test_it_goes_on_without_the_shard_that_was_read() -> None:
    """It is not here any more: the next one follows."""
    order = shard_order(3, 1, "a", 0)
    blocks = OfferedBlocks(shards(3), K, 1, "a")
    deal(blocks, 2)
    again = OfferedBlocks(shards(3, here=order[1:]), K, 1, "a")
    again.load_state_dict(blocks.state_dict())
    assert [shard for shard, _ in deal(again, BLOCKS)] == [order[1]] * BLOCKS


def test_a_state_of_something_else_is_refused() -> None:
    """As that of a corpus would be; one of a text with more shards is, too."""
    blocks = OfferedBlocks(shards(5), K, 1, "a")
    deal(blocks, 3 * BLOCKS)
    for state in ({"epoch": 0, "position": 3}, blocks.state_dict() | {"shard": 3}):
        with pytest.raises(CheckpointError, match="not a position in shards"):
            OfferedBlocks(shards(3), K, 1, "a").load_state_dict(state)


def test_a_peer_that_changes_between_own_text_and_the_swarms_goes_on() -> None:
    """The state of each kind of batches is one for the others: what they do not know begins anew."""
    own = Split([np.arange(50_000, 50_000 + 20 * K + 1, dtype="<u2")])

    def kinds() -> list[Batches]:
        return [
            Batches([own], K, 2, 1, "a"),
            Batches([], K, 2, 1, "a", stream=OfferedBlocks(shards(10), K, 1, "a")),
            Batches([own], K, 2, 1, "a", [1, 0.5], OfferedBlocks(shards(10), K, 1, "a")),
        ]

    for before in kinds():
        next(before)
        for after in kinds():
            after.load_state_dict(json.loads(json.dumps(before.state_dict())))
            next(after)
    offered, mixed = kinds()[1:]
    next(offered)
    mixed.load_state_dict(offered.state_dict())
    again = kinds()[1]
    again.load_state_dict(mixed.state_dict())
    assert torch.equal(next(again)[0], next(offered)[0])


def test_batches_have_inputs_and_targets() -> None:
    """int64 [batch_size, k], the targets one token later; their state is that of the blocks."""
    batches = Batches([], K, 4, 1, "a", stream=OfferedBlocks(shards(3), K, 1, "a"))
    for inputs, targets in islice(batches, 5):
        assert inputs.shape == targets.shape == (4, K)
        assert inputs.dtype == targets.dtype == torch.int64
        assert torch.equal(inputs + 1, targets)
    again = Batches([], K, 4, 1, "a", stream=OfferedBlocks(shards(3), K, 1, "a"))
    again.load_state_dict(batches.state_dict())
    assert torch.equal(next(again)[0], next(batches)[0])


def test_a_corpus_of_ones_own_beside_it() -> None:
    """A weight is how often a token is seen, of the swarm's text too, and both go on where they stopped."""
    own = Split([np.arange(50_000, 50_000 + 20 * K + 1, dtype="<u2")])

    def mix() -> Batches:
        return Batches([own], K, 2, 1, "a", [1, 0.5], OfferedBlocks(shards(10), K, 1, "a"))

    def rows(batches: Batches, count: int) -> list[int]:
        return [int(row[0]) for inputs, _ in islice(batches, count) for row in inputs]

    batches = mix()
    dealt = rows(batches, 50)
    assert Counter(row >= 50_000 for row in dealt) == {True: 40, False: 60}
    again = mix()
    again.load_state_dict(json.loads(json.dumps(batches.state_dict())))
    assert rows(again, 30) == rows(batches, 30)
    fresh = mix()
    fresh.load_state_dict({"epoch": 0, "position": 0})
    assert rows(fresh, 50) == dealt
