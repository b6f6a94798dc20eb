"""What an oracle is to do: by its owner's commands and its hours, whichever came last."""

import threading

import pytest

from dupt_swarm.oracle.commands import Command, Commands
from dupt_swarm.settings import Hours
from tests.support.clock import Clock, in_berlin

RUN, PAUSE, FINISH, STOP = Command
NIGHTS = Hours.parse(("22-07",))


pytestmark = pytest.mark.usefixtures("berlin")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], RUN),
        ([PAUSE], PAUSE),
        ([PAUSE, RUN], RUN),
        ([PAUSE, RUN, PAUSE], PAUSE),
        ([FINISH], FINISH),
        ([PAUSE, FINISH], FINISH),  # it goes on until the round ends
        ([FINISH, PAUSE], FINISH),
        ([FINISH, RUN], FINISH),
        ([STOP], STOP),
        ([STOP, PAUSE], STOP),
        ([STOP, FINISH], STOP),
        ([FINISH, STOP], STOP),
        ([STOP, RUN], STOP),
    ],
)
def test_what_ends_it_is_for_good_and_otherwise_the_last_word_counts(
    given: list[Command], expected: Command
) -> None:
    """Stop before finish before what was last said."""
    commands = Commands()
    for command in given:
        commands.give(command)
    assert commands.current is expected


def test_without_hours_a_pause_lasts_until_resume() -> None:
    """By hand only, and forever."""
    clock = Clock(in_berlin("2026-01-10 12:00"))
    commands = Commands(clock=clock)
    commands.give(PAUSE)
    clock.now += 1e7
    assert (commands.current, commands.paused_until) == (PAUSE, None)


@pytest.mark.parametrize(
    ("begun", "given", "expected"),
    [
        # Outside its hours it pauses, and begins by itself.
        ("2026-01-10 12:00", None, {"2026-01-10 12:00": PAUSE, "2026-01-10 22:00": RUN}),
        # Told to run at noon, it runs through the night, as the hours say, and pauses in the morning.
        (
            "2026-01-10 12:00",
            RUN,
            {"2026-01-10 21:59": RUN, "2026-01-10 23:00": RUN, "2026-01-11 07:00": PAUSE},
        ),
        # Paused at midnight, it pauses until the hours begin again.
        (
            "2026-01-11 00:00",
            PAUSE,
            {"2026-01-11 06:59": PAUSE, "2026-01-11 12:00": PAUSE, "2026-01-11 22:00": RUN},
        ),
        # A machine that slept over a border obeys the hours.
        ("2026-01-11 00:00", PAUSE, {"2026-01-11 23:30": RUN}),
    ],
)
def test_what_was_said_holds_until_the_hours_begin_or_end(
    begun: str, given: Command | None, expected: dict[str, Command]
) -> None:
    """Then the hours decide again."""
    clock = Clock(in_berlin(begun))
    commands = Commands(NIGHTS, clock)
    if given is not None:
        commands.give(given)
    found = {}
    for text in expected:
        clock.now = in_berlin(text)
        found[text] = commands.current
    assert found == expected


@pytest.mark.parametrize(
    ("now", "given", "until"),
    [("2026-01-10 12:00", None, "2026-01-10 22:00"), ("2026-01-11 00:00", PAUSE, "2026-01-11 22:00")],
)
def test_a_pause_says_when_it_ends(now: str, given: Command | None, until: str) -> None:
    """When the hours next begin."""
    commands = Commands(NIGHTS, Clock(in_berlin(now)))
    if given is not None:
        commands.give(given)
    assert commands.paused_until == in_berlin(until)


def test_a_stop_is_not_lost_among_other_commands() -> None:
    """Threads that pause and resume meanwhile do not undo it."""
    commands, over = Commands(), threading.Event()

    def chatter() -> None:
        while not over.is_set():
            commands.give(PAUSE)
            commands.give(RUN)
            commands.give(FINISH)

    threads = [threading.Thread(target=chatter) for _ in range(4)]
    for thread in threads:
        thread.start()
    commands.give(STOP)
    found = {commands.current for _ in range(2_000)}
    over.set()
    for thread in threads:
        thread.join()
    assert found == {STOP}
    assert commands.current is STOP


def test_others_who_use_the_machine() -> None:
    """They are a pause; who says that it shall go on all the same means until they have gone."""
    free = True
    commands = Commands(is_free=lambda: free)
    assert (commands.current, commands.waits) == (RUN, False)
    free = False
    assert (commands.current, commands.waits) == (PAUSE, True)
    commands.give(RUN)
    assert (commands.current, commands.waits) == (RUN, False)
    free = True
    assert commands.current is RUN
    free = False
    assert (commands.current, commands.waits) == (PAUSE, True)
    commands.give(PAUSE)
    free = True
    assert (commands.current, commands.waits) == (PAUSE, False)  # by hand, and for good
    commands.give(FINISH)
    free = False
    assert commands.current is FINISH


def test_others_do_not_matter_outside_the_hours() -> None:
    """It is the hours that the pause waits for."""
    clock = Clock(in_berlin("2026-01-10 12:00"))
    commands = Commands(NIGHTS, clock, is_free=lambda: False)
    assert (commands.current, commands.waits) == (PAUSE, False)
    clock.now = in_berlin("2026-01-10 23:00")
    assert (commands.current, commands.waits) == (PAUSE, True)
    commands.give(RUN)
    commands.give(PAUSE)  # which takes back that others do not matter
    clock.now = in_berlin("2026-01-11 23:00")
    assert (commands.current, commands.waits) == (PAUSE, True)
