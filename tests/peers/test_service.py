"""`dupt-peer service` without a service manager; tests/system/test_service.py has a real systemd."""

import contextlib
import plistlib
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dupt_swarm.disk.folders import SwarmFolder
from dupt_swarm.errors import DuptError
from peers.service.commands import service
from peers.service.last_join import FILE, LastJoin
from peers.service.launchd import Launchd
from peers.service.systemd import Systemd
from tests.support.programs import LISTEN, dupt_peer, start, wait_for_line

# There is none: a test must not install anything on this machine.
NO_MANAGER = {"XDG_RUNTIME_DIR": "/nonexistent", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent/bus"}
LAST = LastJoin(
    swarm_id="run-0123456789ab",
    directory=Path("/home/a b/100%"),
    arguments=("join", "--corpus", 'my "own" texts:0.5', "--name", "50% of $HOME\\"),
    variables={"DUPT_PEER_JOIN_NICE": "5", "CUDA_VISIBLE_DEVICES": "0,1"},
)


@pytest.mark.usefixtures("nothing_left")
def test_a_join_is_remembered_and_a_service_would_repeat_it(
    bootstrap: dict[str, Any], text: Path, tmp_path: Path
) -> None:
    """With its options and variables, but without a token, for its owner only."""
    state = tmp_path / "state"
    words = ("join", "--initial-peers", bootstrap["address"], "--corpus", str(text), *LISTEN)
    token = ("--invitation", "dupt-secret")
    process = start(*words, *token, "--state-dir", str(state), DUPT_PEER_JOIN_NICE="1")
    wait_for_line(process, "GPT ")
    place = ("--state-dir", str(state))
    other = {"XDG_CONFIG_HOME": str(tmp_path / "config"), **NO_MANAGER}
    done = dupt_peer("service", "install", *place, **other)
    assert done.returncode == 1
    assert "of this user cannot be reached" in done.stderr
    assert not (tmp_path / "config").exists()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert (state / FILE).stat().st_mode & 0o777 == 0o600
    last = LastJoin.load(state)
    assert last.arguments == (*words, *place)
    assert last.variables["DUPT_PEER_JOIN_NICE"] == "1"
    assert last.swarm_id == bootstrap["swarm_id"]
    assert last.directory == Path.cwd()
    printed = dupt_peer("service", "install", "--print", *place, **other)
    assert f"swarm {last.swarm_id}" in printed.stdout
    assert "dupt-secret" not in printed.stdout
    [line] = [line for line in printed.stdout.splitlines() if line.startswith("ExecStart=")]
    program, *words_there = shlex.split(line.partition("=")[2])
    assert Path(program).name == "dupt-peer" and Path(program).exists()
    assert tuple(words_there) == last.arguments


def test_tokens_are_left_out_however_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one word, in two, or by a variable; what looks similar stays."""
    monkeypatch.setattr(
        sys, "argv", ["dupt-peer", "join", "--invitation=a", "--invitation", "b", "--name", "c"]
    )
    monkeypatch.setenv("DUPT_PEER_JOIN_INVITATION", "d")
    monkeypatch.setenv("DUPT_PEER_JOIN_NICE", "3")
    last = LastJoin.of_this_process("run-0123456789ab")
    assert last.arguments == ("join", "--name", "c")
    assert "DUPT_PEER_JOIN_INVITATION" not in last.variables
    assert last.variables["DUPT_PEER_JOIN_NICE"] == "3"


@pytest.mark.parametrize("content", [None, b"{", b'{"swarm_id": "run"}', b"\xff"])
def test_without_a_join_there_is_nothing_to_repeat(tmp_path: Path, content: bytes | None) -> None:
    """Where nobody has joined, or the file is damaged, the remedy is said."""
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    with pytest.raises(DuptError, match=r"run `dupt-peer join` once"):
        LastJoin.load(tmp_path)


def test_a_file_survives_its_way_to_the_disk(tmp_path: Path) -> None:
    """What is loaded is what was saved."""
    LAST.save(tmp_path)
    assert LastJoin.load(tmp_path) == LAST


def test_a_unit_has_each_word_as_it_was_typed() -> None:
    """Blanks, quotes, and what systemd would replace; a real systemd reads it in tests/system."""
    lines = Systemd().text(LAST).splitlines()
    assert "WorkingDirectory=/home/a b/100%%" in lines
    assert 'Environment="DUPT_PEER_JOIN_NICE=5"' in lines
    [command] = [line for line in lines if line.startswith("ExecStart=")]
    assert command.endswith(r'"join" "--corpus" "my \"own\" texts:0.5" "--name" "50%% of $$HOME\\"')


def test_both_units_give_up_and_stop_alike() -> None:
    """That for the whole machine, and the one of a user, have these lines in common."""
    machine = (Path(__file__).parents[2] / "peers" / "systemd" / "dupt-peer.service").read_text().splitlines()
    keys = ("StartLimit", "Restart", "KillMode", "TimeoutStop", "UMask", "Nice", "CPUWeight", "IOWeight")

    def common(lines: list[str]) -> list[str]:
        return [line for line in lines if line.startswith(keys)]

    assert common(machine) == common(Systemd().text(LAST).splitlines())
    assert len(common(machine)) == 10


def test_an_agent_for_a_mac_has_each_word_as_it_was_typed() -> None:
    """launchd itself cannot be had here, so this only reads the file back."""
    agent = plistlib.loads(Launchd().text(LAST).encode())
    assert agent["ProgramArguments"] == [*LAST.command]
    assert agent["WorkingDirectory"] == str(LAST.directory)
    assert agent["EnvironmentVariables"] == LAST.variables
    assert agent["KeepAlive"] == {"SuccessfulExit": False}


def test_a_folder_that_another_peer_uses_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is installed, unless it is the service itself that runs there, which starts anew."""
    started: list[str] = []

    class Made(Systemd):
        path, running = tmp_path / "unit", False

        def check(self) -> None:
            pass

        def runs(self) -> bool:
            return self.running

        def start(self) -> None:
            started.append(self.path.read_text())

    def install() -> int:
        return CliRunner().invoke(service, ["install", "--state-dir", str(tmp_path)]).exit_code

    monkeypatch.setattr("peers.service.commands.manager_here", Made)
    last = LAST.model_copy(update={"directory": tmp_path})
    last.save(tmp_path)
    with contextlib.closing(SwarmFolder(tmp_path, last.swarm_id, "oracle")):
        assert (install(), Made.path.exists()) == (2, False)
        Made.running = True
        Made.path.write_text("of another swarm")
        assert (install(), started) == (2, [])
        Made.path.write_text(Made().text(last))
        assert (install(), started) == (0, [Made().text(last)])


@pytest.mark.parametrize("command", ["status", "uninstall"])
def test_what_is_not_installed_is_neither_shown_nor_removed(tmp_path: Path, command: str) -> None:
    """The remedy is said."""
    done = dupt_peer("service", command, XDG_CONFIG_HOME=str(tmp_path), **NO_MANAGER)
    assert done.returncode == 1
    assert "see `dupt-peer service install`" in done.stderr
