"""The control socket, without a peer behind it."""

import json
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from dupt_swarm.errors import DuptError, UsageError
from dupt_swarm.settings import Role
from peers.cli import main
from peers.control import actions
from peers.control.actions import PeerControl
from peers.control.client import SILENCE_SECONDS_MAX, LocalPeer, ask, find_peer, is_healthy
from peers.control.socket import REQUEST_BYTES_MAX, SOCKET, serve_control


def about(name: str, swarm_id: str, **more: Any) -> Mapping[str, Any]:
    return {"name": name, "swarm_id": swarm_id, "role": "oracle", "state": "training", "round": 3} | more


def refuse() -> Mapping[str, Any]:
    raise ValueError("not now")


def fail() -> Mapping[str, Any]:
    raise RuntimeError("a bug")


def folder_of(state_dir: Path, swarm_id: str) -> Path:
    folder = state_dir / swarm_id
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Path]:
    """A state folder with two peers, of two swarms."""
    one, two = folder_of(tmp_path, "a-000000000000"), folder_of(tmp_path, "b-000000000000")
    paused = {
        "status": lambda: about("one", one.name, silence_seconds=1.0),
        "pause": lambda: {"message": "ok"},
    }
    silent = {"status": lambda: about("two", two.name, silence_seconds=1e4), "pause": refuse}
    with serve_control(one, paused), serve_control(two, silent):
        yield tmp_path


def control_of_an_oracle() -> PeerControl:
    swarm: Any = SimpleNamespace(
        manifest=SimpleNamespace(swarm_id="a-0"), peer_id="", state=SimpleNamespace(round=0)
    )
    return PeerControl(swarm, "oracle", "")


@pytest.mark.parametrize("leaving", [False, True])
def test_an_oracle_about_to_leave_is_neither_paused_nor_resumed(tmp_path: Path, leaving: bool) -> None:
    """It trains until it leaves, whatever it is told: the answer says so, and how to end it at once."""
    told: list[str] = []
    control = control_of_an_oracle()
    commands = {name: partial(told.append, name) for name in ("pause", "resume", "finish")}
    oracle: Any = SimpleNamespace(leaving=leaving, **commands)
    control.oracle = oracle
    with serve_control(tmp_path, control.actions):
        answers = {command: ask(tmp_path, command) for command in commands}
    assert [command for command, answer in answers.items() if answer["ok"]] == told
    assert told == (["finish"] if leaving else [*commands])
    assert not leaving or "`dupt-peer stop` ends it now" in answers["pause"]["error"]


def test_a_peer_that_is_told_twice_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets one signal: a second one would end it while it saves, without the promised checkpoint."""
    signals: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _, number: signals.append(number))
    monkeypatch.setattr(actions, "STOP_SECONDS", 0.0)
    with serve_control(tmp_path, control_of_an_oracle().actions):
        answers = [ask(tmp_path, "stop") for _ in range(2)]
    for timer in [each for each in threading.enumerate() if isinstance(each, threading.Timer)]:
        timer.join()
    assert answers == 2 * [{"ok": True, "message": "stops, with a checkpoint"}]
    assert signals == [signal.SIGTERM]


@pytest.mark.parametrize(
    ("role", "answer"), [("oracle", "still starting"), ("bootstrap", "a bootstrap does not train")]
)
def test_who_cannot_be_paused_says_why(tmp_path: Path, role: Role, answer: str) -> None:
    """An oracle without a trainer yet, and those that never have one."""
    swarm: Any = SimpleNamespace(
        manifest=SimpleNamespace(swarm_id="a-0"), peer_id="", state=SimpleNamespace(round=0)
    )
    with serve_control(tmp_path, PeerControl(swarm, role, "").actions):
        assert answer in ask(tmp_path, "pause")["error"]


def test_a_request_without_end(tmp_path: Path) -> None:
    """It is refused as soon as it is too long, and takes no memory."""
    with serve_control(tmp_path, {}), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(4)
        connection.connect(str(tmp_path / SOCKET))
        connection.sendall(b"x" * REQUEST_BYTES_MAX)
        assert b"not a request" in connection.recv(100)


def test_commands_are_answered_as_long_as_the_block_runs(tmp_path: Path) -> None:
    """The socket is the owner's alone, whatever the umask, and gone afterwards."""
    before = os.umask(0)
    try:
        with serve_control(tmp_path, {"status": lambda: {"round": 3}}):
            assert ask(tmp_path, "status") == {"ok": True, "round": 3}
            assert stat.S_IMODE((tmp_path / SOCKET).stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="No such file"):
        ask(tmp_path, "status")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a short path for every folder")
