"""A volunteer's control of real peers."""

import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dupt_swarm.discovery import observe
from dupt_swarm.node.node import Node
from dupt_swarm.node.record import PeerRecord
from peers.control.client import ask
from tests.support.programs import LISTEN, dupt_peer, start, wait_for_line
from tests.support.waiting import wait_until
from tests.support.warm import Program

pytestmark = pytest.mark.usefixtures("nothing_left")

DEADLINE_SECONDS = 90.0


def other_hours() -> str:
    """A range that begins in two hours and ends in three."""
    return "-".join(time.strftime("%H", time.localtime(time.time() + 3600 * hours)) for hours in (2, 3))


@pytest.fixture
def name() -> str:
    """A name that no other peer on this machine has."""
    return uuid.uuid4().hex


@pytest.fixture
def oracle(
    request: pytest.FixtureRequest, bootstrap: dict[str, Any], text: Path, tmp_path: Path, name: str
) -> Iterator[subprocess.Popen[str]]:
    """Outside its hours, so paused; on the first peer's state folder. The parameter says how to start it."""
    process = start(
        *("join", "--initial-peers", bootstrap["address"], "--corpus", str(text), *LISTEN, "--name", name),
        *("--state-dir", str(tmp_path / "bootstrap"), "--hours", other_hours(), "--nice", "1"),
        popen=getattr(request, "param", Program),
    )
    wait_for_line(process, "state paused until")
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def observer(bootstrap: dict[str, Any]) -> Iterator[Node]:
    """Sees the records of all peers."""
    node, _ = observe([bootstrap["address"]])
    with node:
        yield node


def record_of(observer: Node, name: str) -> PeerRecord | None:
    """The newest record of the peer with this name."""
    return next((peer.record for peer in observer.refresh().peers if peer.record.name == name), None)


def state_of(observer: Node, name: str) -> str:
    record = record_of(observer, name)
    return record.state if record else ""


# Found wherever its folder is, by the command lines of this machine's processes: a fork has not its own.
@pytest.mark.parametrize("oracle", [subprocess.Popen], indirect=True, ids=["oracle"])
def test_an_oracle_is_resumed_paused_and_finished(
    bootstrap: dict[str, Any], oracle: subprocess.Popen[str], observer: Node, tmp_path: Path, name: str
) -> None:
    """Paused it makes no tokens, as its record says; resumed it does; finished it leaves a checkpoint."""
    folder = tmp_path / "bootstrap" / bootstrap["swarm_id"]
    wait_until(lambda: state_of(observer, name) == "paused")
    assert dupt_peer("resume", "--name", name).returncode == 0
    wait_until(lambda: ask(folder, "status")["round"] >= 2)

    # The first peer on the same state folder cannot be meant.
    paused = dupt_peer("pause", "--state-dir", str(tmp_path / "bootstrap"))
    which = f"{name}: oracle of {bootstrap['swarm_id']}, training, in {folder}"
    assert (paused.returncode, paused.stderr) == (0, f"{which}: pauses; `dupt-peer resume` continues\n")
    wait_until(lambda: state_of(observer, name) == "paused")
    before, published = record_of(observer, name), time.time()
    wait_until(lambda: (record := record_of(observer, name)) is not None and record.time > published + 2)
    after = record_of(observer, name)
    assert before is not None
    assert after is not None
    assert before.tokens_total > 0
    assert (after.tokens_total, after.round_tokens) == (before.tokens_total, before.round_tokens)
    assert after.tokens_per_second == 0
    assert dupt_peer("status", "--health", "--name", name).returncode == 0

    assert dupt_peer("resume", "--name", name).returncode == 0
    wait_until(lambda: (record := record_of(observer, name)) and record.tokens_total > after.tokens_total)
    finished = dupt_peer("finish", "--name", name)
    assert finished.returncode == 0, finished.stderr
    oracle.communicate(timeout=DEADLINE_SECONDS)
    assert oracle.returncode == 0
    assert not (folder / "control").exists()
    assert any(folder.glob("checkpoint-*/oracle.safetensors"))


@pytest.mark.parametrize("command", ["stop", "finish"])
def test_a_paused_oracle_without_work_leaves_at_once(
    oracle: subprocess.Popen[str], tmp_path: Path, name: str, command: str
) -> None:
    """Both `stop` and `finish` end it, with exit code 0, and then nobody is there to be controlled."""
    where = ("--state-dir", str(tmp_path / "bootstrap"), "--name", name)
    assert dupt_peer(command, *where).returncode == 0
    oracle.communicate(timeout=DEADLINE_SECONDS)
    assert oracle.returncode == 0
    gone = dupt_peer(command, *where)
    assert gone.returncode == 1
    assert "of those chosen runs on this machine" in gone.stderr


def test_a_bootstrap_can_be_stopped_and_nothing_else(bootstrap: dict[str, Any], tmp_path: Path) -> None:
    """It is no candidate for what only an oracle can do; `stop` leaves a checkpoint and no socket."""
    where = ("--state-dir", str(tmp_path / "bootstrap"))
    for command in ("pause", "resume", "finish"):
        refused = dupt_peer(command, *where)
        assert refused.returncode == 1
        assert "no oracle of those chosen runs on this machine" in refused.stderr
    assert dupt_peer("status", "--health", *where).returncode == 0
    assert dupt_peer("stop", *where).returncode == 0
    folder = tmp_path / "bootstrap" / f"{bootstrap['swarm_id']}.bootstrap"
    bootstrap["process"].wait(DEADLINE_SECONDS)
    assert not (folder / "control").exists()
    assert any(folder.glob("checkpoint-*/replica.safetensors"))
    assert dupt_peer("status", "--health", *where).returncode == 1
