"""Where peers go that see one another at different states; fetching always succeeds."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import pytest
import torch

from dupt_swarm.errors import NodeError
from dupt_swarm.network.members.attendance import Electorate
from dupt_swarm.network.states.sync import STALEMATE_ROUNDS, StateSync, is_near
from dupt_swarm.node.view import Peer, View
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.voters import Voters

STEPS = 40


def state_of(round: int, voters: Collection[str], value: float = 1.0) -> ReplicaState:
    table = Voters().after(1, voters) if voters else Voters()
    return ReplicaState(round, 100 * round, ((3,),), torch.full((3,), value), {}, table)


class Node:
    """A peer that follows others: what it is at is what its record says in the next step."""

    record_seconds = 30.0

    def __init__(self, name: str, role: str, state: ReplicaState, initial: Collection[str] = ()) -> None:
        self.peer_id, self.role, self.working = name, role, role == "oracle"
        self.current, self.newer = state, None
        self.living: tuple[Peer, ...] = ()
        self.states: dict[str, ReplicaState] = {}
        self.attempts = 0
        self.sync = StateSync(self, self, self, lambda _: None, initial)  # type: ignore[arg-type]

    @property
    def voters(self) -> Voters:
        return self.current.voters

    @property
    def at_work(self) -> frozenset[str]:
        return frozenset(peer.peer_id for peer in View(0.0, self.living).at_work)

    @property
    def paused(self) -> frozenset[str]:
        return frozenset(peer.peer_id for peer in View(0.0, self.living).oracles) - self.at_work

    @property
    def is_at_work(self) -> bool:
        return self.working

    @property
    def voters_there(self) -> frozenset[str]:
        return frozenset({self.peer_id, *self.at_work}.intersection(self.voters))

    @property
    def electorate(self) -> Electorate:
        return Electorate(self.voters_there)

    async def holders(self, digest: str, otherwise: Sequence[str] = ()) -> Sequence[str]:
        del digest
        return otherwise

    async def replay(self, state: ReplicaState, digest: str, donors: object) -> None:
        """Nobody keeps a log."""

    async def fetch(self, digest: str, donors: object, tokens: int) -> ReplicaState:
        del donors, tokens
        if digest not in self.states:
            raise NodeError("nobody has it")
        return self.states[digest]

    async def fetch_present(self, peer_id: str) -> ReplicaState:
        raise NodeError(f"{peer_id} has nothing")

    async def adopt(self) -> None:
        assert self.newer is not None
        self.reach(self.newer)

    def reach(self, state: ReplicaState, *, together: bool = False) -> None:
        self.current, self.newer, self.attempts = state, None, 0
        self.sync.reached(together=together)


async def steps(
    make_peer: Any, nodes: list[Node], more: Sequence[tuple[Peer, ReplicaState | None]] = ()
) -> None:
    """All read all records, and go where they should; of ``more`` nobody serves what is None."""
    for _ in range(STEPS):
        states = {node.current.digest: node.current for node in nodes}
        states |= {state.digest: state for _, state in more if state is not None}
        records = [record_of(make_peer, node) for node in nodes] + [peer for peer, _ in more]
        for node in nodes:
            node.states, node.living = states, tuple(records)
            node.sync.hear()
            node.sync.follow(node.adopt)
        tasks = [node.sync.task for node in nodes if node.sync.task is not None]
        await asyncio.gather(*tasks)


def record_of(make_peer: Any, node: Node) -> Peer:
    return claim_of(make_peer, node.peer_id, node.current, node.role, node.working)


def claim_of(
    make_peer: Any, name: str, state: ReplicaState, role: str = "oracle", working: bool = True
) -> Peer:
    fields = {"round": state.round, "swarm_tokens": state.swarm_tokens, "state_digest": state.digest}
    doing = {"bootstrap": "serving"}.get(role, "training" if working else "paused")
    found: Peer = make_peer(name, role=role, state=doing, **fields)
    return found


def run(make_peer: Any, nodes: list[Node], *more: tuple[Peer, ReplicaState | None]) -> set[str]:
    """The digests of the states at which they end."""
    asyncio.run(asyncio.wait_for(steps(make_peer, nodes, more), 30))
    return {node.current.digest for node in nodes}


def oracles(voters: str, *states: ReplicaState) -> list[Node]:
    return [Node(name, "oracle", state) for name, state in zip(voters, states, strict=True)]


def stuck(*nodes: Node) -> None:
    """They have failed to end rounds."""
    for node in nodes:
        node.attempts = STALEMATE_ROUNDS


@pytest.mark.parametrize("ahead", [0, 3, 400])
def test_voters_that_start_from_different_checkpoints(make_peer, ahead: int) -> None:
    """As soon as they have failed to end rounds, all go to the same one; nobody swaps."""
    early, late = state_of(50, "ab"), state_of(50 + ahead, "ab", 9.0 if ahead else 1.1)
    nodes = oracles("ab", late, early)
    assert run(make_peer, nodes) == {late.digest, early.digest}
    stuck(*nodes)
    assert run(make_peer, nodes) == {max(early, late, key=lambda state: (state.round, state.digest)).digest}


@pytest.mark.parametrize("how", ["stopped", "asleep", "paused"])
def test_whoever_comes_back_goes_where_the_only_other_voter_is(make_peer, how: str) -> None:
    """However far that one has come meanwhile, as soon as they have failed to end rounds."""
    now, old = state_of(410, "ab", 9.0), state_of(10, "ab")
    stayed, comer = oracles("ab", now, old)
    if how != "stopped":
        comer.reach(old, together=True)
    if how == "asleep":
        comer.sync._heard_at -= 1.5 * comer.record_seconds
    if how == "paused":
        comer.working = False
        run(make_peer, [comer])
        comer.working = True
    stuck(stayed, comer)
    assert run(make_peer, [stayed, comer]) == {now.digest}


def test_two_come_back_to_two_that_stayed(make_peer) -> None:
    """They are half of the voters, and go to where the other half is."""
    now, old = state_of(110, "abcd", 9.0), state_of(10, "abcd")
    nodes = oracles("abcd", now, now, old, old)
    stuck(*nodes)
    assert run(make_peer, nodes) == {now.digest}


def test_whoever_has_ended_a_round_with_others_goes_nowhere_far(make_peer) -> None:
    """Nobody can have come that far meanwhile: the other one of two lies, or was split off."""
    mine, lie = state_of(50, "ab"), state_of(90, "a", 9.0)
    [node] = oracles("b", mine)
    node.reach(mine, together=True)
    stuck(node)
    assert run(make_peer, [node], (claim_of(make_peer, "a", lie), lie)) == {mine.digest}


def test_nobody_waits_for_what_cannot_be_had(make_peer) -> None:
    """A voter that claims what nobody serves does not hold up another that has come back."""
    mine, claimed = state_of(50, "ab"), state_of(90, "a", 9.0)
    [node] = oracles("b", mine)
    stuck(node)
    assert run(make_peer, [node], (claim_of(make_peer, "a", claimed), None)) == {mine.digest}
    assert node.sync.ahead is None


def test_two_and_five_that_were_split(make_peer) -> None:
    """The two go to where the five are, although they have ended more rounds meanwhile."""
    five, two = state_of(111, "abcdefg"), state_of(120, "abcdefg", 1.1)
    assert run(make_peer, oracles("abcdefg", *[two] * 2, *[five] * 5)) == {five.digest}


def test_three_and_three_that_were_split(make_peer) -> None:
    """Neither can end a round; then all go to the later one, and stay there."""
    one, other = state_of(50, "abcdefg"), state_of(51, "abcdefg", 1.1)
    nodes = oracles("abcdef", *[one] * 3, *[other] * 3)
    assert run(make_peer, nodes) == {one.digest, other.digest}
    stuck(*nodes)
    assert run(make_peer, nodes) == {other.digest}


def test_one_old_checkpoint_drags_nobody_back(make_peer) -> None:
    """Two of three are more than half."""
    now, old = state_of(50, "abc"), state_of(10, "abc")
    assert run(make_peer, oracles("abc", old, now, now)) == {now.digest}


@pytest.mark.parametrize("voters", ["abc", ""])
def test_who_is_behind_when_the_voters_pause(make_peer, voters: str) -> None:
    """The first peer goes to where most of them are; they themselves stay."""
    now, old = state_of(50, voters), state_of(40, voters)
    nodes = [*oracles("abc", now, now, now), Node("first", "bootstrap", old)]
    for node in nodes:
        node.working = False
    assert run(make_peer, nodes) == {now.digest}


def test_a_voter_that_has_paused_earlier(make_peer) -> None:
    """One of two moves nobody, neither forth nor back."""
    now, old = state_of(50, "ab"), state_of(40, "ab")
    nodes = [*oracles("ab", now, old), Node("first", "bootstrap", old)]
    for node in nodes:
        node.working = False
    assert run(make_peer, nodes) == {now.digest, old.digest}


def test_a_stranger_beside_voters_that_have_paused(make_peer) -> None:
    """Neither the first peer nor a paused oracle goes to where it is."""
    now, lie = state_of(50, "abc"), state_of(1 << 50, "x", 9.0)
    nodes = [*oracles("abc", now, now, now), Node("first", "bootstrap", now)]
    for node in nodes:
        node.working = False
        node.sync._initial = frozenset({"first"}) - {node.peer_id}
    assert run(make_peer, nodes, (claim_of(make_peer, "x", lie), lie)) == {now.digest}


def test_a_stranger_when_all_voters_have_left(make_peer) -> None:
    """The first peer computes the rounds of who goes on, and takes no state that it cannot compute."""
    now, lie = state_of(50, "abc"), state_of(51, "x", 9.0)
    assert run(make_peer, [Node("first", "bootstrap", now)], (claim_of(make_peer, "x", lie), lie)) == {
        now.digest
    }


def test_oracles_that_began_without_one_another(make_peer) -> None:
    """Two and two have voters of their own: they go with the first peer, which all of them named."""
    one, other = state_of(1, "ab"), state_of(1, "cd", 1.1)
    nodes = [*oracles("ab", one, one), *oracles("cd", other, other), Node("first", "bootstrap", one)]
    for node in nodes[:4]:
        node.sync._initial = frozenset({"first"})
    assert run(make_peer, nodes) == {one.digest}


def test_a_first_peer_goes_with_whoever_has_begun(make_peer) -> None:
    """Three began each alone; one of them is chosen, and the others follow it."""
    states = [state_of(1, name, 1.0 + place) for place, name in enumerate("abc")]
    nodes = [*oracles("abc", *states), Node("first", "bootstrap", state_of(0, ""))]
    for node in nodes[:3]:
        node.sync._initial = frozenset({"first"})
    assert len(run(make_peer, nodes)) == 1


@pytest.mark.parametrize("ahead", [1, 1 << 50])
def test_a_hostile_voter_in_a_stalemate(make_peer, ahead: int) -> None:
    """One of three claims a later round, of noise: none goes there, and the other two meet."""
    one, two = state_of(51, "abh"), state_of(50, "abh", 1.01)
    lie = state_of(51 + ahead, "h", 9.0)
    nodes = oracles("ab", one, two)
    stuck(*nodes)
    assert run(make_peer, nodes, (claim_of(make_peer, "h", lie), lie)) == {one.digest}


def test_far_behind_after_failed_rounds(make_peer) -> None:
    """Where more than half of the voters are anybody goes, however far that is."""
    mine, theirs = state_of(3, "abcd"), state_of(400, "abcd", 9.0)
    nodes = oracles("abcd", mine, *[theirs] * 3)
    stuck(nodes[0])
    assert run(make_peer, nodes) == {theirs.digest}


def test_noise_is_not_near() -> None:
    """What some rounds may change is, also in a swarm's first minute; what is independent of ours is not."""
    mine, near, independent = state_of(1, "a"), state_of(2, "a"), state_of(2, "a")
    direction = torch.tensor([1.0, -1.0, 0.0])  # at right angles to ours
    near.anchor.add_(0.55 * mine.anchor.norm() * direction / direction.norm())
    assert is_near(near, mine)
    for scale in (0.0, 0.1, 1.0, 9.0):
        independent.anchor.copy_(scale * direction)
        assert not is_near(independent, mine)
    assert not is_near(state_of(2, "a", 0.1), mine)
