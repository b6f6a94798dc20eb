"""The link to a node process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dupt_swarm.errors import NodeError
from dupt_swarm.node import link
from dupt_swarm.node.commands import Adopt, LogTo
from dupt_swarm.node.messages import StateName


def test_a_node_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As where a package is missing: nothing has a log then."""
    monkeypatch.setattr(link, "subprocess", subprocess)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho Traceback: >&2\necho \"No module named 'uvloop'\" >&2\nexit 1\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    memory = os.open(tmp_path / "memory", os.O_RDWR | os.O_CREAT)
    started = link.Link(memory, hear=lambda _: None)
    try:
        with pytest.raises(NodeError, match="the node process has ended: No module named 'uvloop'"):
            started.submit(LogTo(tmp_path / "node.log")).result(60)
    finally:
        started.kill()
        os.close(memory)


@contextmanager
def mute(monkeypatch: pytest.MonkeyPatch, folder: Path, first: str = "") -> Iterator[link.Link]:
    """The link to a node that does ``first``, a line of Python, and then sleeps."""
    monkeypatch.setattr(link, "subprocess", subprocess)
    python = folder / "python"
    python.write_text(f"#!{sys.executable} -S\nimport os, sys, time\n{first}\ntime.sleep(600)\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    memory = os.open(folder / "memory", os.O_RDWR | os.O_CREAT)
    started = link.Link(memory, hear=lambda _: None)
    try:
        yield started
    finally:
        started.kill()
        os.close(memory)


def test_a_node_that_takes_long_to_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a busy machine: until it speaks for the first time, it is not called silent so soon."""
    with mute(monkeypatch, tmp_path) as started:
        assert {started.ailment() for _ in range(60)} == {""}
        assert {started.ailment() for _ in range(60)} == {"", "silent"}


def test_a_node_that_speaks_is_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """However long it runs: silence is counted anew from each word on."""
    with mute(monkeypatch, tmp_path) as started:
        for _ in range(200):
            started._heard = True
            assert started.ailment() == ""
        assert [started.ailment() for _ in range(9)] == 8 * [""] + ["silent"]


def test_a_node_that_hangs_does_not_block_the_trainer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it does not read fills the pipe: beyond some commands an answer is not waited for."""
    with mute(monkeypatch, tmp_path) as started:
        waiting = [started.submit(Adopt(StateName(0, 0, ""))) for _ in range(link.UNANSWERED_MAX)]
        with pytest.raises(NodeError, match="does not answer"):
            started.submit(Adopt(StateName(0, 0, ""))).result(0)
        assert not any(future.done() for future in waiting)


def test_a_node_that_has_closed_its_pipe_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Though its process is there."""
    with mute(monkeypatch, tmp_path, "os.close(int(sys.argv[3]))") as started:
        started._reader.join(60)
        assert (started.ailment(), started._process.poll()) == ("exited", None)


def open_files() -> int:
    """How many this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_node_that_cannot_be_started_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither its folder nor its pipe: as while the disk is full, or no process may be started."""
    monkeypatch.setattr(link, "subprocess", subprocess)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    memory = os.open(tmp_path / "memory", os.O_RDWR | os.O_CREAT)
    before = open_files(), threading.active_count()
    try:
        with pytest.raises(FileNotFoundError):
            link.Link(memory, hear=lambda _: None)
        assert (open_files(), threading.active_count()) == before
        assert [path.name for path in tmp_path.iterdir()] == ["memory"]
    finally:
        os.close(memory)
