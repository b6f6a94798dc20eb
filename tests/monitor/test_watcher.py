import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dupt_swarm.errors import NodeError, UnreachableError
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.view import View
from dupt_swarm.replica.ledger import Ledger
from monitor import watcher as watcher_module
from monitor.watcher import FAILURES_BEFORE_NEW_NODE, LEDGER_SECONDS, LEDGER_SECONDS_MAX, Watcher
from tests.support.invented import MANIFEST, peer
from tests.support.waiting import wait_until

SWARM = View(1.0, (peer("a", role="bootstrap", time=1.0, swarm_tokens=5),))
NOBODY = View(1.0, ())


class FakeNode:
    """A node that answers what the test says; it counts how often it was closed."""

    def __init__(self, answer: Callable[[], View]) -> None:
        self.answer, self.closed = answer, 0

    def refresh(self) -> View:
        return self.answer()

    def ledger(self) -> Ledger:
        return Ledger(0, 3)

    def close(self) -> None:
        self.closed += 1


class FakeSwarm:
    """Hands out nodes, and remembers them and the swarm ids that were asked for."""

    def __init__(self) -> None:
        self.answer: Callable[[], View] = lambda: SWARM
        self.refuses = False
        self.nodes: list[FakeNode] = []
        self.asked: list[str] = []

    def connect(self, swarm_id: str) -> tuple[FakeNode, Manifest]:
        self.asked.append(swarm_id)
        if self.refuses:
            raise UnreachableError({"/ip4/127.0.0.1": "refused"})
        self.nodes.append(FakeNode(self.answer))
        return self.nodes[-1], MANIFEST


def fail() -> View:
    raise NodeError("the node process has ended")


def test_first_snapshot() -> None:
    """The records are read once before the constructor returns."""
    swarm = FakeSwarm()
    with Watcher(swarm.connect, "test-id") as watcher:
        assert swarm.asked == ["test-id"]
        assert watcher.snapshot.up
        assert watcher.snapshot.view == SWARM
        assert watcher.alive
    assert not watcher.alive
    assert swarm.nodes[0].closed == 1


def test_the_ledger_is_read_beside() -> None:
    """Thousands of rounds take a while, in which the records stay fresh; it is in the next snapshots."""
    swarm = FakeSwarm()
    with Watcher(swarm.connect, interval=0.01) as watcher:
        wait_until(lambda: watcher.snapshot.ledger is not None)
        assert watcher.snapshot.ledger == Ledger(0, 3)


def test_the_ledger_is_read_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at each refresh, nor twice at once, however long it takes: all links of a swarm are many."""
    begun, go_on = [], threading.Event()

    def read(_: FakeNode) -> Ledger:
        begun.append(1)
        go_on.wait(5)
        return Ledger(0, 3)

    monkeypatch.setattr(FakeNode, "ledger", read)
    swarm = FakeSwarm()
    with Watcher(swarm.connect, interval=60) as watcher:
        wait_until(lambda: begun)
        for _ in range(3):
            watcher.refresh()
        assert len(begun) == 1
        monkeypatch.setattr(watcher_module, "LEDGER_SECONDS", 0.01)
        go_on.set()
        wait_until(lambda: len(begun) > 2)
        swarm.nodes[0].answer = fail
        watcher.refresh()
        so_far = len(begun)
        time.sleep(0.2)
        assert len(begun) <= so_far + 1  # which had begun: an outage is not told twice


def test_a_ledger_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for ever less often, until it can be read again; what was known stays."""
    with Watcher(FakeSwarm().connect, interval=60) as watcher:
        wait_until(lambda: watcher._ledger)
        monkeypatch.setattr(FakeNode, "ledger", lambda _: fail())
        pauses = [LEDGER_SECONDS]
        for _ in range(9):
            pauses.append(watcher._read_ledger(pauses[-1]))
        assert pauses[1:3] == [2 * LEDGER_SECONDS, 4 * LEDGER_SECONDS]
        assert pauses[-1] == LEDGER_SECONDS_MAX
        assert watcher._ledger == Ledger(0, 3)
        monkeypatch.undo()
        assert watcher._read_ledger(pauses[-1]) == LEDGER_SECONDS


def test_unreachable_at_start() -> None:
    """No swarm at the start is the caller's error, not something to wait for."""
    swarm = FakeSwarm()
    swarm.refuses = True
    with pytest.raises(UnreachableError):
        Watcher(swarm.connect)


def test_interrupted_at_start() -> None:
    """No node is left behind by a program that is ended while it reads the first records."""
    swarm = FakeSwarm()

    def interrupt() -> View:
        raise KeyboardInterrupt

    swarm.answer = interrupt
    with pytest.raises(KeyboardInterrupt):
        Watcher(swarm.connect)
    assert swarm.nodes[0].closed == 1


def test_nobody_there() -> None:
    """A swarm that answers without a single peer is reached all the same: all have left."""
    swarm = FakeSwarm()
    with Watcher(swarm.connect, interval=60) as watcher:
        swarm.nodes[0].answer = lambda: NOBODY
        watcher.refresh()
        assert (watcher.snapshot.up, watcher.snapshot.refresh_errors) == (True, 0)
        assert watcher.snapshot.view == NOBODY
        assert watcher.snapshot.totals.tokens == 5


