"""A swarm of real processes to be maltreated, and what its peers report meanwhile."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from dupt_swarm.manifest import Manifest
from dupt_swarm.node.reasons import Failure
from tests.support.loopback import free_port
from tests.support.tiny import tiny_manifest
from tests.support.waiting import wait_until
from tests.support.warm import Program

HERE = Path(__file__).parent
TOKENIZER = b"not used by these tests"


MANIFEST = tiny_manifest(
    hashlib.sha256(TOKENIZER).hexdigest(),
    rounds={
        "tokens_per_round": 64 * 5,
        "max_round_seconds": 30,
        "matchmaking_seconds": 4,
        "chunk_seconds": 3,
        "allreduce_seconds": 12,
    },
    # It is the rounds that are maltreated, and Muon takes more of the processor.
    inner={"optimizer": "adamw"},
    limits={"record_seconds": 6},
)


class PeerProcess:
    """One peer: its process, and the events that it printed."""

    def __init__(self, folder: Path, role: str, listen: str, initial_peers: tuple[str, ...]) -> None:
        self.folder, self.role, self.listen, self.initial_peers = folder, role, listen, initial_peers
        self.manifest = MANIFEST
        self.environment: dict[str, str] = {}
        self.wrap: Callable[[list[str]], list[str]] = lambda command: command
        self.start_program: type[subprocess.Popen[bytes]] = Program
        self._lives = 0
        self.popen: subprocess.Popen[bytes] | None = None

    def start(self, stage: str = "") -> None:
        """Start it, or start it again; ``stage``: where in a round it shall die."""
        self._lives += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        manifest = self.folder / "manifest"
        manifest.write_bytes(self.manifest.canonical_bytes())
        program = [sys.executable, str(HERE / "peer_program.py"), self.role, str(manifest)]
        path = os.pathsep.join([str(HERE / "hooks"), *filter(None, [os.environ.get("PYTHONPATH")])])
        with self._output.open("wb") as output, self._errors.open("ab") as errors:
            self.popen = self.start_program(
                self.wrap([*program, str(self.folder / "state"), self.listen, *self.initial_peers]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=os.environ | self.environment | {"PYTHONPATH": path, "DUPT_CHAOS_STAGE": stage},
            )

    @property
    def _output(self) -> Path:
        return self.folder / f"events-{self._lives}.jsonl"

    @property
    def _errors(self) -> Path:
        return self.folder / "stderr"

    @property
    def errors(self) -> str:
        """What it said on stderr in all its lives."""
        return self._errors.read_text()

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of this kind in its present life."""
        lines = self._output.read_text().split("\n")[:-1]  # the last one may not be whole yet
        return [json.loads(line) for line in lines if f'"event": "{kind}"' in line]

    def joined(self) -> dict[str, Any]:
        """Wait until it has joined."""
        wait_until(lambda: bool(self.events("joined")) or not self.alive, f"{self.folder.name} joins")
        assert self.events("joined"), f"{self.folder.name} ended: {self.errors[-2000:]}"
        return self.events("joined")[0]

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.popen is not None and self.popen.poll() is None

    @property
    def made(self) -> int:
        """Tokens that it has trained on in all its lives."""
        total = 0
        for path in self.folder.glob("events-*.jsonl"):
            steps = [line for line in path.read_text().split("\n")[:-1] if '"event": "step"' in line]
            total += json.loads(steps[-1])["made"] if steps else 0
        return total

    @property
    def nodes(self) -> list[psutil.Process]:
        """Its node process; none while that is being replaced."""
        assert self.popen is not None
        return psutil.Process(self.popen.pid).children()

    @property
    def node(self) -> psutil.Process:
        """Its node process."""
        [node] = self.nodes
        return node

    @property
    def daemon(self) -> psutil.Process:
        """Its p2pd."""
        [daemon] = self.node.children()
        return daemon

    def signal(self, number: int) -> None:
        """Send a signal to the trainer, the node and the daemon."""
        assert self.popen is not None
        trainer = psutil.Process(self.popen.pid)
        for process in (trainer, *trainer.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def kill(self) -> None:
        """Kill -9 of the program alone: what it started must end by itself."""
        assert self.popen is not None
        self.popen.kill()
        self.popen.wait()


class ChaosSwarm:
    """A first peer and three steady oracles. Use it in a ``with`` statement."""

    def __init__(self, folder: Path, temporary: Path, manifest: Manifest = MANIFEST) -> None:
        """``folder`` is for what the peers keep and print, ``temporary`` is their /tmp."""
        self.folder, self._temporary, self._manifest = folder, temporary, manifest
        self.peers: list[PeerProcess] = []

    def __enter__(self) -> ChaosSwarm:
        port = free_port()
        # A fixed port, so that it can be found again after its death.
        self.first = self._new("first", "bootstrap", f"/ip4/127.0.0.1/tcp/{port}", ())
        self.first.start()
        self.address = self.first.joined()["address"]
        self.steady = [self.oracle(f"steady-{number}") for number in range(3)]
        for peer in self.steady:
            peer.start()
        for peer in self.steady:
            peer.joined()
        self.expect_rounds(2)
        return self

    def __exit__(self, *_: object) -> None:
        end(self.peers)

    def oracle(self, name: str) -> PeerProcess:
        """A further oracle, not started yet."""
        return self._new(name, "oracle", "/ip4/127.0.0.1/tcp/0", (self.address,))

    def join(self, name: str, stage: str = "") -> PeerProcess:
        """A further oracle, which has joined; ``stage`` as of `PeerProcess.start`."""
        peer = self.oracle(name)
        peer.start(stage)
        peer.joined()
        return peer

    def _new(self, name: str, role: str, listen: str, initial_peers: tuple[str, ...]) -> PeerProcess:
        peer = PeerProcess(self.folder / name, role, listen, initial_peers)
        peer.manifest = self._manifest
        peer.environment["TMPDIR"] = str(self._temporary)
        peer.environment["TORCHINDUCTOR_CACHE_DIR"] = str(self.folder / "compiled")
        self.peers.append(peer)
        return peer

    @property
    def round(self) -> int:
        """The newest round that any steady oracle has reached."""
        return max((event["round"] for peer in self.steady for event in peer.events("state")), default=0)

    def expect_rounds(self, count: int, peers: list[PeerProcess] | None = None) -> None:
        """Wait until all of ``peers`` (the steady ones) are ``count`` rounds further, and agree on the last.

        Raises:
            AssertionError: they did not get there in time, or hold different states.
        """
        goal, peers = self.round + count, peers or self.steady

        def agreed() -> bool:
            states: dict[int, set[str]] = defaultdict(set)
            holders: dict[int, int] = defaultdict(int)
            for peer in peers:
                for event in peer.events("state"):
                    states[event["round"]].add(event["digest"])
                    holders[event["round"]] += 1
            late = [number for number in states if number >= goal and holders[number] == len(peers)]
            return any(len(states[number]) == 1 for number in late)

        wait_until(agreed, f"all at round {goal} or later with one digest")

    @property
    def failures(self) -> list[str]:
        """Why rounds failed for the steady oracles, without those that they did not try, being behind."""
        ended = [event["failed"] for peer in self.steady for event in peer.events("round")]
        return [reason for reason in ended if reason not in (None, Failure.STALE, Failure.BEHIND)]

    def assert_tokens_count_once(self) -> None:
        """No token is in the swarm's state twice, and none of a steady oracle's contributions is lost."""
        newest = max(
            (event for peer in self.steady for event in peer.events("state")),
            key=lambda event: event["tokens"],
        )
        made = sum(peer.made for peer in self.peers)
        assert newest["tokens"] <= made


@contextmanager
def first_peer(folder: Path, **environment: str) -> Iterator[PeerProcess]:
    """A swarm's first peer, alone: program, node and daemon are processes of their own."""
    peer = PeerProcess(folder, "bootstrap", "/ip4/127.0.0.1/tcp/0", ())
    peer.environment |= environment
    peer.start()
    try:
        peer.joined()
        yield peer
    finally:
        end([peer])


def end(peers: Sequence[PeerProcess]) -> None:
    """End those that run in an orderly way, the suspended ones too, and by force what takes long."""
    running = [peer for peer in peers if peer.alive]
    for peer in running:
        peer.signal(signal.SIGCONT)
        assert peer.popen is not None
        peer.popen.terminate()
    for peer in running:
        assert peer.popen is not None
        try:
            peer.popen.wait(30)
        except subprocess.TimeoutExpired:
            peer.signal(signal.SIGKILL)
            peer.popen.wait()
