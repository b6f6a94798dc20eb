"""What an oracle's screen says: as lines of a log, and as a panel on a terminal."""

import io
import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.text import Text

from dupt_swarm.learning.quality import Quality
from dupt_swarm.node.messages import Downloading, LedgerPlace, RoundResult, Traffic
from dupt_swarm.node.progress import RoundProgress
from dupt_swarm.node.reasons import Failure
from dupt_swarm.node.view import View
from dupt_swarm.optimizer.contribution import Contribution, Order
from peers.screen.events import Events
from peers.screen.frame import braille, cut_off, frame, resample
from peers.screen.history import Curve, History, Odometer
from peers.screen.log import Log, _can_draw, describe
from peers.screen.panel import Panel, Whole
from peers.screen.table import build_table
from peers.screen.words import (
    amount,
    bar,
    company,
    costs,
    describe_download,
    duration,
    last_round,
    utilization,
)
from tests.support.costs import cost_fields
from tests.support.screen import about, averaged, facts, oracle, status

CLOCK = time.strftime("%H:%M", time.localtime(1e9))
VIEW = View(0.0, (oracle("me", 90.0, reach="relayed", **cost_fields()), oracle("other", 300.0)))
QUIET = Traffic(received=0, sent=0)
SIZES = [(80, 24), (120, 40), (60, 16), (40, 8), (200, 60)]


def lines(shown: Sequence[Text]) -> list[str]:
    return [line.plain for line in shown]


@contextmanager
def on_terminal() -> Iterator[tuple[Panel, io.StringIO]]:
    """The panel of `about` on a terminal of 80 by 24, and what is written there."""
    written = io.StringIO()
    console = Console(file=Whole(written), width=80, height=24, force_terminal=True)  # type: ignore[arg-type]
    with Live(console=console, auto_refresh=False) as live:
        panel = Panel(live)
        panel.begin(about())
        yield panel, written


def test_everything_is_there_at_a_glance() -> None:
    """What the panel shows as bar and curves is words in the log; all other lines are the same in both."""
    shown = describe(facts())
    assert list(shown.items())[:5] == [
        ("state", "training"),
        ("doing", "stepping 3 of 8 micro-batches"),
        ("round", "7, 47 % full, ends in about 1 s"),
        ("loss", "5.5000"),
        ("held-out", "6.0000 (2.500 bits/byte)"),
    ]
    panel = [" ".join(line.split()) for line in lines(frame(facts(), 120, 40))]
    others = [" ".join(f"{label} {words}".split()) for label, words in list(shown.items())[5:]]
    assert others == panel[4:9]


@pytest.mark.parametrize(
    ("until", "words"),
    [
        (None, "paused (`dupt-peer resume` continues)"),
        (1e9, f"paused until {CLOCK} (`dupt-peer resume` continues now)"),
    ],
)
def test_a_pause_says_how_it_ends(until: float | None, words: str) -> None:
    """By hand, or by itself at a time of day."""
    paused = status(state="paused", paused_until=until)
    assert describe(facts(status=paused))["state"] == words


def test_a_pause_for_others() -> None:
    """Nobody knows how long they stay."""
    shown = describe(facts(status=status(state="paused", waits=True)))["state"]
    assert shown == "paused while others use this machine (`dupt-peer resume` continues now)"


def test_a_pause_is_one_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    """However long it lasts; the end of it is a line again."""
    log, view = Log(), View(0.0, ())
    log.begin(about())
    paused = status(state="paused")
    for shown in (status(), status(), paused, paused, paused, status()):
        log.show(shown, view, QUIET)
    states = [line.split("  ")[1] for line in capsys.readouterr().err.splitlines()[1:]]
    assert [state.split()[1] for state in states] == ["training", "paused", "training"]


@pytest.mark.parametrize("reason", Failure)
def test_a_failed_round_says_why_and_what_becomes_of_the_progress(reason: Failure) -> None:
    """The reason is words, and what is said of the contribution is what becomes of it."""
    failed = RoundResult(None, reason, 0, ("other",), 2.0)
    after, order = Contribution(tokens=9).send()[0].end(failed, 0.0)
    if order is Order.DISCARD:
        kept = "the progress is given up"
    elif reason is Failure.REJECTED:
        kept = "the contribution is made anew"
    elif reason in (Failure.STALE, Failure.BEHIND):
        kept = "a newer state comes first"
    else:
        kept = "the contribution is kept"
    assert (after.tokens == 0) == (order is Order.DISCARD)
    assert last_round(status(failed)) == f"failed: {reason.replace('_', ' ')} ({kept})"


