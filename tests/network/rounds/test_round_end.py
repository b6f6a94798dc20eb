"""The end of a round on a node: what its result tells the trainer."""

import asyncio
import gc
import math
import os
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dupt_swarm.disk.anonymous import anonymous_file
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.host import Host
from dupt_swarm.network.members.attendance import Attendance
from dupt_swarm.network.participant import Participant
from dupt_swarm.network.rounds.deciding import Deciding
from dupt_swarm.network.rounds.exchange import Averaged
from dupt_swarm.network.rounds.history import History
from dupt_swarm.network.rounds.judgement import Judgement
from dupt_swarm.network.rounds.origins import Origins
from dupt_swarm.network.rounds.session import Computed, Ended
from dupt_swarm.network.rounds.tally import Tally
from dupt_swarm.network.states.offered import OfferedFiles
from dupt_swarm.network.states.replaying import RoundLog
from dupt_swarm.network.states.store import StateStore, name_of
from dupt_swarm.node.commands import EndRound
from dupt_swarm.node.memory import SharedMemory
from dupt_swarm.node.messages import RoundResult, Traffic
from dupt_swarm.node.reasons import FAILURES, REJECTIONS, Failure, Fate, by_reason
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.node.view import View
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.signed_words import Words
from dupt_swarm.replica.state import ReplicaState
from tests.support.contributions import encoded
from tests.support.deciders import Decider
from tests.support.leftovers import patiently
from tests.support.words import choice, link

NUMEL = 10


@pytest.fixture
def manifest(make_manifest):
    times = {"matchmaking_seconds": 1, "chunk_seconds": 0.5, "allreduce_seconds": 3}
    outer = {"optimizer": "nesterov", "momentum": 0.9, "learning_rate": 0.7}
    return make_manifest(rounds=times, outer=outer)


class Alone:
    """In place of a `Membership`: of a peer that sees nobody."""

    def __init__(self, peer_id: str) -> None:
        self.peer_id, self.is_at_work, self.electorate = peer_id, True, Electorate()
        self.attendance = Attendance(Counter())
        self.view = SimpleNamespace(time=math.inf)
        self.while_looking: Callable[[], None] = lambda: None

    def update(self, update: RecordUpdate, *, now: bool = False) -> None:
        """See `Membership`."""

    async def refresh(self) -> Any:
        """See `Membership`."""
        await asyncio.sleep(0)
        self.while_looking()
        self.view = SimpleNamespace(time=math.inf)
        return self.view


class Node:
    """A node that is alone, at a state of round 3, without what it needs no network for.

    Attributes:
        participant: what ships.
        told: what the trainer hears.
    """

    def __init__(self, manifest: Manifest, station: Any, traffic: Callable[[], Traffic] | None) -> None:
        decider = Decider(manifest, station, NUMEL)
        self.manifest, self.deciding_with = manifest, decider.context
        self.alone = Alone(decider.peer_id)
        self.store = StateStore(manifest, decider.blobs)
        electorate = Electorate(3, {decider.peer_id: (4, 1, 3)})
        buffers = {"velocity": torch.zeros(NUMEL)}
        first = ReplicaState(3, 300, ((NUMEL,),), torch.ones(NUMEL), buffers, electorate=electorate)
        self._fd = anonymous_file()
        self._memory = SharedMemory(self._fd, first.layout)
        self.store.replace(first)
        self.history = History(first, Words(manifest.swarm_id), station.folder / "chain")
        self.deciding = Deciding(decider.context, lambda before: self.begin(before), self.history.from_state)
        self.begin: Callable[[ReplicaState], NextState] = self.store.following
        connection = SimpleNamespace(
            manifest=manifest,
            p2p=station.p2p,
            membership=self.alone,
            exchange=decider.blobs,
            settings=SimpleNamespace(role="oracle", name="a", device="b"),
        )
        following = SimpleNamespace(history=self.history, look=lambda _: None)
        self.told: list[object] = []
        host = Host(Path(), self.told.append, lambda: None)
        self.participant = Participant(
            connection=connection,  # type: ignore[arg-type]
            host=host,
            tokenizer=Blob.build({"kind": "tokenizer"}, [b"{}"]),
            store=self.store,
            memory=self._memory,
            deciding=self.deciding,
            judgement=Judgement(host.tell, self._memory.vectors.number, manifest.rounds.voting_seconds),
            tally=Tally(traffic or (lambda: station.p2p.counts)),
            log=RoundLog(1, 0),
            following=following,  # type: ignore[arg-type]
            origins=Origins(station.folder / "origins"),
            offered=OfferedFiles(None, decider.blobs, lambda: []),
            neighbours=SimpleNamespace(note=lambda _: None),  # type: ignore[arg-type]
            beginning="",
        )

    async def open(self) -> None:
        """Take part from now on."""
        self.restart(self.store.current)
        await self.deciding.open()

    def restart(self, state: ReplicaState) -> None:
        """Be at this state."""
        self.store.replace(state)
        self.store.keep_in(self._memory.vectors)
        self.history.chain = Chain(state.digest, state.electorate)
        self.deciding.reach(self.store.current)

    async def end(self, values: torch.Tensor | None, tokens: int = 10) -> RoundResult:
        """End a round with this contribution; None: it was not finite."""
        data = b"" if values is None else encoded(values, self.manifest)
        self._memory.contribution[: len(data)] = data
        state = replace(name_of(self.store.current), place=self.place)
        return await self.participant.end_round(EndRound(state, len(data), tokens))

    @property
    def place(self) -> int:
        """Of the present state, in the memory."""
        return self._memory.vectors.number(self.store.current.anchor)

    async def stop(self) -> None:
        """Take no part any more."""
        running = self.deciding._running
        self.deciding.rest()
        if running is not None:
            await asyncio.wait([running])

    async def close(self) -> None:
        """End all."""
        await self.stop()
        os.close(self._fd)


