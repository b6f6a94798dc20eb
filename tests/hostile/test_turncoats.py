"""One of four that decide, or two of five, turns against the others.

It runs the real code on the real wire with one thing changed. Whatever it does, the others leave state after
state, all by the same links to the same bits; who contradicts itself is found out, and nobody else. The last
tests have real nodes.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.rounds.ballots import Ballots
from dupt_swarm.network.rounds.follow import Following
from dupt_swarm.network.rounds.history import History
from dupt_swarm.network.rounds.session import Ended, Session
from dupt_swarm.network.states.replaying import Replaying, RoundLog
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.replica.signed_words import Words
from dupt_swarm.replica.state import ReplicaState
from tests.support.deciders import Decider
from tests.support.saved_models import small_manifest
from tests.support.turncoats import coordinating, telling
from tests.support.turncoats.camp import (
    ROUND_SECONDS,
    TIMES,
    TOKENS,
    Camps,
    Stations,
    camps_of,
    ids,
    until,
)
from tests.support.turncoats.cluster import ROUNDS_MAX, Betrayed
from tests.support.waiting import wait_until


@pytest.fixture
def camps(
    stations: Stations, make_manifest: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> Camps:
    """Peers of which some lie."""
    return camps_of(stations, make_manifest(rounds=TIMES), monkeypatch)


def session_of(peer: Decider) -> Session:
    """Its part in the present round."""
    session = peer.deciding.present
    assert session is not None
    return session


def ballots_of(peer: Decider) -> Ballots:
    """Its part in the present ballots."""
    return session_of(peer).round.ballots


class Looker:
    """What else an honest one does: it tells where it is, and goes where others are.

    Attributes:
        member: knows the others by their records.
        history: of its rounds.
    """

    def __init__(self, peer: Decider, state: ReplicaState) -> None:
        """It is at ``state``."""
        self._deciding = peer.deciding
        words, store = Words(peer.manifest.swarm_id), StateStore(peer.manifest, peer.blobs)
        store.replace(state)
        self.member = Membership(peer.manifest, peer.station.p2p, peer.station.key)
        self.history = History(state, words, peer.station.folder / "chain")
        replaying = Replaying(peer.manifest, peer.blobs, RoundLog(1, 1 << 20), store.empty, always=True)
        self._following = Following(
            self.history, store, self.member, replaying, peer.deciding, lambda _: None
        )
        self._following.patience = ROUND_SECONDS
        peer.deciding.link_from = self.history.from_state
        peer.blobs.tell_links(self.history.chain.since)
        peer.deciding.on_left = self._note

    def _note(self, session: Session, ended: Ended) -> None:
        del session
        self.history.follow([ended.link])

    async def publish(self) -> None:
        """Tell at which state it is."""
        record = RecordUpdate(
            role="oracle",
            state="training",
            round=self.history.chain.electorate.round,
            swarm_tokens=TOKENS,
            state_digest=self.history.chain.head,
        )
        self.member.update(record)
        await self.member.publish()

    async def look(self) -> None:
        """Find out about one that is elsewhere, and be on the way there."""
        while not self._deciding.next_state:
            await self.member.refresh()
            self._following.look(nowhere)
            if self._following.task is not None:
                await self._following.task


async def nowhere() -> None:
    """No state was fetched: the round in which we are goes on."""
    raise AssertionError("a state was fetched")


async def never(_: ReplicaState) -> bool:
    """It takes longer than the round to look at what was proposed."""
    await asyncio.sleep(2 * ROUND_SECONDS)
    return True


@pytest.mark.parametrize("how", [telling.ANOTHER_STATE, telling.ACCEPTS_NOTHING, telling.REFUSES])
async def test_a_member_whose_word_is_missing(camps: Camps, how: str) -> None:
    """It accepts nothing, or a state that nobody has computed, or refuses all: the others are enough, in the
    first ballot, with everybody's contribution."""
    async with camps(4) as camp:
        liar = camp.coordinator(1)
        camp.order(how, liar)
        camp.judge_late(lambda: camp.orders.done)
        link = await camp.battle()
        assert camp.orders.done
        assert (link.ballot, link.choice.weak) == (0, False)
        assert set(link.counted) == ids(*camp.peers) and liar.peer_id not in link.makers
        assert not camp.exposed


async def test_a_member_that_invents_what_binds(camps: Camps) -> None:
    """After a ballot that came to nothing it says that it has accepted something in it which nobody had
    proposed: that binds nobody, and the others decide without its word."""
    async with camps(5) as camp:
        first, liar = camp.coordinator(), camp.coordinator(2)
        camp.order(telling.INVENTS, liar)
        camp.orders.attacks[first.peer_id] = coordinating.SILENT
        link = await camp.battle()
        assert camp.orders.done > 1
        assert link.ballot > 0 and not link.choice.weak
        assert set(link.counted) >= ids(*camp.honest)
        assert not camp.exposed


