"""Markup is removed by processes that may fail, and never outlive their work."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from dupt_swarm.learning.wikipedia import workers as workers_module
from dupt_swarm.learning.wikipedia.workers import Workers
from tests.support.waiting import wait_until

HUNG = "hang"
# A stand-in for the parser: no text is known that takes it as long as this on every machine.
PROGRAM = f"""
import json, os, signal, sys
for line in sys.stdin:
    text = json.loads(line)["wikitext"]
    if text == "die":
        os._exit(1)
    if text == "{HUNG}":
        signal.pause()
    print(json.dumps(text.upper()), flush=True)
"""

pytestmark = pytest.mark.usefixtures("nothing_left")


def request(text: str) -> dict[str, Any]:
    return {"title": "Bear", "wikitext": text, "namespaces": []}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setattr(workers_module, "PROGRAM", tmp_path / "program.py")


def test_answers_come_in_order() -> None:
    """Each beside what came with its request, however many there are."""
    with Workers() as workers:
        found = list(workers.map((number, request(f"''{number}''")) for number in range(100)))
    assert found == [(number, f"Bear\n\n{number}") for number in range(100)]


@pytest.mark.usefixtures("program")
def test_an_article_that_ends_its_process_is_given_up() -> None:
    """The ones around it are answered, by other processes if need be."""
    with Workers() as workers:
        found = list(workers.map(enumerate(map(request, ["a", "die", "b", "die", "die", "c"]))))
    assert [text for _, text in found] == ["A", None, "B", None, None, "C"]


def test_an_article_that_takes_too_long_ends_its_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The real program limits its own processor time; here to next to nothing."""
    source = workers_module.PROGRAM.read_text()
    assert "ARTICLE_SECONDS = 60 " in source
    (tmp_path / "program.py").write_text(source.replace("ARTICLE_SECONDS = 60 ", "ARTICLE_SECONDS = 0.05 "))
    monkeypatch.setattr(workers_module, "PROGRAM", tmp_path / "program.py")
    with Workers() as workers:
        found = list(workers.map(enumerate(map(request, ["{{a|b=" * 5000, "a"]))))
    assert [text for _, text in found] == [None, "Bear\n\na"]


@pytest.mark.usefixtures("program")
def test_a_peer_that_stops_asking_waits_for_nobody() -> None:
    """Also where a process never answers."""
    with Workers() as workers:
        assert next(workers.map(enumerate(map(request, ["a", HUNG, HUNG])))) == (0, "A")


@pytest.mark.usefixtures("program")
def test_a_process_that_starts_at_the_end_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the others were killed before it was there: it would never answer."""
    popen, starting, ending = subprocess.Popen, threading.Event(), threading.Event()

    def slow(*given: Any, **more: Any) -> Any:
        starting.set()
        ending.wait()
        return popen(*given, **more)

    monkeypatch.setattr(subprocess, "Popen", slow)
    with Workers() as workers:
        shutdown = workers._threads.shutdown

        def wait_for_threads(**how: bool) -> None:
            if not how:  # the others have been killed
                ending.set()
            shutdown(**how)

        monkeypatch.setattr(workers._threads, "shutdown", wait_for_threads)
        workers._threads.submit(workers._ask, request(HUNG))
        starting.wait()


def test_processes_end_with_the_one_that_started_them() -> None:
    """However it ends; and Ctrl-C in its terminal is for itself alone."""
    code = (
        "import psutil, signal\n"
        "from dupt_swarm.learning.wikipedia.workers import Workers\n"
        "with Workers() as workers:\n"
        "    next(workers.map([(0, {'title': 'Bear', 'wikitext': 'a', 'namespaces': []})]))\n"
        "    print(*(child.pid for child in psutil.Process().children()), flush=True)\n"
        "    signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        worker = psutil.Process(int(parent.stdout.readline()))
        assert os.getpgid(worker.pid) == worker.pid
        parent.kill()
    wait_until(lambda: not worker.is_running())