@pytest.fixture
def alone(stations, manifest):
    """``async with alone() as node``; ``traffic`` takes the place of its meter."""

    @asynccontextmanager
    async def start(traffic: Callable[[], Traffic] | None = None) -> AsyncIterator[Node]:
        async with stations(1, manifest) as [station]:
            node = Node(manifest, station, traffic)
            await node.open()
            try:
                yield node
            finally:
                await node.close()

    return start


async def test_a_good_round(alone) -> None:
    """The state that follows has one more round and the tokens of the contribution."""
    async with alone() as node:
        result = await node.end(torch.ones(NUMEL))
        assert result.state is not None
        assert (result.state.round, result.state.swarm_tokens, result.reason) == (4, 310, None)
        assert (result.tokens, result.mates) == (10, ())
        assert result.state == replace(name_of(node.store.current), place=node.place)
        assert node.alone.electorate == node.store.current.electorate


async def test_more_tokens_than_a_contribution_may_stand_for(alone) -> None:
    """It stands for as many as others would let it: they would refuse one of more."""
    async with alone() as node:
        result = await node.end(torch.ones(NUMEL), 1 << 50)
        assert result.tokens == int(node.manifest.weight_limit(3)) < 1 << 50


async def test_an_average_that_nobody_can_compute_is_named(stations, manifest) -> None:
    """Where members average shares, the round cannot be computed again without it, which is kept."""
    rounds = manifest.rounds.model_copy(update={"exchange": "reduce"})
    reducing = manifest.model_copy(update={"rounds": rounds})
    async with stations(1, reducing) as [station]:
        node = Node(reducing, station, None)
        await node.open()
        assert (await node.end(torch.ones(NUMEL))).state is not None
        [link] = node.history.chain.links
        assert node.participant.log.get(link.average) is not None
        await node.close()


async def test_what_is_not_finite_is_counted(alone) -> None:
    """An empty contribution is one that was not finite: the round fails for this reason, and says so."""
    async with alone() as node:
        for _ in range(2):
            result = await node.end(None)
            assert (result.state, result.reason) == (None, "not_finite")
        assert sum(node.participant.tally.told.failures) == 2


async def test_what_the_record_tells_of_rounds(alone) -> None:
    """Why rounds failed; of the last good one length and bytes, those of failed attempts before it too."""
    meter = iter([Traffic(received=5000, sent=10), Traffic(5100, 40), Traffic(5900, 240)])
    async with alone(lambda: next(meter)) as node:
        tally = node.participant.tally
        tally.reject(Counter(norm=2))
        assert "round_sent_bytes" not in tally.told.given
        await node.end(torch.ones(NUMEL))
        told = tally.told
        assert (told.round_received_bytes, told.round_sent_bytes, told.group_size) == (100, 30, 1)
        await node.end(None)
        assert tally.told.round_sent_bytes == 30
        await node.end(torch.ones(NUMEL))
        told = tally.told
        assert (told.round_received_bytes, told.round_sent_bytes, told.averaged_rounds) == (800, 200, 2)
        assert told.round_seconds is not None
        assert told.averaging_seconds is not None
        assert told.round_seconds > told.averaging_seconds > 0
        assert by_reason(told.failures, FAILURES) == dict.fromkeys(FAILURES, 0) | {Failure.NOT_FINITE: 1}
        assert by_reason(told.rejections, REJECTIONS)["norm"] == 2