@pytest.mark.parametrize("how", [telling.TWO_STATES, telling.LEAVES_AND_STAYS, telling.LATER_BALLOTS])
async def test_a_member_that_contradicts_itself(camps: Camps, how: str) -> None:
    """It accepts twice, goes on after its last word, or promises for a far ballot and accepts in the first:
    no round is lost, and it is found out, and nobody else."""
    async with camps(4) as camp:
        liar = camp.coordinator(1)
        camp.order(how, liar)
        camp.judge_late(lambda: camp.exposed)
        for _ in range(2):
            link = await camp.battle()
            assert (link.ballot, link.choice.weak) == (0, False)
            assert set(link.counted) >= ids(*camp.honest)
        assert camp.exposed == ids(liar)


@pytest.mark.parametrize(
    "how",
    [
        coordinating.SILENT,
        coordinating.NOT_YET,
        coordinating.OWN_CHOICE,
        coordinating.FALSE_LINK,
        coordinating.WEAK_LINK,
    ],
)
async def test_a_coordinator_that_leads_nowhere(camps: Camps, how: str) -> None:
    """It is silent, stalls, proposes its own contribution alone or shows a link that it alone has made, a
    weak one too: the round ends all the same, with what all the others bring, and so does the next one."""
    async with camps(4) as camp:
        liar = camp.coordinator()
        camp.order(how, liar)
        link = await camp.battle()
        assert camp.orders.done
        assert not link.choice.weak
        assert set(link.counted) >= ids(*camp.honest)
        camp.order("", liar)
        link = await camp.battle()
        assert set(link.counted) >= ids(*camp.honest)
        assert not camp.exposed


async def test_a_coordinator_that_leaves_one_out(camps: Camps) -> None:
    """What one honest peer brings is in no proposal of it: that one computes the state too, and is in the
    next."""
    async with camps(4) as camp:
        liar = camp.coordinator()
        camp.order(coordinating.WITHOUT_ONE, liar)
        link = await camp.battle()
        assert camp.orders.done
        assert (link.ballot, len(link.counted)) == (0, 3)
        camp.order("")
        link = await camp.battle()
        assert set(link.counted) == ids(*camp.peers)
        assert not camp.exposed


async def test_a_coordinator_of_two_choices(camps: Camps) -> None:
    """It proposes one choice to some and another to others, so that neither is decided: the next ballot has
    one of both, and who coordinates that has the proof."""
    async with camps(4) as camp:
        liar = camp.coordinator()
        camp.order(coordinating.TWO_CHOICES, liar)
        link = await camp.battle()
        assert camp.orders.done
        assert link.ballot > 0 and not link.choice.weak
        assert camp.exposed == ids(liar)


async def test_a_coordinator_of_two_choices_of_which_one_is_decided(camps: Camps) -> None:
    """Two that have not accepted its other choice yet see where the others are, and go on by their link: what
    was proposed to them is proof all the same."""
    async with camps(5) as camp:
        liar = camp.coordinator()
        camp.order(coordinating.TWO_LINKS, liar)
        first, second, *others = sorted(camp.honest, key=lambda each: each.peer_id)
        for each in (first, second):
            each.deciding.accepts = never
        lookers = {each.peer_id: Looker(each, camp.state) for each in camp.honest}
        for each in camp.honest:
            await each.station.p2p.serve(lookers[each.peer_id].member.gossip)
        battle = asyncio.create_task(camp.battle())
        await until(lambda: all(lookers[each.peer_id].history.chain.links for each in others))
        await until(lambda: all(ballots_of(each).here.proposed for each in (first, second)))
        for each in others:
            await lookers[each.peer_id].publish()
        for each in (first, second):
            await lookers[each.peer_id].look()
        link = await battle
        assert link.makers == ids(liar, *others)
        assert [{one.maker for one, _ in each.proofs} for each in (first, second)] == [ids(liar)] * 2
        assert camp.exposed == ids(liar)


async def test_a_coordinator_that_ignores_what_binds_it(camps: Camps) -> None:
    """The first coordinator is cut off when it alone knows the decision, and the second one proposes
    something else: nobody accepts that, and the others come to the same decision."""
    async with camps(4) as camp:
        first, liar = camp.coordinator(), camp.coordinator(1)
        camp.order(coordinating.IGNORES, liar)
        camp.orders.attacks[first.peer_id] = coordinating.CUT_OFF
        decided = session_of(first)
        link = await camp.battle()
        assert camp.orders.done > 1
        assert link.ballot > 1 and not link.choice.weak
        assert decided.ended.result().link.after == link.after
        assert camp.exposed == ids(liar)


