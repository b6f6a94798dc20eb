"""The swarm of `link.py`: its processes, and what they have done and used so far."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from _link_network import Counts, LinkedHosts

from dupt_swarm.manifest import Manifest
from tests.support.namespaces import Host

HERE = Path(__file__).parent
PEER, LAG_HOOK = HERE / "_link_peer.py", HERE / "_loop_lag"
KINDS = ("trainer", "node", "p2pd")  # of processes: each is the parent of the next
JOIN_SECONDS, SETTLE_SECONDS, END_SECONDS = 300.0, 5.0, 20.0
POLL_SECONDS, SAMPLE_SECONDS = 0.05, 0.25


class PeerProcess:
    """A process of `_link_peer`, and what it has told. Use it in a ``with`` statement."""

    def __init__(self, host: Host, folder: Path, **arguments: Any) -> None:
        self.name, self._folder = arguments["name"], folder
        self.told: list[dict[str, Any]] = []
        folder.mkdir()
        arguments |= {"folder": str(folder)}
        arguments["listen"] = [f"/ip4/{host.address}/{way}" for way in arguments["listen"]]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(LAG_HOOK), str(HERE.parent)]),
            "DUPT_LOOP_LAG": str(self._lags),
            "TMPDIR": str(folder),
        }
        with (folder / "stderr").open("w") as errors:
            self.process = subprocess.Popen(
                host.command([sys.executable, str(PEER), json.dumps(arguments)]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
                env=environment,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def _lags(self) -> Path:
        return self._folder / "lags"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.append(json.loads(line))

    def joined(self) -> list[str]:
        """Wait until it has joined; its addresses."""
        deadline = time.monotonic() + JOIN_SECONDS
        while not self.told:
            self.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.name} did not join within {JOIN_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        return list(self.told[0]["addresses"])

    def check(self) -> None:
        """Raise SystemExit if it has ended."""
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} ended: {(self._folder / 'stderr').read_text()[-2000:]}")

    def begin(self) -> None:
        """Let it take steps."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")

    @property
    def last(self) -> dict[str, Any]:
        """The last that it told of its state; nothing before the first round."""
        told = self.told[-1]
        return told if "round" in told else {"round": 0}

    def processor_seconds(self) -> dict[str, float]:
        """What its processes have computed so far, by kind."""
        found, process = {}, psutil.Process(self.process.pid)
        for kind in KINDS:
            times = process.cpu_times()
            found[kind] = times.user + times.system
            children = process.children()
            if not children:
                break
            process = children[0]
        return found

    def node_peak(self) -> int:
        """The most main memory that its node has had so far, bytes; shared memory counts."""
        [node, *_] = psutil.Process(self.process.pid).children()
        status = Path(f"/proc/{node.pid}/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])

    def lags(self, begin: float, end: float) -> list[tuple[float, float]]:
        """Of its node's event loop, each second: by how much it was late, and what it computed of that."""
        lines = [line.split() for line in self._lags.read_text().split("\n")[:-1]]
        return [(float(late), float(own)) for when, late, own in lines if begin < float(when) <= end]

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()


@dataclass(frozen=True)
class Snapshot:
    """What had happened at a moment.

    Attributes:
        time: on the monotonic clock.
        round: that all oracles had completed.
        last: what each oracle told last.
        counts: of each host's link.
        processor: seconds, by kind of process, of the oracles, and of the relay; and of everybody's.
    """

    time: float
    round: int
    last: list[dict[str, Any]]
    counts: dict[str, Counts]
    processor: Mapping[str, float]


class MachineLoad:
    """How busy this machine's cores are, with everything that runs on it. Use it in a ``with`` statement."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> MachineLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            times = psutil.cpu_times()
            idle = times.idle + times.iowait
            # Guests are counted in user time already.
            busy = sum(times) - idle - times.guest - times.guest_nice
            self._samples.append((time.monotonic(), busy))

    def cores(self, begin: float, end: float) -> float:
        """How many were busy between two moments, in the mean."""
        samples = list(self._samples)
        inside = [sample for sample in samples if begin - SAMPLE_SECONDS < sample[0] < end + SAMPLE_SECONDS]
        if len(inside) < 2:
            return 0.0
        (first, before), (last, after) = inside[0], inside[-1]
        return (after - before) / (last - first)


class LinkSwarm:
    """First peer, oracles and followers on hosts of their own. Use it in a ``with`` statement."""

    def __init__(self, net: LinkedHosts, manifest: Manifest, folder: Path, **more: Any) -> None:
        """One peer for each host of ``net``, whose name begins with its role; ``more`` is for all."""
        self.net, self.manifest = net, manifest
        self._more = more
        self.load = MachineLoad()
        self._folder, self._stack = folder, ExitStack()
        self.peers: dict[str, PeerProcess] = {}

    def __enter__(self) -> LinkSwarm:
        with ExitStack() as stack:
            stack.enter_context(self.load)
            first = [name for name in self.net.hosts if name.startswith("bootstrap")]
            for name in [*first, *(name for name in self.net.hosts if name not in first)]:
                self.peers[name] = stack.enter_context(self._start(name))
                if name in first:
                    self._address = self.peers[name].joined()[0]
            for peer in self.peers.values():
                peer.joined()
            time.sleep(SETTLE_SECONDS)  # all should know one another before the first step
            for peer in self.peers.values():
                peer.begin()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            for peer in self.peers.values():  # all at once, for each takes a while
                assert peer.process.stdin is not None
                with contextlib.suppress(OSError):
                    peer.process.stdin.close()

    def _start(self, name: str) -> PeerProcess:
        role = name.partition("-")[0]
        about: dict[str, Any] = {"role": role, "name": name, "seed": len(self.peers), **self._more}
        if role == "bootstrap":
            about["manifest"] = self.manifest.canonical_bytes().decode()
        else:
            about["initial_peers"] = [self._address]
        return PeerProcess(self.net.hosts[name], self._folder / name, **about)

    @property
    def oracles(self) -> list[PeerProcess]:
        """All of them."""
        return [peer for name, peer in self.peers.items() if name.startswith("oracle")]

    @property
    def followers(self) -> list[str]:
        """Names of those that only follow."""
        return [name for name in self.peers if not name.startswith("oracle")]

    @property
    def round(self) -> int:
        """That all oracles have completed."""
        return min(int(peer.last["round"]) for peer in self.oracles)

    def tokens(self, round: int) -> int:
        """Of the swarm's state of ``round``."""
        told = (each for peer in self.oracles for each in peer.told if each.get("round") == round)
        return next((int(each["tokens"]) for each in told), 0)

    def reach(self, round: int, seconds: float) -> None:
        """Wait until all oracles have completed ``round``."""
        deadline = time.monotonic() + seconds
        while self.round < round:
            for peer in self.peers.values():
                peer.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"round {round} was not reached within {seconds:.0f} s")
            time.sleep(POLL_SECONDS)

    def snapshot(self) -> Snapshot:
        """What has happened so far."""
        processor: defaultdict[str, float] = defaultdict(float)
        for name, peer in self.peers.items():
            for kind, seconds in peer.processor_seconds().items():
                processor["all"] += seconds
                if name.startswith("oracle"):
                    processor[kind] += seconds
        times = psutil.Process(self.net.relay.process.pid).cpu_times()
        processor["relay"] = times.user + times.system
        last = [peer.last for peer in self.oracles]
        return Snapshot(time.monotonic(), self.round, last, self.net.counts(), processor)

    def endings(self, before: Snapshot, after: Snapshot) -> Iterator[dict[str, Any]]:
        """How rounds ended for each oracle between two moments: a `RoundResult`, with its time."""
        for peer in self.oracles:
            for told in peer.told:
                if before.time < told["time"] <= after.time and told.get("ended"):
                    yield {"time": told["time"], "group": told["groups"], **told["ended"]}

    def check_digests(self) -> None:
        """All states of a round must be alike."""
        digests: dict[int, str] = {}
        for told in [each for peer in self.oracles for each in peer.told if "round" in each]:
            assert digests.setdefault(told["round"], told["digest"]) == told["digest"], told

    def longest_pauses(self, before: Snapshot, after: Snapshot) -> Sequence[float]:
        """Of each oracle's training, in each report between two moments."""
        told = [each for peer in self.oracles for each in peer.told if "round" in each]
        return [each["longest_pause"] for each in told if before.time < each["time"] <= after.time]
