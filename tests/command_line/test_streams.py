"""Streams that bear what they cannot show, a terminal that is gone, and a log whose disk is full."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dupt_swarm.command_line.streams import prepare_streams
from tests.support.programs import BIN, start


@pytest.mark.parametrize("refusing", ["strict", "surrogateescape"])
def test_what_an_encoding_lacks_is_spelt_otherwise(monkeypatch: pytest.MonkeyPatch, refusing: str) -> None:
    """A mark by another one, the rest as ?, on stdout, which would refuse it; stderr keeps its own way."""
    for name, errors in (("stdout", refusing), ("stderr", "backslashreplace")):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), "latin-1", errors))
    prepare_streams()
    for stream, expected in (
        (sys.stdout, "+x -... ? é"),
        (sys.stderr, "\\u2713\\u2717 \\u2013\\u2026 \\u4e2d é"),
    ):
        print("✓✗ –… 中 é", end="", file=stream, flush=True)
        assert isinstance(stream.buffer, io.BytesIO)
        assert stream.buffer.getvalue() == expected.encode("latin-1")


def test_a_program_on_such_a_terminal() -> None:
    """Its help has an ellipsis."""
    process = start("join", "--help", popen=subprocess.Popen, PYTHONIOENCODING="latin-1")
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert "DUPT_PEER_..._CORPUS" in output


def test_a_terminal_that_is_gone_takes_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then it shows it."""
    ours, terminal = os.openpty()
    with open(terminal, "w") as stream:  # noqa: PTH123 (a descriptor)
        monkeypatch.setattr(sys, "stderr", stream)
        prepare_streams()
        print("seen", file=sys.stderr)
        assert os.read(ours, 100) == b"seen\r\n"
        os.close(ours)
        with pytest.raises(OSError, match="Input/output error"):
            os.write(terminal, b"lost\n")
        print("lost", file=sys.stderr)
        assert sys.stderr.encoding == stream.encoding
        monkeypatch.undo()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_log_whose_disk_is_full_ends_no_program(unbuffered: str) -> None:
    """Its messages are lost; of data on stdout nothing gets lost without a word."""
    with Path("/dev/full").open("w") as full:
        process = start("status", popen=subprocess.Popen, stderr=full.fileno(), PYTHONUNBUFFERED=unbuffered)
        process.communicate(timeout=60)
        assert process.returncode == 2  # it says which swarm is meant, or --health: a usage error
        command = [str(BIN / "dupt-peer"), "--version"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode and "No space left on device" in done.stderr