async def test_a_member_that_denies_what_it_has_accepted(camps: Camps) -> None:
    """The first coordinator is cut off when it alone knows the decision, and one of those who have accepted
    denies it: the others come to the same decision, since they have accepted it too."""
    async with camps(4) as camp:
        first, liar = camp.coordinator(), camp.coordinator(2)
        camp.order(telling.DENIES, liar)
        camp.orders.attacks[first.peer_id] = coordinating.CUT_OFF
        decided = session_of(first)
        link = await camp.battle()
        assert link.ballot > 0 and not link.choice.weak
        assert decided.ended.result().link.after == link.after
        assert not camp.exposed - ids(liar)


async def test_a_peer_that_denies_what_another_has_seen(camps: Camps) -> None:
    """The first coordinator has its acceptance and is cut off before anything is decided; in the next ballot
    it denies that. As soon as the first one hears that, it has the proof."""
    async with camps(4) as camp:
        first, liar = camp.coordinator(), camp.coordinator(2)
        camp.order(telling.DENIES, liar)
        others = [each for each in camp.honest if each is not first]
        apart = asyncio.Event()

        async def accepts(_: ReplicaState) -> bool:
            await apart.wait()
            return True

        for each in others:
            each.deciding.accepts = accepts
        battle = asyncio.create_task(camp.battle())
        await until(lambda: liar.peer_id in ballots_of(first).here.acceptances)
        camp.orders.attacks[first.peer_id] = coordinating.SILENT
        await until(lambda: all(ballots_of(each).ballot for each in others))
        del camp.orders.attacks[first.peer_id]
        apart.set()
        link = await battle
        assert link.ballot > 0 and not link.choice.weak
        assert [one.maker for one, _ in first.proofs] == [liar.peer_id]
        assert camp.exposed == ids(liar)


async def test_a_minority_with_one_false_state(camps: Camps) -> None:
    """Two of five accept the same state that nobody has computed: the three others are a quorum."""
    async with camps(5) as camp:
        liars = camp.coordinator(), camp.coordinator(1)
        camp.order(telling.ANOTHER_STATE, *liars)
        for _ in range(2):
            link = await camp.battle()
            assert link.makers <= ids(*camp.honest) and not link.choice.weak
            assert set(link.counted) >= ids(*camp.honest)
        assert not camp.exposed


async def test_a_newcomer_that_lies(camps: Camps) -> None:
    """Whose word does not count may say what it likes: no ballot is lost."""
    async with camps(4, electing=3) as camp:
        newcomer = camp.peers[3]
        for how in (telling.LATER_BALLOTS, telling.TWO_STATES, telling.REFUSES, telling.LEAVES_AND_STAYS):
            camp.order(how, newcomer)
            link = await camp.battle()
            assert (link.ballot, link.choice.weak) == (0, False)
            assert set(link.counted) >= ids(*camp.honest)
        assert not camp.exposed - ids(newcomer)


def betrayed(folder: Path) -> Betrayed:
    """Four honest oracles, and a fifth that turns against them."""
    times = {"matchmaking_seconds": 5, "chunk_seconds": 3, "allreduce_seconds": 16}
    manifest = small_manifest(rounds=times)
    return Betrayed(folder, manifest, [torch.randn(100, 10)], ("ada", "bea", "cleo", "dora"))


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
def test_nodes_go_on_without_who_accepts_twice(tmp_path: Path) -> None:
    """No round is lost, all have the proof soon, and it is in no round from then on, although it comes to
    each and behaves."""
    with betrayed(tmp_path) as swarm:
        swarm.attack(telling.TWO_STATES)
        for _ in range(ROUNDS_MAX):
            battle = swarm.battle()
            assert (battle.failures, battle.with_all) == (0, True), battle.attempts
            if any(swarm.exposed_by):
                break
        wait_until(lambda: all(swarm.exposed_by), "all have the proof")
        swarm.attack("")
        for _ in range(3):
            battle = swarm.battle()
            assert (battle.failures, battle.with_all) == (0, True), battle.attempts
            assert swarm.turncoat.peer_id not in battle.mates
        assert swarm.exposed == {swarm.turncoat.peer_id}


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
def test_nodes_whom_a_coordinator_leads_to_two_states(tmp_path: Path) -> None:
    """Two links leave the state, each accepted by two honest ones and by who has proposed two choices, or one
    link, if the others hear of it first: all are on one branch soon, and leave it out, as they compare what
    it has signed."""
    with betrayed(tmp_path) as swarm:
        swarm.until_its_turn()
        swarm.attack(coordinating.TWO_LINKS)
        swarm.battle()
        assert swarm.has_attacked
        wait_until(lambda: all(swarm.exposed_by), "all have the proof")
        swarm.attack("")
        battle = swarm.battle()
        assert (battle.failures, battle.with_all) == (0, True), battle.attempts
        assert swarm.turncoat.peer_id not in battle.mates
        assert swarm.exposed == {swarm.turncoat.peer_id}
