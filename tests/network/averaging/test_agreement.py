"""Which contributions count: in tables, and in a simulation with lost, late and repeated messages."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dupt_swarm.network.averaging.agreement import Acceptance, Agreement, Answer, Decision, Report


def group(size: int, *, held: dict[int, set[int]] | None = None) -> list[Agreement]:
    """Members that coordinate in the order of their places; each holds its own contribution, or ``held``."""
    members = [Agreement(size, place, range(size), frozenset(range(size))) for place in range(size)]
    for member in members:
        for place in (held or {}).get(member.me, {member.me}):
            member.hold(place)
    return members


def exchange(members: list[Agreement], *places: int, live: set[int], time_up: bool = False) -> None:
    """The members at ``places`` ask their coordinator, one after another."""
    for place in places:
        member = members[place]
        coordinator = members[member.coordinator]
        if coordinator is not member:
            coordinator.note(place, member.report())
        coordinator.consider(live, time_up=time_up)
        if coordinator is not member:
            member.hear(coordinator.answer())


@pytest.mark.parametrize(
    ("held", "asking", "time_up", "choice"),
    [
        # All hold everything: at once.
        ({0: {0, 1, 2}, 1: {0, 1, 2}, 2: {0, 1, 2}}, (1, 2), False, (0, 1, 2)),
        # One is still fetching: it is waited for.
        ({0: {0, 1, 2}, 1: {0, 1, 2}, 2: {1, 2}}, (1, 2), False, None),
        # ... until the time is up: what more than half hold counts.
        ({0: {0, 1, 2}, 1: {0, 1, 2}, 2: {2}}, (1, 2), True, (0, 1, 2)),
        ({0: {0, 1}, 1: {0, 1}, 2: {2}}, (1, 2), True, (0, 1)),
        # One has not reported: it is waited for, until the time is up.
        ({0: {0, 1}, 1: {0, 1}, 2: {2}}, (1,), False, None),
        ({0: {0, 1}, 1: {0, 1}, 2: {2}}, (1,), True, (0, 1)),
        # Nobody but the coordinator: more than half are needed, whatever the time.
        ({0: {0, 1, 2}, 1: {0, 1, 2}, 2: {0, 1, 2}}, (), True, None),
        # Nothing that more than half hold.
        ({0: {0}, 1: {1}, 2: {2}}, (1, 2), True, None),
    ],
)
def test_what_is_proposed(held, asking, time_up, choice) -> None:
    """The coordinator proposes what all hold as soon as they do, and what most hold when the time is up."""
    members = group(3, held=held)
    exchange(members, *asking, 0, live={0, 1, 2}, time_up=time_up)
    assert members[0].answer().proposal == choice


def test_the_dead_are_not_waited_for() -> None:
    """What a member gave before it died counts when the living have it, and nobody waits for it."""
    members = group(4, held={0: {0, 1, 2}, 1: {0, 1, 2}, 2: {0, 1, 2}})
    exchange(members, 1, 2, 1, 2, 1, 2, live={0, 1, 2})
    for place in (0, 1, 2):
        assert members[place].decision == Decision(0, (0, 1, 2), (0, 1, 2))


def test_a_decision_outlives_its_coordinator() -> None:
    """A coordinator dies when it has decided, and told nobody: the next one decides the same."""
    members = group(3, held={place: {0, 1} for place in range(3)})
    exchange(members, 1, live={0, 1, 2}, time_up=True)
    members[0].note(1, members[1].report())
    members[0].consider({0, 1, 2}, time_up=True)
    assert members[0].decision == Decision(0, (0, 1), (0, 1))
    for member in members[1:]:
        member.hold(2)
        assert member.decision is None
        assert member.give_up()
    exchange(members, 2, 1, 2, 2, live={1, 2})
    assert [member.decision for member in members[1:]] == [Decision(1, (0, 1), (1, 2))] * 2


def test_who_knows_the_decision_tells_it() -> None:
    """Whoever asks a member that knows it learns it, in whichever ballot it is."""
    members = group(3, held={place: {0, 1, 2} for place in range(3)})
    exchange(members, 1, 2, 1, 2, live={0, 1, 2})
    assert members[1].decision is None
    for _ in range(2):
        members[1].give_up()
    exchange(members, 1, live={1, 2})
    assert members[1].decision == members[2].decision == members[0].decision


def test_an_earlier_vote_binds() -> None:
    """Who coordinates later proposes what somebody may have accepted, whatever is held by now."""
    members = group(3, held={place: {0, 1} for place in range(3)})
    exchange(members, 1, live={0, 1}, time_up=True)
    assert members[1].accepted == Acceptance(0, (0, 1))
    for member in members[1:]:
        member.hold(2)
        assert member.give_up()
    exchange(members, 2, 1, live={1, 2})
    assert members[1].answer().proposal == (0, 1)


def test_the_newest_of_several_votes_binds() -> None:
    """Of lists that were accepted in different ballots, only that of the last one can have been decided."""
    members = group(5)
    for place, accepted in ((0, None), (1, Acceptance(1, (1, 2, 3))), (2, Acceptance(0, (0, 1, 2)))):
        members[3].note(place, Report(3, frozenset({place}), accepted))
    members[3].consider(range(5), time_up=False)
    assert members[3].answer().proposal == (1, 2, 3)


def test_a_late_proposal_is_ignored() -> None:
    """Who has turned to another coordinator accepts nothing of the one before any more."""
    [member, *_] = group(3)
    member.give_up()
    member.hear(Answer(0, proposal=(0, 1)))
    assert (member.ballot, member.accepted) == (1, None)


def test_no_coordinator_leads_beyond_the_last_ballot() -> None:
    """Else a hostile one would keep its members busy with ever later ballots of its own."""
    member = Agreement(3, 0, [1, 2, 0], frozenset(range(3)))
    member.hear(Answer(member.last_ballot + 1))
    assert member.ballot == 0
    member.hear(Answer(member.last_ballot))
    assert member.ballot == member.last_ballot


def test_half_a_group_decides_nothing() -> None:
    """Two of four are not more than half: they turn to one coordinator after another, and then stop."""
    members = group(4, held={place: {0, 1} for place in (0, 1)})
    for _ in range(members[0].last_ballot):
        exchange(members, 0, 1, 0, 1, live={0, 1}, time_up=True) if members[0].coordinator < 2 else None
        for member in members[:2]:
            assert member.give_up()
    assert not members[0].give_up()
    assert [member.decision for member in members] == [None] * 4


def voters_beside_a_newcomer(held: set[int]) -> list[Agreement]:
    """Three electors that hold these contributions each; the newcomer is at place 3."""
    members = [Agreement(4, place, range(3), frozenset(range(3))) for place in range(3)]
    for member in members:
        for place in held:
            member.hold(place)
    return members


LIE = Acceptance(1 << 61, (3,))


def test_a_newcomer_decides_nothing() -> None:
    """What it says it has accepted binds nobody, and no later ballot that it names begins."""
    members = voters_beside_a_newcomer({0, 1, 2, 3})
    for ballot in (0, 3):
        members[0].note(3, Report(ballot, frozenset({3}), LIE))
    assert members[0].ballot == 0
    exchange(members, 1, 2, live={0, 1, 2, 3})
    assert members[0].answer().proposal == (0, 1, 2, 3)


def test_an_acceptance_of_a_ballot_that_has_not_been() -> None:
    """An elector that lies so does not choose for the others either."""
    members = voters_beside_a_newcomer({0, 1, 2, 3})
    members[0].note(2, Report(0, frozenset(range(4)), LIE))
    exchange(members, 1, live={0, 1, 2, 3})
    assert members[0].answer().proposal == (0, 1, 2, 3)


@pytest.mark.parametrize(("size", "choice", "accepts"), [
    (5, (0, 1), False),
    (5, (0, 1, 2), True),
    (4, (3,), False),
    (4, (2, 3), True),
    (2, (1,), True),
])  # fmt: skip
def test_a_list_of_few(size, choice, accepts) -> None:
    """A coordinator that lists its own contribution alone finds nobody who accepts that."""
    member = Agreement(size, 0, range(size), frozenset(range(size)))
    member.hear(Answer(0, proposal=choice))
    assert (member.accepted == Acceptance(0, choice)) is accepts


@pytest.mark.parametrize(("held", "live", "choice"), [
    ({0, 1, 2, 3}, {0, 1, 2, 3}, (0, 1, 2, 3)),  # whatever the newcomer says that it holds
    ({0, 1, 2}, {0, 1, 2, 3}, None),  # what it brings may still arrive
    ({0, 1, 2}, {0, 1, 2}, (0, 1, 2)),
])  # fmt: skip
def test_how_long_a_newcomer_is_waited_for(held, live, choice) -> None:
    """As long as it lives and its contribution is not here; it need not have those of the others."""
    members = voters_beside_a_newcomer(held)
    members[0].note(3, Report(0, frozenset()))
    exchange(members, 1, 2, live=live)
    assert members[0].answer().proposal == choice


@pytest.mark.parametrize("ballot", [-1, 1, 2, 3 * 8])
def test_a_ballot_of_somebody_else_is_refused(ballot) -> None:
    """A report for a ballot that we do not coordinate, or that there is not, changes nothing."""
    members = group(3)
    with pytest.raises(ValueError, match="not ours"):
        members[0].note(1, Report(ballot, frozenset({1})))
    assert members[0].ballot == 0


@dataclass
class World:
    """Members, and the messages between them, of which each may arrive late, more than once, or never."""

    members: list[Agreement]
    dead: set[int] = field(default_factory=set)
    mail: list[Callable[[], None]] = field(default_factory=list)
    decisions: set[tuple[int, ...]] = field(default_factory=set)

    def ask(self, place: int) -> None:
        """A report sets out to the coordinator."""
        member = self.members[place]
        report, coordinator = member.report(), self.members[member.coordinator]
        self.mail.append(lambda: self._arrive(member, coordinator, report))

    def _arrive(self, member: Agreement, coordinator: Agreement, report: Report) -> None:
        if coordinator.me in self.dead:
            return
        coordinator.note(member.me, report)
        answer = coordinator.answer()
        self.mail.append(lambda: self._return(member, answer))

    def _return(self, member: Agreement, answer: Answer) -> None:
        if member.me not in self.dead:
            member.hear(answer)
            self.note()

    def note(self) -> None:
        """Remember what has been decided, by the dead as well."""
        self.decisions |= {member.decision.choice for member in self.members if member.decision}

    @property
    def living(self) -> list[Agreement]:
        return [member for member in self.members if member.me not in self.dead]


# How often what happens, one against the other.
ACTIONS = {
    **{"ask": 10, "deliver": 16, "repeat": 3, "lose": 4, "consider": 1, "time up": 6},
    **{"give up": 2, "hold": 1, "die": 0.1},
}


@settings(max_examples=300)
@given(size=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_two_members_never_decide_differently(size, seed) -> None:
    """Whatever is lost or repeated and whoever dies, there is one decision, and with most alive it comes."""
    world, chance = World(group(size)), Random(seed)
    for action in chance.choices(list(ACTIONS), list(ACTIONS.values()), k=60 * size):
        act(world, action, chance)
        world.note()
        assert len(world.decisions) <= 1
    if 2 * len(world.living) <= size:
        return
    world.mail.clear()
    held_by_all = set.intersection(*(member.held for member in world.living))
    for _ in range(4 * size):
        newest = max(member.ballot for member in world.living)
        for member in world.living:
            if member.coordinator in world.dead or member.ballot < newest:
                member.give_up()
        for member in world.living:
            settle(world, member)
    assert len(world.decisions) <= 1
    if 2 * len(held_by_all) >= size and all(member.ballot < member.last_ballot for member in world.living):
        assert all(member.decision for member in world.living)


def settle(world: World, member: Agreement) -> None:
    """Without further losses: ask, and hear the answer."""
    coordinator = world.members[member.coordinator]
    if coordinator.me not in world.dead:
        live = {other.me for other in world.living}
        if coordinator is not member:
            coordinator.note(member.me, member.report())
        coordinator.consider(live, time_up=True)
        if coordinator is not member:
            member.hear(coordinator.answer())
        world.note()


def act(world: World, action: str, chance: Random) -> None:
    """One step of the simulation, of whom and with what ``chance`` says."""
    member, places = chance.choice(world.members), range(len(world.members))
    if action in ("deliver", "repeat", "lose"):
        if world.mail:
            message = chance.choice(world.mail)
            if action != "repeat":
                world.mail.remove(message)
            if action != "lose":
                message()
    elif member.me in world.dead:
        return
    elif action == "ask":
        world.ask(member.me)
    elif action in ("consider", "time up"):
        live = [each.me for each in world.living if chance.random() < 0.8]
        member.consider(live, time_up=action == "time up")
    elif action == "give up":
        member.give_up()
    elif action == "hold":
        member.hold(chance.choice(places))
    elif action == "die" and 2 * (len(world.dead) + 1) < len(places):
        world.dead.add(member.me)