@pytest.mark.parametrize("name", ["folder-with-a-long-name", "öö😀"])
def test_a_path_of_any_length_will_do(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """A socket's address holds 108 bytes, but a folder's path may be longer, in characters or in bytes."""
    tmp_path = tmp_path_factory.mktemp("p", numbered=True)
    folder = tmp_path.joinpath(*[name] * 10)
    folder.mkdir(parents=True)
    with serve_control(folder, {"status": lambda: {}}):
        assert (folder / SOCKET).is_socket()
        assert ask(folder, "status") == {"ok": True}
    assert list(folder.iterdir()) == []


def test_what_a_killed_peer_left_is_replaced(tmp_path: Path) -> None:
    """A socket on which nobody listens does not keep the next peer from starting."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / SOCKET))
    with pytest.raises(ConnectionRefusedError):
        ask(tmp_path, "status")
    with serve_control(tmp_path, {"status": lambda: {}}):
        assert ask(tmp_path, "status") == {"ok": True}


def test_a_peer_that_can_have_no_socket_runs_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says why it cannot be controlled, and the block runs."""
    with serve_control(tmp_path / "missing", {}):
        pass
    assert "no control socket (No such file or directory)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("request_line", "error"),
    [
        (b"nonsense\n", "not a request"),
        (b"[]\n", "not a request"),
        (b'{"command": "dance"}\n', "unknown command `dance`; there are refuse, fail"),
        (b'{"command": "refuse"}\n', "not now"),
        (b'{"command": "fail"}\n', "it failed (RuntimeError('a bug'))"),
    ],
)
def test_whatever_is_asked_gets_an_answer(tmp_path: Path, request_line: bytes, error: str) -> None:
    """A bad request, a refusal and a bug are told to who asked, and the next request is served."""
    actions = {"refuse": refuse, "fail": fail}
    with serve_control(tmp_path, actions), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(tmp_path / SOCKET))
        with connection.makefile("rwb") as stream:
            for _ in range(2):
                stream.write(request_line)
                stream.flush()
                answer = json.loads(stream.readline())
                assert not answer["ok"]
                assert error in answer["error"]


def test_several_peers_are_listed(peers: Path) -> None:
    """Who does not choose is told what there is, and how to choose."""
    with pytest.raises(UsageError) as caught:
        find_peer(peers, "", "")
    assert "2 peers run on this machine; choose one:" in str(caught.value)
    assert f"one: oracle of a-000000000000, training, in {peers / 'a-000000000000'}" in str(caught.value)
    refused = CliRunner().invoke(main, ["stop", "--state-dir", str(peers)])
    assert "choose one (--name, --swarm, --role, --state-dir):\n  one: oracle of" in refused.output
    assert "two: oracle of b-000000000000" in str(caught.value)


def test_one_peer_is_chosen_by_name_or_swarm(peers: Path) -> None:
    """Either is enough; one that is not there is an error."""
    assert find_peer(peers, "", "two").folder == peers / "b-000000000000"
    assert find_peer(peers, "a-000000000000", "").about["name"] == "one"
    with pytest.raises(DuptError, match="no peer of those chosen runs on this machine"):
        find_peer(peers, "a-000000000000", "two")


def test_only_an_oracle_can_be_meant_by_pause_resume_and_finish(peers: Path) -> None:
    """A bootstrap beside it is no candidate, but may be stopped."""
    folder = folder_of(peers, "a-000000000000.bootstrap")
    first = {**about("first", "a-000000000000", silence_seconds=1.0), "role": "bootstrap"}
    with serve_control(folder, {"status": lambda: first}):
        assert find_peer(peers, "a-000000000000", "", "oracle").about["name"] == "one"
        assert find_peer(peers, "", "", "bootstrap").about["name"] == "first"
        with pytest.raises(UsageError, match="2 peers run on this machine"):
            find_peer(peers, "a-000000000000", "")
    for role, command in (("bootstrap", "bootstrap"), ("evaluator", "evaluate"), ("oracle", "join")):
        reason = f"no {role} of those chosen runs on this machine; `dupt-peer {command}` starts one"
        with pytest.raises(DuptError, match=reason):
            find_peer(peers, "", "none", role)


def test_a_command_says_what_the_peer_does_or_why_not(peers: Path) -> None:
    """Exit code 0 and 1; which peer it is, since nobody may have chosen one."""
    arguments = ["pause", "--state-dir", str(peers), "--name"]
    done = CliRunner().invoke(main, [*arguments, "one"])
    line = f"one: oracle of a-000000000000, training, in {peers / 'a-000000000000'}: ok\n"
    assert (done.exit_code, done.output) == (0, line)
    refused = CliRunner().invoke(main, [*arguments, "two"])
    assert (refused.exit_code, refused.output) == (1, "error: two: not now\n")


def test_health_is_an_exit_code(peers: Path) -> None:
    """0 if the peer answers and was alive a moment ago, 1 if it was not or is not there."""
    arguments = ["status", "--health", "--state-dir", str(peers), "--name"]
    run = CliRunner().invoke
    well, hanging, gone = (run(main, [*arguments, name]) for name in ("one", "two", "three"))
    assert (well.exit_code, well.output) == (0, "a-000000000000: training at round 3\n")
    assert hanging.exit_code == 1
    assert "no sign of life for 10000 s" in hanging.output
    assert gone.exit_code == 1
    shown = run(main, [*arguments, "one", "--json"])
    assert json.loads(shown.output)["healthy"] is True
    assert is_healthy({"silence_seconds": SILENCE_SECONDS_MAX})
    assert not is_healthy({"silence_seconds": SILENCE_SECONDS_MAX + 1})


def test_a_name_that_a_terminal_would_obey(tmp_path: Path) -> None:
    """Who started that peer chose it, and who asks may be somebody else."""
    assert "\x1b" not in str(LocalPeer(tmp_path, {**about("e\x1b[2Jvil", "a-0")}))


def test_status_without_health_needs_an_address() -> None:
    """It is a usage error, which names both ways."""
    refused = CliRunner().invoke(main, ["status"])
    assert refused.exit_code == 2
    assert "--initial-peers ADDRESS; or --health" in refused.output