async def test_bytes_of_another_vector_fail_the_round(alone) -> None:
    """A contribution that does not have the model's size costs the round, and nothing is averaged."""
    async with alone() as node:
        result = await node.end(torch.ones(NUMEL + 1024))  # a block more
        assert (result.state, result.reason) == (None, "network")


async def test_only_the_outer_step_overflows(alone) -> None:
    """A contribution with which the anchor would not be finite is to be given up, and is called so."""
    huge = torch.full((NUMEL,), 3.4e38)
    async with alone() as node:
        node.restart(replace(node.store.current, anchor=-huge, buffers={"velocity": huge.clone()}))
        result = await node.end(huge)
        assert (result.state, result.reason) == (None, "outer_overflow")


async def test_an_overflow_on_the_way_is_a_failed_round(alone) -> None:
    """Numbers of others that overflow before the outer step cost the round, and no progress."""

    async def overflowing(*_: Any) -> Averaged:
        """As with an infinite weight that nobody checked."""
        return Averaged(round(math.inf), (), {}, Counter())

    async with alone() as node:
        node.deciding_with.exchange.average = overflowing
        result = await node.end(torch.ones(NUMEL))
        assert result.state is None and result.reason is not None
        assert result.reason.fate is Fate.MADE_ANEW


async def test_a_failed_round_keeps_no_state(alone, caplog) -> None:
    """The states that it had begun are gone at once."""
    caplog.set_level("CRITICAL", "dupt_swarm")  # pytest would keep the error, and so its traceback

    async def failing(*_: Any) -> Averaged:
        raise ValueError("none is sound")

    async with alone() as node:
        begun: list[weakref.ref[NextState]] = []

        def begin(before: ReplicaState) -> NextState:
            state = node.store.following(before)
            begun.append(weakref.ref(state))
            return state

        node.begin = begin
        node.deciding_with.exchange.average = failing
        result = await node.end(torch.ones(NUMEL))
        assert result.state is None
        await node.stop()
        assert begun and {each() for each in begun} == {None}


async def test_only_the_present_state_is_kept_while_the_next_is_computed(alone) -> None:
    """It needs the memory: those before are gone by then, as nobody needs them."""
    async with alone() as node:
        node.participant.log.add = lambda *_: None  # which keeps one, if that is allowed
        states: list[weakref.ref[torch.Tensor]] = []
        kept: list[int] = []

        def begin(before: ReplicaState) -> NextState:
            gc.collect()
            # The loop waits for us: a thread that has just handed over its result may still let go.
            patiently(lambda: {place for place, each in enumerate(states) if each() is not None})
            states.append(weakref.ref(before.anchor))
            kept.append(sum(each() is not None for each in states))
            return node.store.following(before)

        node.begin = begin
        for number in range(6):
            result = await node.end(torch.full((NUMEL,), 1.0 + number))
            assert result.reason is None
        assert kept == [1] * 6


async def test_a_round_whose_link_is_not_of_our_chain(alone) -> None:
    """Nothing comes of it: the trainer brings again what is not in the state that we go to."""
    async with alone() as node:
        state, session = node.store.current, node.deciding.present
        after, order = replace(state, round=4), EndRound(name_of(state), 1, 10)
        found = link("a", choice("a"), after=after.digest)
        averaged = Averaged(10, ("a",), {"": node.participant.tokenizer}, Counter())
        ended = Ended(found, Computed(after, averaged))
        assert session is not None
        node.participant.on_left(session, ended)
        assert (node.store.newer, node.history.chain.links) == (None, [])
        for newer, reason in (
            (None, Failure.PEER_LOST),
            (replace(state, round=5), Failure.PEER_LOST),
            (after, Failure.LEFT_OUT),  # in which only another's counts
        ):
            node.store.newer = newer
            result = node.participant._ended(ended, order, 1.0)
            assert (result.state, result.reason, node.store.current) == (None, reason, state)


