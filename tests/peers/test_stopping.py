"""SIGTERM ends an oracle soon, whatever it is doing: what systemd and Docker kill after a while is lost.

So does the end of its terminal.
"""

import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dupt_swarm import GPT, CollaborativeOptimizer, Swarm
from dupt_swarm.checkpoint import FINAL_MARK, ORACLE_FILE
from dupt_swarm.learning.tokenizer import Tokenizer, train_tokenizer
from peers.control.client import ask
from tests.support.programs import LISTEN, start, wait_for_line
from tests.support.tiny import settings, tiny_manifest

# Ten are promised; the rest is for a machine that runs other tests beside this one.
STOP_SECONDS = 10 + 10
PHASE_SECONDS = 120.0
SLOW = {"context_length": 512, "layers": 6, "width": 384, "heads": 6, "hidden_width": 1536}

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough for a long evaluation: modules of the standard library."""
    folder = tmp_path_factory.mktemp("text")
    for path in sorted(Path(os.__file__).parent.glob("[a-r]*.py")):
        (folder / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def tokenizer(text: Path) -> Tokenizer:
    """A small one."""
    return train_tokenizer([path.read_text() for path in sorted(text.iterdir())[:20]], 1000)


@pytest.fixture(scope="module")
def slow_swarm(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """The first peer of a swarm in which an inner step takes minutes."""
    manifest = tiny_manifest(
        tokenizer.sha256,
        tokenizer.vocabulary_size,
        model=SLOW,
        rounds={"tokens_per_step": 1 << 18, "tokens_per_round": 1 << 20, "max_round_seconds": 3600},
    )
    folder = tmp_path_factory.mktemp("first")
    parameters = GPT(manifest.model).parameters()
    with Swarm.create(manifest, tokenizer.to_bytes(), parameters, folder, settings("bootstrap")) as first:
        yield first


class Joining:
    """A running ``dupt-peer join``."""

    def __init__(
        self, swarm: Swarm, state_dir: Path, corpus: Path, *options: str, stderr: int = subprocess.PIPE
    ) -> None:
        self.folder = state_dir / swarm.manifest.swarm_id
        self._process = start(
            *("join", "--initial-peers", swarm.addresses[0], "--corpus", str(corpus), *LISTEN),
            *("--state-dir", str(state_dir), *options),
            stderr=stderr,
        )

    def wait_for_line(self, text: str) -> None:
        """Until it has said so."""
        wait_for_line(self._process, text)

    def wait(self, condition: Callable[[], object]) -> None:
        """Until it holds."""
        deadline = time.monotonic() + PHASE_SECONDS
        while not condition():
            assert self._process.poll() is None, self._process.communicate()
            assert time.monotonic() < deadline, self.about()
            time.sleep(0.02)

    def about(self) -> dict[str, Any]:
        """What it says of itself through its control socket; nothing while there is none."""
        try:
            return ask(self.folder, "status")
        except OSError:
            return {"state": "", "activity": ""}

    def wait_for_activity(self, activity: str) -> None:
        """Until it does this."""
        self.wait(lambda: self.about()["activity"].startswith(activity))

    def order(self, command: str) -> None:
        """Pause it or have it go on."""
        assert ask(self.folder, command)["ok"]

    def terminate(self, *signals: signal.Signals) -> tuple[int, float]:
        """Its exit code after these signals, and how many seconds it took."""
        began = time.monotonic()
        for number in signals:
            self._process.send_signal(number)
        try:
            self._process.communicate(timeout=120)
        finally:
            self._process.kill()
        return self._process.returncode, time.monotonic() - began

    def assert_it_ends_soon(self, *signals: signal.Signals, checkpoint: bool = True) -> None:
        """Cleanly, and with a checkpoint that the same command goes on from; after SIGTERM, or others."""
        code, seconds = self.terminate(*signals or (signal.SIGTERM,))
        assert code == 0
        assert seconds < STOP_SECONDS
        if checkpoint:
            newest = max(self.folder.glob("checkpoint-*"))
            assert {FINAL_MARK, ORACLE_FILE} < {path.name for path in newest.iterdir()}


def test_while_it_downloads_the_state(slow_swarm: Swarm, text: Path, tmp_path: Path) -> None:
    """Nothing is there to save yet."""
    oracle = Joining(slow_swarm, tmp_path, text, "--max-download", "1MB")
    oracle.wait_for_line("fetching the state")
    oracle.assert_it_ends_soon(checkpoint=False)


def test_while_it_tokenises(slow_swarm: Swarm, tmp_path: Path) -> None:
    """The corpus is tokenised anew the next time."""
    words = (hashlib.sha256(str(number).encode()).hexdigest() for number in range(500_000))
    (tmp_path / "words.txt").write_text(" ".join(words))
    oracle = Joining(slow_swarm, tmp_path, tmp_path / "words.txt")
    oracle.wait_for_activity("preparing")
    oracle.assert_it_ends_soon(checkpoint=False)
    assert not list((oracle.folder / "tokens").glob("*.building"))


def test_while_it_evaluates(slow_swarm: Swarm, text: Path, tmp_path: Path) -> None:
    """The evaluation is given up."""
    oracle = Joining(slow_swarm, tmp_path, text)
    oracle.wait_for_activity("evaluating")
    oracle.assert_it_ends_soon()


def test_while_it_steps(slow_swarm: Swarm, text: Path, tmp_path: Path) -> None:
    """The inner step is dropped; a pause in the evaluation before is obeyed as soon."""
    oracle = Joining(slow_swarm, tmp_path, text)
    oracle.wait_for_activity("evaluating")
    oracle.order("pause")
    oracle.wait_for_activity("paused")
    oracle.order("resume")
    oracle.wait_for_activity("stepping")
    oracle.assert_it_ends_soon()


def test_when_its_terminal_is_closed(
    slow_swarm: Swarm, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has to say then goes nowhere; the system and the shell tell it to end."""
    ours, terminal = os.openpty()
    monkeypatch.setenv("TERM", "dumb")  # some lines, which have room in it unread, and no panel
    oracle = Joining(slow_swarm, tmp_path, text, stderr=terminal)
    os.close(terminal)
    oracle.wait_for_activity("evaluating")
    os.close(ours)
    oracle.order("pause")
    oracle.wait_for_activity("paused")
    oracle.assert_it_ends_soon(signal.SIGHUP, signal.SIGHUP)