def test_no_round_yet() -> None:
    """Nothing has failed."""
    assert last_round(status()) == "none yet"


def test_a_download_shows_bytes_rate_and_donors(capsys: pytest.CaptureFixture[str]) -> None:
    """How much of what, how fast, from how many; off a terminal a line now and then, and the last one."""
    half = Downloading(bytes_done=393_000_000, bytes_total=936_000_000, bytes_per_second=11.84e6, donors=4)
    assert describe_download(half) == "42 %  393 of 936 MB  11.8 MB/s  4 donors"
    log = Log()
    for _ in range(20):
        log.downloading(half)
    log.downloading(replace(half, bytes_done=936_000_000, donors=1))
    logged = capsys.readouterr().err.splitlines()
    assert len(logged) <= 2
    assert logged[-1].endswith("fetching the state: 100 %  936 of 936 MB  11.8 MB/s  1 donor")


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_panel_fits_every_terminal(width: int, height: int) -> None:
    """Never more lines than there are, each as wide as the terminal: nothing wraps, nothing is left over."""
    shown = frame(facts(), width, height)
    assert len(shown) <= height
    assert {line.cell_len for line in shown} == {width}


def test_the_panel_says_all_of_it_on_80_by_24() -> None:
    """Swarm, model, device, corpus; round and its end; speed; gifts; bytes and limits; curves; events."""
    shown = lines(frame(facts(), 80, 23))
    swarm_id = about().manifest.swarm_id
    assert shown[0].split() == [swarm_id, "as", "alice", "stepping", "3", "of", "8", "micro-batches"]
    assert shown[1].strip() == "GPT 4 × 256, 4.20 M weights  ·  cpu, 2 threads  ·  ~/texts: 3.20 M tokens"
    assert [line.strip() for line in shown[3:9]] == [
        f"round 7   {bar(0.47)}  47 %  ends in about 1 s",
        "rounds    3 this session; last round averaged with 1 other in 0.6 s",
        "speed     100 tokens/s, 25 % of 2 oracles; reach relayed",
        "given     1.23 M tokens, 30.9 % of the swarm's",
        "network   ↑ 12.3 MB, 400 kB/s of 1.00 MB/s   ↓ 456 MB, 200 kB/s, no limit",
        "per round ↑ 1.03 MB  ↓ 4.12 MB, waited 0.3 s; 97 % of the time for training",
    ]
    assert shown[10].split("held-out") == [
        " loss 5.5000".ljust(40) + " ",
        " 6.0000  2.500 bits/byte".ljust(31),
    ]
    assert "9.000" in shown[11]
    assert shown[-1].strip() == "12:00:59  event 59"
    assert sum("event" in line for line in shown) >= 4


def test_the_panel_says_what_was_given_ever() -> None:
    """By the chain of rounds, which may know of more than this folder; on one line of 80 columns."""
    before = facts()
    given = replace(
        before, status=replace(before.status, ledger_place=LedgerPlace(2_000_000, 2, 12, whole=True))
    )
    [line] = [each for each in lines(frame(given, 80, 23)) if " given" in each]
    assert line.strip() == "given     2.00 M tokens, 50.0 % of the swarm's, place 2 of 12"
    unknown = replace(before, status=replace(before.status, ledger_place=LedgerPlace(5, 1, 1, whole=False)))
    [line] = [each for each in lines(frame(unknown, 80, 23)) if " given" in each]
    assert line.strip() == "given     1.23 M tokens, 30.9 % of the swarm's"
    alone = replace(before, status=status(contributed_tokens=5_000_000))
    assert alone.by_label()["given"] == "5.00 M tokens, 100.0 % of the swarm's"


def test_a_high_terminal_has_higher_curves_and_more_events() -> None:
    """The room is used."""

    def count(width: int, height: int) -> tuple[int, int]:
        shown = lines(frame(facts(), width, height))
        drawn = sum(any(ord(one) > 0x2800 for one in line if ord(one) < 0x2900) for line in shown)
        return drawn, sum("event" in line for line in shown)

    low, high = count(80, 23), count(120, 39)
    assert low[0] >= 6
    assert high > low
    assert high[1] > low[1]