@pytest.mark.parametrize(
    ("strategy", "weak", "kept"),
    [("diloco", True, True), ("diloco", False, False), ("gradient", True, False)],
)
async def test_from_where_less_than_a_quorum_went_on(alone, strategy: str, weak: bool, kept: bool) -> None:
    """What is learnt from there may be brought to another branch, unless gradients are brought."""
    async with alone() as node:
        participant, state, session = node.participant, node.store.current, node.deciding.present
        found: list[str] = []
        rounds = node.manifest.rounds.model_copy(update={"strategy": strategy})
        participant.connection.manifest = node.manifest.model_copy(update={"rounds": rounds})
        participant.origins.keep = lambda *states: found.extend(each.digest for each in states)
        node.history.follow = lambda _: []
        after = replace(state, round=4)
        left = replace(link("a", choice("a", weak=weak), after=after.digest), state=state.digest)
        averaged = Averaged(10, ("a",), {"": participant.tokenizer}, Counter())
        participant.on_left(session, Ended(left, Computed(after, averaged)))
        assert node.store.newer is after
        assert found == ([state.digest, after.digest] if kept else [])


async def test_a_full_disk_stops_no_training(alone, caplog, tmp_path: Path) -> None:
    """What would be signed cannot be kept: the round fails, the trainer hears of others, then all goes on."""
    (folder := tmp_path / "pledges.json").mkdir()  # nothing can be written there
    async with alone() as node:
        pledges, view = node.deciding_with.pledges, View(0.0, ())
        await node.stop()
        pledges._path = folder
        for _ in range(2):
            node.participant.on_view(view)
        assert node.told.count(view) == 2
        result = await node.end(torch.ones(NUMEL))
        assert result.reason is Failure.NETWORK and result.reason.fate is Fate.KEPT
        pledges._path = tmp_path / "kept.json"
        assert (await node.end(torch.ones(NUMEL))).state is not None
    assert caplog.text.count("taking part in no round") == 1


async def test_a_last_word_that_cannot_be_kept(alone, tmp_path: Path) -> None:
    """It is not said either: after a crash we would contradict it. With room on the disk all goes on."""
    (folder := tmp_path / "pledges.json").mkdir()  # nothing can be written there
    async with alone() as node:
        pledges = node.deciding_with.pledges
        pledges._path = folder
        await node.deciding.leave()
        result = await node.end(torch.ones(NUMEL))
        assert (result.reason, node.deciding.present) == (Failure.NETWORK, None)
        pledges._path = tmp_path / "kept.json"
        result = await node.end(torch.ones(NUMEL))
        assert result.state is not None
        assert not node.history.chain.links[-1].choice.weak


async def test_a_round_that_is_given_up_before_it_begins(alone) -> None:
    """Who says so while it is looked whether the others have ended it is heard, and only for this round."""
    async with alone() as node:
        node.alone.view = SimpleNamespace(time=-math.inf)
        node.alone.while_looking = node.participant.cancel_round
        result = await node.end(torch.ones(NUMEL))
        assert (result.state, result.reason) == (None, "cancelled")
        result = await node.end(torch.ones(NUMEL))
        assert result.state is not None


async def test_a_round_that_is_given_up(alone) -> None:
    """Nobody waits for it any more; it may end all the same, and then there is a newer state."""
    async with alone() as node:
        judged = asyncio.Event()

        async def accepts(_: ReplicaState) -> bool:
            node.participant.cancel_round()
            return await judged.wait()

        node.deciding.accepts = accepts
        session = node.deciding.present
        assert session is not None
        result = await node.end(torch.ones(NUMEL))
        assert (result.state, result.reason) == (None, "cancelled")
        assert node.store.newer is None
        judged.set()
        ended = await session.ended
        assert node.store.newer is not None and node.store.newer.digest == ended.link.after


async def test_a_round_that_the_others_have_ended(alone) -> None:
    """It is given up as behind, and is no failed round."""
    async with alone() as node:
        node.store.newer = node.store.current
        result = await node.end(torch.ones(NUMEL))
        assert (result.state, result.reason) == (None, "behind")
        assert node.participant.tally.told.failures == ()


async def test_a_state_that_is_left_as_its_round_begins(alone, caplog) -> None:
    """Another way to the next one was found at that moment: the round fails as one that came too late."""
    async with alone() as node:
        newer = node.store.current

        def found() -> None:
            node.store.newer = newer
            node.deciding.rest()

        node.alone.update = lambda *_, **__: asyncio.get_running_loop().call_soon(found)
        result = await node.end(torch.ones(NUMEL))
        assert (result.state, result.reason) == (None, "timeout")
        assert not [each for each in caplog.records if each.exc_info]
