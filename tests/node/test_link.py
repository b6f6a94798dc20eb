"""The link to a node process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dupt_swarm.errors import NodeError
from dupt_swarm.node import link
from dupt_swarm.node.commands import LogTo


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


def test_a_node_that_takes_long_to_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a busy machine: until it speaks for the first time, it is not called silent so soon."""
    monkeypatch.setattr(link, "subprocess", subprocess)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 600\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    memory = os.open(tmp_path / "memory", os.O_RDWR | os.O_CREAT)
    started = link.Link(memory, hear=lambda _: None)
    try:
        assert {started.ailment() for _ in range(60)} == {""}
        assert {started.ailment() for _ in range(60)} == {"", "silent"}
    finally:
        started.kill()
        os.close(memory)


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
