"""Peers behind routers that nobody can call, as people run them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dupt_swarm import SavedModel
from tests.support import swarm_program
from tests.support.namespaces import Host, Net
from tests.support.programs import BIN
from tests.support.smaller import make_smaller
from tests.support.texts import library

PROGRAM = Path(swarm_program.__file__)
ROUNDS = 20  # so many that `status` sees them, on a slow machine too
SECONDS = 150
Rounds = dict[int, dict[str, Any]]
Statuses = dict[str, dict[str, Any]]

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("nothing_left")]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of real text: modules of the standard library."""
    return library(tmp_path_factory.mktemp("text") / "text", "argparse", "inspect")


@pytest.fixture(scope="module")
def manifest(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with short rounds."""
    return new(tmp_path_factory.mktemp("run"), text)


def new(folder: Path, text: Path, *options: str) -> Path:
    """What ``dupt-peer new`` writes, with a smaller model and shorter rounds."""
    path = folder / "run.toml"
    _dupt_peer("new", str(path), "--preset", "tiny", "--corpus", str(text), "--seed", "3", *options)
    make_smaller(path)
    return path


def _dupt_peer(*arguments: str) -> str:
    command = [str(BIN / "dupt-peer"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


class Programs:
    """Processes on the hosts of a network, with a log file for each.

    Attributes:
        environment: of those that are started from now on, beside this process's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self.environment = folder, dict[str, str]()
        self._running: list[subprocess.Popen[str]] = []

    def bootstrap(self, host: Host, manifest: Path, *options: str) -> str:
        """Start ``dupt-peer bootstrap`` on ``host``; the address to join it with."""
        command = [str(BIN / "dupt-peer"), "bootstrap", str(manifest), "--json", "--name", "first", *options]
        process = self._start(host, "first", [*command, "--state-dir", str(self._folder / "first")])
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, self.log("first")
        return str(json.loads(line)["addresses"][0])

    def oracle(self, host: Host, address: str, seed: int, oracles: int) -> subprocess.Popen[str]:
        """Start an oracle on ``host``: it prints a line after each of `ROUNDS` rounds."""
        state, listen = str(self._folder / str(seed)), ["/ip4/0.0.0.0/tcp/0", "/ip4/0.0.0.0/udp/0/quic-v1"]
        program = [
            sys.executable,
            str(PROGRAM),
            address,
            state,
            str(seed),
            str(ROUNDS),
            str(oracles),
            *listen,
        ]
        return self._start(host, str(seed), program)

    def rounds(self, oracle: subprocess.Popen[str], seed: int) -> Rounds:
        """What the oracle said of each round, by round; when it has ended well."""
        output, _ = oracle.communicate(timeout=SECONDS)
        assert oracle.returncode == 0, self.log(str(seed))
        return {line["round"]: line for line in map(json.loads, output.splitlines())}

    def status(self, host: Host, address: str) -> dict[str, dict[str, Any]]:
        """The peers by name, as ``dupt-peer status`` on ``host`` sees them."""
        argv = [str(BIN / "dupt-peer"), "status", "--initial-peers", address, "--json"]
        environment = os.environ | self.environment
        done = subprocess.run(host.command(argv), capture_output=True, text=True, timeout=60, env=environment)
        assert done.returncode == 0, done.stderr
        return {peer["name"]: peer for peer in json.loads(done.stdout)["peers"]}

    def log(self, name: str) -> str:
        """What the peer ``name`` said so far."""
        return (self._folder / f"{name}.log").read_text()

    def close(self) -> None:
        """Stop them all, and wait for their nodes too: the network may not go before they have left it."""
        started = [psutil.Process(process.pid) for process in self._running if process.poll() is None]
        nodes = [node for process in started for node in process.children(recursive=True)]
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.communicate(timeout=30)
        psutil.wait_procs(nodes, timeout=30)

    def _start(self, host: Host, name: str, argv: list[str]) -> subprocess.Popen[str]:
        with (self._folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                host.command(argv),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | self.environment,
            )
        self._running.append(process)
        return process


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """No programs yet."""
    programs = Programs(tmp_path)
    yield programs
    programs.close()


def together(programs: Programs, manifest: Path, server: Host, homes: list[Host]) -> Statuses:
    """Train with an oracle at each of ``homes``; all agree after each round, and nobody was left out.

    Returns:
        what `dupt-peer status` says of each while they train.
    """
    address = programs.bootstrap(server, manifest)
    oracles = {
        seed: programs.oracle(home, address, seed, len(homes)) for seed, home in enumerate(homes, start=1)
    }
    statuses: Statuses = {}
    deadline = time.monotonic() + SECONDS
    while len(statuses) <= len(homes) and all(oracle.poll() is None for oracle in oracles.values()):
        assert time.monotonic() < deadline, [programs.log(str(seed)) for seed in oracles]
        statuses = programs.status(server, address)
    told = [programs.rounds(oracle, seed) for seed, oracle in oracles.items()]
    for rounds in told:
        assert len(rounds) >= ROUNDS - 1
        assert [line["mates"] for line in rounds.values()] == [len(homes) - 1] * len(rounds)
    for number in set.intersection(*map(set, told)):
        assert len({rounds[number]["digest"] for rounds in told}) == 1
    return statuses


def test_two_oracles_behind_two_routers(net: Net, programs: Programs, manifest: Path) -> None:
    """Two peers that nobody can call average with each other over the first peer, and stay equal."""
    expect_relayed(net, programs, manifest)


def test_invited_oracles_behind_two_routers(net: Net, programs: Programs, text: Path, tmp_path: Path) -> None:
    """The same where the swarm admits by invitation: credentials go over relays too."""
    manifest = new(tmp_path, text, "--admission", "invite")
    token = json.loads(_dupt_peer("invite", str(manifest), "--json"))["token"]
    programs.environment = {f"DUPT_PEER_{command}_INVITATION": token for command in ("JOIN", "STATUS")}
    expect_relayed(net, programs, manifest)


def expect_relayed(net: Net, programs: Programs, manifest: Path) -> None:
    """Train at two homes whose routers let nobody in."""
    homes = [net.nat(f"router{number}").host(f"home{number}") for number in (1, 2)]
    statuses = together(programs, manifest, net.host("server"), homes)
    assert {name: peer["reach"] for name, peer in statuses.items()} == {
        "first": "direct",
        "1": "relayed",
        "2": "relayed",
    }
    assert all("/p2p-circuit" in statuses[name]["addresses"][0] for name in "12")


def test_pulling_behind_a_router(net: Net, programs: Programs, manifest: Path, tmp_path: Path) -> None:
    """Who takes the model away needs no relay, and nobody hears of it; donors may be behind routers too."""
    server, donor, home = net.host("server"), *(net.nat(f"router{n}").host(f"home{n}") for n in (1, 2))
    address = programs.bootstrap(server, manifest)
    programs.oracle(donor, address, seed=1, oracles=9)  # it waits for others
    deadline = time.monotonic() + SECONDS
    while programs.status(server, address).get("1", {}).get("reach") != "relayed":
        assert time.monotonic() < deadline, programs.log("1")
    argv = [str(BIN / "dupt-model"), "pull", "--initial-peers", address, str(tmp_path / "model"), "--json"]
    done = subprocess.run(home.command(argv), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    statuses = programs.status(server, address)
    assert set(statuses) == {"first", "1"}
    assert {status["state_digest"] for status in statuses.values()} == {
        json.loads(done.stdout)["state_digest"]
    }
    assert SavedModel.load(tmp_path / "model").origin is not None
