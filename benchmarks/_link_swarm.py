"""The swarm of `link.py`: its processes, and what they have done and used so far."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from _child import Child
from _link_network import Counts, LinkedHosts
from _processes import Lag, cpu_seconds, lag_environment, lags_in, peak_bytes

from dupt_swarm.manifest import Manifest
from tests.support.namespaces import Host

PEER = Path(__file__).with_name("_link_peer.py")
KINDS = ("trainer", "node", "p2pd")  # of processes: each is the parent of the next
JOIN_SECONDS, SETTLE_SECONDS = 300.0, 5.0
POLL_SECONDS, SAMPLE_SECONDS = 0.05, 0.25


class PeerProcess(Child):
    """A process of `_link_peer`, and what it has told."""

    def __init__(self, host: Host, folder: Path, **arguments: Any) -> None:
        self.name, self._folder = arguments["name"], folder
        self.told: list[dict[str, Any]] = []
        folder.mkdir()
        arguments |= {"folder": str(folder)}
        arguments["listen"] = [f"/ip4/{host.address}/{way}" for way in arguments["listen"]]
        super().__init__(
            host.command([sys.executable, str(PEER), json.dumps(arguments)]),
            os.environ | lag_environment(self._lags) | {"TMPDIR": str(folder)},
            folder / "stderr",
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

    @property
    def last(self) -> dict[str, Any]:
        """The last that it told of its state; nothing before the first round."""
        told = self.told[-1]
        return told if "round" in told else {"round": 0}

    def processor_seconds(self) -> dict[str, float]:
        """What its processes have computed so far, by kind."""
        found, process = {}, psutil.Process(self.process.pid)
        for kind in KINDS:
            found[kind] = cpu_seconds([process])
            children = process.children()
            if not children:
                break
            process = children[0]
        return found

    def node_peak(self) -> int:
        """See `peak_bytes`."""
        [node, *_] = psutil.Process(self.process.pid).children()
        return peak_bytes(node.pid)

    def lags(self, begin: float, end: float) -> list[Lag]:
        """Those of its node's event loop between two moments."""
        return [each for each in lags_in(self._lags) if begin < each.time <= end]

    def __exit__(self, *_: object) -> None:
        super().__exit__()
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
                peer.tell()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            for peer in self.peers.values():  # all at once, for each takes a while
                peer.end()

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
        processor["relay"] = cpu_seconds([psutil.Process(self.net.relay.process.pid)])
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
