"""Which contributions count: in tables, and in a simulation with lost, late and repeated messages."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dupt_swarm.network.averaging.agreement import Agreement
from dupt_swarm.network.averaging.reports import Acceptance, Answer, Decision, Report


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
            member.hear(coordinator.me, coordinator.answer())


@pytest.mark.parametrize(
    ("held", "asking", "time_up", "choice"),
    [
        # All hold everything: at once.
        ({0: {0, 1, 2}, 1: {0, 1, 2}, 2: {0, 1, 2}}, (1, 2), False, (0, 1, 2)),
        # One is still fetching, or says so: more than half hold everything.
        ({0: {0, 1, 2}, 1: {0, 1, 2}, 2: {2}}, (1, 2), False, (0, 1, 2)),
        # Not more than half hold what one has brought: it is waited for, until the time is up.
        ({0: {0, 1}, 1: {0, 1}, 2: {2}}, (1, 2), False, None),
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
    """The coordinator proposes everything as soon as most hold it, and what most hold when the time is up."""
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
    exchange(members, 1, 2, 2, live={0, 1, 2})
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


@pytest.mark.parametrize(("accepted", "live", "overdue", "choice"), [
    # Of lists that were accepted in different ballots, only that of the last one can have been decided.
    ({1: (1, (1, 2, 3)), 2: (0, (0, 1, 2))}, {1, 2, 3}, False, (1, 2, 3)),
    # Who has not reported may have accepted another one, or none, and is waited for as long as it lives.
    ({1: (1, (1, 2, 3)), 2: (0, (0, 1, 2))}, {1, 2, 3, 4}, False, None),
    ({1: (1, (1, 2, 3)), 2: (0, (0, 1, 2))}, {1, 2, 3, 4}, True, (1, 2, 3)),
    # With four reports neither can have been: it takes three to decide.
    ({0: None, 1: (1, (1, 2, 3)), 2: (0, (0, 1, 2))}, {0, 1, 2, 3}, False, (0, 1, 2, 3, 4)),
    ({0: (0, (0, 1, 2)), 1: (1, (1, 2, 3)), 2: (0, (0, 1, 2))}, {0, 1, 2, 3}, False, (0, 1, 2)),
])  # fmt: skip
def test_which_of_several_votes_binds(accepted, live, overdue, choice) -> None:
    """A list that may have been decided is proposed again; one that cannot have been is not."""
    everything = set(range(5))
    member = group(5, held={3: everything})[3]
    for place, said in accepted.items():
        member.note(place, Report(3, frozenset(everything), None if said is None else Acceptance(*said)))
    assert member.ballot == (3 if len(accepted) == 3 else 0)
    while member.ballot < 3:
        member.give_up()
    member.consider(live, time_up=False, overdue=overdue)
    assert member.answer().proposal == choice


def test_nobody_accepts_what_it_does_not_hold() -> None:
    """Else a hostile coordinator's own contribution, which it gives to nobody, would be on the list."""
    member = group(3)[1]
    member.hold(2)
    member.hear(0, Answer(0, proposal=(0, 1, 2)))
    assert (member.proposal, member.accepted) == ((0, 1, 2), None)
    member.hear(0, Answer(0, proposal=(1, 2)))  # another one, in the same ballot
    assert member.accepted is None
    member.hold(0)
    assert member.accepted == Acceptance(0, (0, 1, 2))


def test_a_late_proposal_is_ignored() -> None:
    """Who has turned to another coordinator accepts nothing of the one before any more."""
    [member, *_] = group(3)
    member.give_up()
    member.hear(0, Answer(0, proposal=(0, 1)))
    assert (member.ballot, member.accepted) == (1, None)


def test_how_far_a_coordinator_leads() -> None:
    """If it says that it has come to a later ballot, it has left its own, and the next one begins."""
    member = Agreement(4, 0, [1, 2, 3, 0], frozenset(range(4)))
    for _ in range(2):
        member.hear(1, Answer(1 << 61))
        assert member.ballot == 1


@pytest.mark.parametrize(("ballots", "ballot"), [
    ({1: 1 << 61}, 0),  # who lies is alone with it
    ({1: 1 << 61, 2: 2}, 0),
    ({1: 1 << 61, 2: 2, 3: 3}, 2),  # of three one at least is honest, where less than half are not
    ({1: 1 << 61, 2: 1 << 61, 3: 1 << 61}, 39),  # nobody goes beyond the last one
])  # fmt: skip
def test_most_of_the_others_are_followed(ballots, ballot) -> None:
    """Into the ballot to which more than half of them have come, whoever says that it is farther."""
    member = group(5)[0]
    for place, said in ballots.items():
        member.note(place, Report(said, frozenset({place})))
    assert member.ballot == ballot


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


def test_what_is_said_of_others_is_not_believed() -> None:
    """Whoever is said to hold a contribution is asked for it; that it is held it must say itself."""
    members = group(4, held={place: {0, 1, 2} for place in range(3)})
    everywhere = tuple(frozenset(range(4)) for _ in range(4))
    members[0].hear(3, Answer(0, holders=everywhere))
    exchange(members, 1, 2, live={0, 1, 2}, time_up=True)
    assert members[0].answer().proposal == (0, 1, 2)


@pytest.mark.parametrize(("after", "decided"), [((0, (0, 2)), False), (None, True)])
def test_who_denies_what_it_has_accepted_is_not_counted(after, decided) -> None:
    """It says, with its signature, after which list it accepts one; at first it said that there was none."""
    member = group(3, held={1: {0, 1, 2}})[1]
    member.give_up()
    member.note(0, Report(1, frozenset({0, 1, 2}), None))
    member.consider({0, 1, 2}, time_up=False)
    assert member.proposal == (0, 1, 2)
    member.note(0, Report(1, frozenset({0, 1, 2}), Acceptance(1, (0, 1, 2), after)))
    member.consider({0, 1, 2}, time_up=False)
    assert bool(member.decision) is decided


