"""`Harness` and the process that it starts; in tests/system the real lm-evaluation-harness runs in that.

Here a program of the test's own takes its place: what it leaves, and how it ends, is what this is about.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dupt_swarm.errors import DuptError, UsageError
from dupt_swarm.models import harness
from dupt_swarm.models.harness import Harness, check_tasks
from dupt_swarm.models.harness_process import RESULTS_FILE, _results
from dupt_swarm.node.record import TASKS_MAX
from tests.support.tiny import tiny_manifest
from tests.support.waiting import wait_until


@pytest.fixture
def busy(tmp_path: Path) -> Harness:
    """One that measures."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    return Harness([tmp_path / "a.yaml"], 4, tiny_manifest(), folder, "cpu", 1)


def run(busy: Harness, code: str) -> "subprocess.Popen[bytes]":
    """Let this take the harness' place."""
    with (busy._folder / harness.LOG_FILE).open("wb") as log:
        busy._process = subprocess.Popen(
            [sys.executable, "-c", code, str(busy._folder)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    busy._round = 7
    return busy._process


WRITE = f"import sys, pathlib; pathlib.Path(sys.argv[1], {RESULTS_FILE!r}).write_text(%r)"


def test_results_come_once(busy: Harness) -> None:
    """With the round of their state; then the next state may be measured, when it is due."""
    process = run(busy, WRITE % '[{"task": "a", "metric": "acc", "value": 0.5}]')
    assert busy.busy and not busy.is_due(100)
    process.wait()
    [one] = busy.finished()
    assert (one.task, one.metric, one.value, one.round) == ("a", "acc", 0.5, 7)
    assert not busy.busy and busy.finished() == ()
    assert [busy.is_due(round) for round in (7, 10, 11)] == [False, False, True]
    assert not busy._folder.exists()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; print('no such task'); sys.exit(3)", r"\(exit code 3\): no such task"),
        ("import os; os.kill(os.getpid(), 9)", r"\(exit code -9\): it said nothing"),
        ("pass", "left no results"),
        (WRITE % "[", "left no results"),
        (WRITE % '[{"task": "a", "metric": "acc", "value": 1e99}]', "left no results"),
        (WRITE % "[]", "found no figure"),
    ],
)
def test_what_went_wrong_is_said(busy: Harness, code: str, said: str) -> None:
    """Once, and nothing of it stays."""
    run(busy, code).wait()
    with pytest.raises(DuptError, match=said):
        busy.finished()
    assert not busy.busy and not busy._folder.exists()


def test_it_ends_with_the_evaluator(busy: Harness) -> None:
    """With all that it has started, even if it does not want to."""
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('on', flush=True); time.sleep(600)"
    )
    process = run(busy, code)
    wait_until(lambda: (busy._folder / harness.LOG_FILE).read_text(), "it runs")
    began = time.monotonic()
    busy.close()
    assert time.monotonic() - began >= harness.END_SECONDS
    assert process.returncode == -9 and not busy._folder.exists()
    busy.close()


def test_its_end_is_not_held_up_by_the_pipe() -> None:
    """Whoever waits for that to be closed lets Python end as it will."""
    code = "import dupt_swarm.models.harness_process as h, threading, time; "
    code += "threading.Thread(target=h._end_with_parent, daemon=True).start(); time.sleep(0.5)"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True)
    assert process.wait(60) == 0
    assert process.stdin is not None
    process.stdin.close()


def test_it_ends_when_the_evaluator_is_killed(tmp_path: Path) -> None:
    """The pipe from it is closed then, whatever ended it."""
    reader, writer = os.pipe()
    code = (
        "import threading, time; from dupt_swarm.models.harness_process import _end_with_parent; "
        "threading.Thread(target=_end_with_parent, daemon=True).start(); "
        "print('on', flush=True); time.sleep(600)"
    )
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=reader, stdout=log, start_new_session=True
        )
    os.close(reader)
    wait_until(lambda: (tmp_path / "log").read_text(), "it runs")
    assert psutil.pid_exists(process.pid) and process.poll() is None
    os.close(writer)
    assert process.wait(30) == -9


def test_figures_that_a_record_has_no_room_for() -> None:
    """Errors of figures, what is no number or beyond all bounds are left out; names are made plain."""
    found = {
        "a/b": {
            "acc,none": 0.5,
            "acc_stderr,none": 0.1,
            "alias": "a",
            "exact_match,strict": 1,
            "sample_len": 9,
        },
        "c": {"word_perplexity,none": 1e12, "f1,none": float("nan"), "acc_norm,none": "N/A"},
    }
    assert list(_results(found)) == [
        {"task": "a-b", "metric": "acc", "value": 0.5},
        {"task": "a-b", "metric": "exact_match-strict", "value": 1.0},
    ]


def test_what_can_be_told_first(tmp_path: Path) -> None:
    """No such file, too many, and swarms whose model nobody else can load, or that learn a task."""
    (tmp_path / "a.yaml").touch()
    check_tasks([tmp_path / "a.yaml"])
    with pytest.raises(UsageError, match=r"b\.yaml: no such file"):
        check_tasks([tmp_path / "b.yaml"])
    with pytest.raises(UsageError, match="room for 8"):
        check_tasks((TASKS_MAX + 1) * [tmp_path / "a.yaml"])
    sinusoidal = tiny_manifest(model={"positions": "sinusoidal"})
    labels = {"kind": "classification", "labels": ["a", "b"]}
    task = tiny_manifest(objective=labels, model={"vocabulary_size": 303})
    for manifest, said in ((sinusoidal, "no counterpart"), (task, "does not learn to continue texts")):
        with pytest.raises(UsageError, match=said):
            Harness([tmp_path / "a.yaml"], 1, manifest, tmp_path, "cpu", 1)