def test_a_round_ends_when_it_is_full_or_out_of_time() -> None:
    """The guess follows from everybody's speed; who does not train makes none."""
    slow = RoundProgress(tokens=0.0, target=4e6, live=2, others_averaging=False)
    most = about().manifest.rounds.max_round_seconds
    assert facts().round_ends_in == pytest.approx(530 / 400)
    assert facts(status=status(progress=slow), round_seconds=10.0).round_ends_in == most - 10
    assert facts(status=status(state="paused")).round_ends_in is None
    assert facts(status=status(tokens_per_second=0.0), view=View(0.0, ())).round_ends_in is None
    full = RoundProgress(tokens=2000.0, target=1000.0, live=2, others_averaging=False)
    assert facts(status=status(progress=full)).round_ends_in == 0
    assert facts(status=status(progress=slow), round_seconds=most + 9).round_ends_in == 0
    assert facts(status=status(state="averaging")).round_end == "averaging"


def test_nobody_can_claim_the_speed_of_all() -> None:
    """One oracle's word hides no other's share and ends no round on the screen."""
    slow = status(progress=RoundProgress(tokens=0.0, target=14_000.0, live=4, others_averaging=False))
    honest = (oracle("me", 100.0), oracle("other", 100.0), oracle("third", 100.0))
    shown = facts(status=slow, view=View(0.0, (*honest, oracle("liar", 1e12))))
    assert shown.by_label()["speed"].startswith("100 tokens/s, 14 % of 4 oracles")
    assert shown.round_ends_in == pytest.approx(20.0)


def test_a_newer_state_that_is_fetched_is_on_the_panel() -> None:
    """In place of the round's end, for the swarm has ended this round."""
    half = Downloading(bytes_done=50, bytes_total=100, bytes_per_second=1e6, donors=1)
    assert "fetching a newer state: 50 %" in lines(frame(facts(fetching=half), 80, 23))[3]
    written = io.StringIO()
    with Live(console=Console(file=written, width=80, height=24), auto_refresh=False) as live:
        panel = Panel(live)
        panel.downloading(half)  # that of joining
        panel.begin(about())

        def shown(number: int) -> bool:
            panel.show(status(round=number), VIEW, QUIET)
            return panel._facts is not None and panel._facts.fetching is not None

        assert not shown(7)
        panel.downloading(half)
        assert [shown(7), shown(8)] == [True, False], "the round that it would end has ended"
        panel.downloading(half)
        panel.downloading(replace(half, bytes_done=100))
        assert not shown(8)


def test_what_is_said_is_an_event_at_once() -> None:
    """Also when no report follows, as at the end."""
    with on_terminal() as (panel, written):
        panel.show(status(), VIEW, QUIET)
        panel.say("left the swarm")
        assert "left the swarm" in written.getvalue()


def test_nothing_known_yet_is_a_panel_too() -> None:
    """Before the first loss, the first round and the first record."""
    empty = facts(
        status=status(loss=None, latest=None, contributed_tokens=0, tokens_per_second=0.0),
        view=View(0.0, ()),
        losses=[],
        held_out=[],
        events=[],
    )
    shown = lines(frame(empty, 80, 23))
    assert "given     0 tokens, none in the swarm yet" in shown[6]
    assert "per round none yet" in shown[8]
    assert "loss –" in shown[10]


def test_a_curve_falls_from_the_upper_left_to_the_lower_right() -> None:
    """The highest value is the top dot, the lowest the bottom dot, and there are no gaps."""
    assert braille([1.0, 0.0], 1, 1) == ["⢱"]
    assert braille([7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0], 4, 2) == ["⠑⢄⠀⠀", "⠀⠀⠑⢄"]
    assert braille([3.0, 3.0], 2, 1) == ["⣀⣀"]
    assert braille([], 2, 2) == ["⠀⠀", "⠀⠀"]


def test_a_steep_beginning_does_not_flatten_the_rest() -> None:
    """The first tenth is cut off where the others begin; a short series is shown as it is."""
    values = [9.0, 5.0, *[4.0 - step / 100 for step in range(18)]]
    assert cut_off(values) == [4.0, 4.0, *values[2:]]
    assert cut_off(values[:9]) == values[:9]
    assert cut_off([]) == []


def test_more_values_than_dots_are_averaged_and_fewer_joined_by_lines() -> None:
    """The curve spans the whole width from the first report on."""
    assert resample([1.0, 3.0, 5.0, 7.0], 2) == [2.0, 6.0]
    assert resample([0.0, 4.0], 5) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert resample([2.0], 3) == [2.0, 2.0, 2.0]


def test_a_curve_of_weeks_stays_small_and_keeps_its_beginning() -> None:
    """Old values are averaged by pairs, as often as is needed; what is not finite is passed over."""
    curve = Curve(points=8)
    for step in range(1000):
        curve.add(float(step))
    curve.add(None)
    curve.add(math.nan)
    assert len(curve.values) < 8
    assert curve.values == sorted(curve.values)
    assert curve.values[0] < 128
    assert curve.values[-1] > 700