def test_who_has_accepted_a_list_has_it() -> None:
    """It is asked for what is on it, whatever else the coordinator says that decided it."""
    member = group(3)[1]
    member.hear(0, Answer(0, None, Decision(0, (0, 2), (0, 2)), (frozenset(),) * 3))
    assert (member.holders[0], member.holders[2]) == ({0, 2}, {0, 2})


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
    for place in range(size):
        member.hold(place)
    member.hear(0, Answer(0, proposal=choice))
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


@dataclass
class World:
    """Members, and the messages between them, of which each may arrive late, more than once, or never."""

    members: list[Agreement]
    liars: frozenset[int] = frozenset()
    dead: set[int] = field(default_factory=set)
    mail: list[Callable[[], None]] = field(default_factory=list)
    decisions: set[tuple[int, ...]] = field(default_factory=set)

    def ask(self, place: int) -> None:
        """A report sets out to the coordinator."""
        member = self.members[place]
        report, coordinator = member.report(), self.members[member.coordinator]
        if coordinator.me not in self.liars:
            self.mail.append(lambda: self._arrive(member, coordinator, report))

    def _arrive(self, member: Agreement, coordinator: Agreement, report: Report) -> None:
        if coordinator.me in self.dead:
            return
        coordinator.note(member.me, report)
        answer = coordinator.answer()
        self.mail.append(lambda: self._return(member, coordinator.me, answer))

    def _return(self, member: Agreement, place: int, answer: Answer) -> None:
        if member.me not in self.dead:
            member.hear(place, answer)
            self.note()

    def note(self) -> None:
        """Remember what has been decided, by the dead as well."""
        self.decisions |= {member.decision.choice for member in self.members if member.decision}

    @property
    def living(self) -> list[Agreement]:
        """Those that are honest, too."""
        return [member for member in self.members if member.me not in self.dead | self.liars]


# How often what happens, one against the other.
ACTIONS = {
    **{"ask": 10, "deliver": 16, "repeat": 3, "lose": 4, "consider": 1, "time up": 6},
    **{"give up": 2, "hold": 1, "die": 0.1, "lie": 6},
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
    if 2 * len(world.living) > size:
        settle(world, chance)
    assert len(world.decisions) <= 1


@settings(max_examples=300)
@given(size=st.integers(3, 7), seed=st.integers(0, 2**32))
def test_liars_keep_nobody_from_deciding(size, seed) -> None:
    """Less than half say of themselves whatever they like, to each something else, and never stop."""
    world, chance = World(group(size), frozenset(range((size - 1) // 2))), Random(seed)
    for action in chance.choices(list(ACTIONS), list(ACTIONS.values()), k=60 * size):
        if action != "die":
            act(world, action, chance)
    settle(world, chance)


def settle(world: World, chance: Random) -> None:
    """Without further losses all who live decide, if there is a list that may be, and ballots are left."""
    world.mail.clear()
    size = len(world.members)
    for _ in range(4 * size):
        newest = max(member.ballot for member in world.living)
        for member in world.living:
            if member.coordinator in world.dead | world.liars or member.ballot < newest:
                member.give_up()
        for member in world.living:
            for _ in range(3):
                act(world, "lie", chance)
            fetch(world, member)
            confer(world, member)
    held_by_all = set.intersection(*(member.held for member in world.living))
    if 2 * len(held_by_all) >= size and all(member.ballot < member.last_ballot for member in world.living):
        assert all(member.decision for member in world.living)


def fetch(world: World, member: Agreement) -> None:
    """What is proposed, from those who have it."""
    there = set[int]().union(*(each.held for each in world.living))
    for place in there.intersection(member.proposal or ()):
        member.hold(place)


def confer(world: World, member: Agreement) -> None:
    """Ask, and hear the answer."""
    coordinator = world.members[member.coordinator]
    if coordinator.me in world.dead | world.liars:
        return
    live = {other.me for other in world.living} | world.liars
    if coordinator is not member:
        coordinator.note(member.me, member.report())
    reports = [coordinator._reports.get(each.me) for each in world.living if each is not coordinator]
    # Liars may never report; the others have by the time at which nobody is waited for any more.
    overdue = all(report is not None and report.ballot == coordinator.ballot for report in reports)
    coordinator.consider(live, time_up=True, overdue=overdue)
    if coordinator is not member:
        member.hear(coordinator.me, coordinator.answer())
    world.note()


def act(world: World, action: str, chance: Random) -> None:
    """One step of the simulation, of whom and with what ``chance`` says."""
    member, places = chance.choice(world.living), range(len(world.members))
    if action in ("deliver", "repeat", "lose"):
        if world.mail:
            message = chance.choice(world.mail)
            if action != "repeat":
                world.mail.remove(message)
            if action != "lose":
                message()
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
    elif action == "lie" and world.liars:
        lie(member, chance.choice(sorted(world.liars)), chance)


def lie(to: Agreement, liar: int, chance: Random) -> None:
    """A report or an answer that says anything, of the present or any other ballot."""

    def some() -> frozenset[int]:
        return frozenset(place for place in range(to.size) if chance.random() < 0.7)

    def ballot() -> int:
        return chance.choice([to.ballot, chance.randint(0, to.last_ballot + 1)])

    if chance.random() < 0.5:
        accepted = Acceptance(ballot(), tuple(sorted(some())))
        to.note(liar, Report(ballot(), some(), chance.choice([None, accepted])))
    else:
        holders = tuple(some() for _ in range(to.size))
        to.hear(liar, Answer(ballot(), chance.choice([None, tuple(sorted(some()))]), holders=holders))