def test_while_it_saves(slow_swarm: Swarm, text: Path, tmp_path: Path) -> None:
    """The checkpoint being written becomes the last one."""
    oracle = Joining(slow_swarm, tmp_path, text)
    oracle.wait_for_activity("evaluating")
    oracle.order("pause")

    def saves() -> bool:
        if oracle.about()["activity"].startswith("paused"):  # it was too fast to be seen: once more
            oracle.order("resume")
            oracle.wait_for_activity("stepping")
            oracle.order("pause")
        for _ in range(200):
            if any((oracle.folder / ".checkpoint").glob("*.safetensors")):
                return True
            time.sleep(0.001)
        return False

    oracle.wait(saves)
    oracle.assert_it_ends_soon()


def test_while_it_averages(tokenizer: Tokenizer, text: Path, tmp_path: Path) -> None:
    """The round, in which it waits for another oracle, is given up; its contribution is saved."""
    manifest = tiny_manifest(
        tokenizer.sha256,
        tokenizer.vocabulary_size,
        rounds={"max_round_seconds": 3, "matchmaking_seconds": 60},
    )
    model = GPT(manifest.model)
    with (
        Swarm.create(
            manifest, tokenizer.to_bytes(), model.parameters(), tmp_path / "first", settings("bootstrap")
        ) as first,
        Swarm.join(first.addresses, tmp_path / "absent", settings(name="absent")) as absent,
    ):
        CollaborativeOptimizer(model.parameters(), absent)  # as one that trains, and comes to no round
        oracle = Joining(first, tmp_path / "oracle", text)
        oracle.wait(lambda: oracle.about()["state"] == "averaging")
        oracle.assert_it_ends_soon()