def test_bytes_are_added_up_over_restarts_of_the_node() -> None:
    """A new process counts from 0."""
    odometer = Odometer()
    for count in (100, 300, 50, 60):
        odometer.read(count)
    assert odometer.total == 360


def test_what_is_remembered_of_reports() -> None:
    """A pause adds no loss and begins the round anew; a held-out loss is one point; sent is not received."""
    history, now = History(), status()
    for shown in (now, replace(now, loss=5.0), replace(now, loss=9.0, state="paused")):
        history._began = -math.inf
        history.note(shown, Traffic(received=70, sent=40))
    found = history.facts(about(max_upload=1e6, max_download=2e6), now, VIEW)
    assert (found.losses, found.held_out) == ([5.5, 5.0], [6.0])
    assert (found.up.total, found.up.limit) == (40, 1e6)
    assert (found.down.total, found.down.limit) == (70, 2e6)
    assert found.round_seconds < 60
    history._began = -math.inf
    history.note(now, QUIET)
    assert history.facts(about(), now, VIEW).round_seconds == math.inf


def test_what_happens_is_told_in_words() -> None:
    """Rounds, held-out losses, pauses, who came and who left; nothing at the first report."""
    events, other = Events(), oracle("other", 300.0, name="bob")
    me, early = oracle("me", 90.0), oracle("early", 1.0)
    events.note(status(latest=None), View(0.0, (early,)), "me")  # before our own record is there
    events.note(status(), View(0.0, (me, early)), "me")
    assert not events.lines
    better = Quality(5.5, {"tokens": 10, "bytes": 40}, bits_per_byte=2.3)
    after = status(averaged(8), round=8, latest=better)
    events.note(after, View(0.0, (me, other, early)), "me")
    events.note(replace(after, state="paused"), View(0.0, ()), "me")
    failed = replace(after, round=9, last_round=RoundResult(None, Failure.TIMEOUT, 0, (), 2.0))
    events.note(replace(after, round=9), View(0.0, (me, early)), "me")
    events.note(failed, View(0.0, (me, early)), "me")
    told = [line.partition("  ")[2] for line in events.lines]
    assert told == [
        "round 8 averaged with 1 other in 0.6 s",
        "held-out loss 6.0000 → 5.5000",
        "bob joined",
        "paused (`dupt-peer resume` continues)",
        "took over the swarm's state of round 9",
        "goes on training",
        "bob left",
        "round 10 failed: timeout (the contribution is kept)",
    ]


def draw(console: Console, **changed: object) -> None:
    """Everything that a panel can be told."""
    with Live(console=console, auto_refresh=False) as live:
        panel = Panel(live)
        panel.say("joining \x1b[31mthe swarm")
        panel.downloading(Downloading(bytes_done=50, bytes_total=100, bytes_per_second=1e6, donors=1))
        panel.preparing(1, 2)
        panel.begin(about(name="al\x1b]0;title\x07ice", device="c\x1b[2Jpu", corpus="te\x1b[2Jxts"))
        panel.show(status(**changed), VIEW, QUIET)  # type: ignore[arg-type]
        view = View(0.0, (*VIEW.peers, oracle("evil", 1.0, name="\x1b[2J\x9b31mboo\u202e")))
        panel.show(status(averaged(8), **changed), view, QUIET)


def test_a_strangers_name_cannot_command_the_terminal() -> None:
    """Escapes, other control characters and changes of direction are replaced, wherever they stand."""
    written = io.StringIO()
    draw(Console(file=written, width=80, height=24, color_system=None, force_terminal=False))
    draw(Console(file=written, width=80, height=24, color_system=None, force_terminal=False, record=True))
    assert "boo" in written.getvalue()
    assert not set("\x1b\x07\x9b\u202e") & set(written.getvalue())


def test_a_log_obeys_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    """What is said in it may be others' words."""
    Log().say("from \x1b[2Jalice\nand bob")
    assert capsys.readouterr().err.partition("  ")[2] == "from �[2Jalice and bob\n"


def test_no_cell_of_a_table_commands_the_terminal() -> None:
    """Strangers may have written it; nor does it begin a line."""
    console = Console(file=io.StringIO(), record=True, width=80)
    console.print(build_table(("name", "x"), [("e\x1b[2Jvil\nrow", "1")]))
    assert [line.split() for line in console.export_text().splitlines()] == [
        ["name", "x"],
        ["e�[2Jvil", "row", "1"],
    ]