def test_failed_refresh(caplog: pytest.LogCaptureFixture) -> None:
    """A refresh that fails is counted, and the last view is kept; each outage is told once, and its end."""
    swarm = FakeSwarm()
    with Watcher(swarm.connect, interval=60) as watcher:
        swarm.nodes[0].answer = fail
        watcher.refresh()
        assert (watcher.snapshot.up, watcher.snapshot.refresh_errors) == (False, 1)
        assert watcher.snapshot.view == SWARM

        swarm.nodes[0].answer = lambda: SWARM
        watcher.refresh()
        assert (watcher.snapshot.up, watcher.snapshot.refresh_errors) == (True, 1)

        for answer in (lambda: SWARM, fail, fail):
            swarm.nodes[0].answer = answer
            watcher.refresh()
    assert [caplog.text.count(words) for words in ("cannot be read", "reachable again")] == [2, 1]


def test_new_node() -> None:
    """After several failures a new node takes over, in the same swarm only; the old one is closed."""
    swarm = FakeSwarm()
    with Watcher(swarm.connect, interval=0.001) as watcher:
        swarm.nodes[0].answer = fail
        wait_until(lambda: len(swarm.nodes) == 2 and watcher.snapshot.up)
        assert watcher.snapshot.refresh_errors == FAILURES_BEFORE_NEW_NODE
        assert swarm.asked == ["", MANIFEST.swarm_id]

        swarm.nodes[1].answer = fail  # the next outage is no longer than the first
        wait_until(lambda: len(swarm.nodes) == 3 and watcher.snapshot.up)
        assert watcher.snapshot.refresh_errors == 2 * FAILURES_BEFORE_NEW_NODE
    assert [node.closed for node in swarm.nodes] == [1, 1, 1]


def test_survives_long_outage() -> None:
    """As long as no new node finds the swarm the thread goes on trying, and then recovers."""
    swarm = FakeSwarm()
    with Watcher(swarm.connect, interval=0.001) as watcher:
        swarm.refuses, swarm.nodes[0].answer = True, fail
        wait_until(lambda: watcher.snapshot.refresh_errors > 10)
        assert watcher.alive
        assert not watcher.snapshot.up

        swarm.refuses = False
        wait_until(lambda: watcher.snapshot.up)
    assert [node.closed for node in swarm.nodes] == [1, 1]


def test_fewer_new_nodes_as_time_goes_by() -> None:
    """While the swarm stays away new nodes, which are processes, are started ever less often."""
    swarm = FakeSwarm()
    asked: list[int] = []  # times, when each refresh failed: whoever looks later sees more of them

    def fail_again() -> View:
        asked.append(len(swarm.asked))
        return fail()

    with Watcher(swarm.connect, interval=0.001) as watcher:
        swarm.refuses, swarm.nodes[0].answer = True, fail_again
        wait_until(lambda: watcher.snapshot.refresh_errors >= 60)
        assert 2 <= asked[59] <= 8


def test_counters_survive_a_restart(tmp_path: Path) -> None:
    """A new monitor goes on from the counters of the one before, even if the swarm has lost rounds."""
    swarm = FakeSwarm()
    swarm.answer = lambda: View(1.0, (peer("a", role="bootstrap", time=1.0, swarm_tokens=900),))
    with Watcher(swarm.connect, interval=60, state_dir=tmp_path / "monitor") as watcher:
        [file] = (tmp_path / "monitor").iterdir()
        written = file.stat().st_ino
        watcher.refresh()
        assert file.stat().st_ino == written, "what has not changed is not written again"
    swarm.answer = lambda: SWARM
    with Watcher(swarm.connect, interval=60, state_dir=tmp_path / "monitor") as watcher:
        assert watcher.snapshot.totals.tokens == 900
    assert [path.name for path in (tmp_path / "monitor").iterdir()] == [f"{MANIFEST.swarm_id}.json"]


def test_counters_that_cannot_be_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder that cannot be written is one warning until it can, and no reason to stop watching."""
    (tmp_path / "file").write_text("")
    swarm = FakeSwarm()
    with Watcher(swarm.connect, interval=60, state_dir=tmp_path / "file") as watcher:
        watcher.refresh()
        assert watcher.snapshot.up
        assert caplog.text.count("counters are not kept over a restart") == 1
        (tmp_path / "file").rename(tmp_path / "away")
        watcher.refresh()
        shutil.rmtree(tmp_path / "file")
        (tmp_path / "away").rename(tmp_path / "file")
        swarm.nodes[0].answer = lambda: View(1.0, (peer("a", role="bootstrap", time=1.0, swarm_tokens=9),))
        watcher.refresh()
    assert caplog.text.count("counters are not kept over a restart") == 2


def test_close_while_connecting() -> None:
    """A node that comes when the watcher is closed already is closed too."""
    swarm, connecting, go_on = FakeSwarm(), threading.Event(), threading.Event()

    def slow_connect(swarm_id: str) -> tuple[FakeNode, Manifest]:
        if swarm.nodes:
            connecting.set()
            go_on.wait(5)
        return swarm.connect(swarm_id)

    watcher = Watcher(slow_connect, interval=0.001)
    swarm.nodes[0].answer = fail
    assert connecting.wait(5)
    watcher.close()
    go_on.set()
    wait_until(lambda: not watcher.alive)
    assert [node.closed for node in swarm.nodes] == [1, 1]