@pytest.mark.parametrize(
    ("kind", "encoding", "drawn"),
    [("xterm", "UTF-8", True), ("dumb", "UTF-8", False), ("", "UTF-8", False), ("xterm", "ascii", False)],
)
def test_where_a_panel_is_drawn(
    monkeypatch: pytest.MonkeyPatch, kind: str, encoding: str, drawn: bool
) -> None:
    """On terminals that move their cursor and show braille; elsewhere there are lines."""
    terminal = SimpleNamespace(isatty=lambda: True, encoding=encoding)
    monkeypatch.setattr("peers.screen.log.sys", SimpleNamespace(stderr=terminal))
    monkeypatch.setenv("TERM", kind)
    assert _can_draw() is drawn


def test_without_colour_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR takes the colours and no word."""
    monkeypatch.setenv("NO_COLOR", "1")
    written = io.StringIO()
    draw(Console(file=written, width=80, height=24, force_terminal=True, color_system="truecolor"))
    assert "47 %" in written.getvalue()
    assert "\x1b[36m" not in written.getvalue(), "no cyan"


def test_each_frame_is_shown_at_once_and_only_if_it_is_new() -> None:
    """A write is one synchronized update; the same facts again write nothing."""
    with on_terminal() as (panel, written):
        now = status()
        panel.show(now, VIEW, QUIET)
        before = written.getvalue()
        panel.show(now, VIEW, QUIET)
        assert written.getvalue() == before
        panel.show(replace(now, loss=5.25), VIEW, QUIET)
        update = written.getvalue()[len(before) :]
    assert update.startswith("\x1b[?2026h")
    assert update.endswith("\x1b[?2026l")
    assert update.count("\x1b[?2026h") == 1
    assert "5.2500" in update


def test_another_size_of_the_terminal() -> None:
    """It is wiped, as it broke the lines anew; the last line is always the shell's."""
    with on_terminal() as (panel, written):
        for _ in range(60):
            panel.say("something")
        panel.show(status(), VIEW, QUIET)
        assert panel._drawn is not None
        assert len(panel._drawn[1]) == 23
        assert "\x1b[2J" not in written.getvalue()
        panel._live.console.size = ConsoleDimensions(60, 16)
        panel.show(status(), VIEW, QUIET)
        assert "\x1b[2J" in written.getvalue()


@pytest.mark.parametrize("event", ["short", "very long " * 20])
def test_what_a_terminal_echoes_has_room_behind_the_last_line(event: str) -> None:
    """An echoed ^C does not wrap there: that would shift the cursor, and leave a line of the frame behind."""
    with on_terminal() as (panel, written):
        panel.say(event)
        panel.show(status(), VIEW, QUIET)
        drawn = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", written.getvalue())
    last = drawn.rpartition("\n")[2]
    assert event[:10] in last
    assert cell_len(last + "^C") <= 80


@pytest.mark.parametrize(("others", "words"), [(0, "alone"), (1, "with 1 other"), (3, "with 3 others")])
def test_company_is_proper_english(others: int, words: str) -> None:
    """One other, several others, or alone."""
    assert company(others) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1234, "1.23 kB"), (45.6e6, "45.6 MB"), (1e12, "1.00 TB")],
)
def test_amounts_have_three_digits(count: float, words: str) -> None:
    """With the prefix that suits them."""
    assert amount(count, "B") == words


def test_what_a_round_costs_is_told_as_far_as_it_is_known() -> None:
    """Nothing before the first round; after a pause the bytes only, until a round was measured again."""
    paused = oracle("me", 0.0, **cost_fields(utilization=None, round_waiting_seconds=None))
    assert costs(None) == costs(oracle("me", 90.0).record) == "none yet"
    assert costs(paused.record) == "↑ 1.03 MB  ↓ 4.12 MB"
    assert utilization(None) == utilization(paused.record) == "–"


@pytest.mark.parametrize(("seconds", "words"), [(7.4, "7 s"), (600, "10 min"), (7200, "2.0 h")])
def test_durations_have_one_unit(seconds: float, words: str) -> None:
    """Which is as precise as a guess can be."""
    assert duration(seconds) == words


def test_the_bar_has_a_fixed_width() -> None:
    """Empty, half and full bars are equally wide."""
    assert [bar(0.0).count("█"), bar(0.5).count("█"), bar(1.0).count("█")] == [0, 12, 24]
    assert {len(bar(ratio / 10)) for ratio in range(11)} == {24}
