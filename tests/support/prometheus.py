"""A swarm that is watched: real peers, the monitor and a real Prometheus, for system tests."""

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import yaml

import monitor
from dupt_swarm.learning.left_out import TextFiles
from peers import new
from peers.processes import LocalProcesses
from tests.support import waiting
from tests.support.lacking import skip
from tests.support.loopback import free_port
from tests.support.programs import LISTEN
from tests.support.smaller import make_smaller
from tests.support.texts import library

RULES = Path(monitor.__file__).parent / "prometheus" / "rules.yml"
ORACLES = ("one", "two", "three")
RECORD_SECONDS = 15  # of the test's manifest: how long a silent peer counts as there
SCRAPE_SECONDS = 1
wait_until = partial(waiting.wait_until, seconds=240, pause=0.5)


def kill(pid: int) -> None:
    """End a program and all of its processes at once, so that it cannot even say farewell."""
    program = psutil.Process(pid)
    family = [*program.children(recursive=True), program]
    for process in family:
        process.suspend()
    for process in family:
        process.kill()
    psutil.wait_procs(family, timeout=10)


class Prometheus:
    """A running Prometheus server and its API."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.url = folder, f"http://127.0.0.1:{port}"

    def ready(self) -> bool:
        """Whether it has started."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def ask(self, path: str, **parameters: str) -> Any:
        """The data that the API answers with.

        Raises:
            AssertionError: the API says that the request is wrong.
        """
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        return list(self.ask("query", query=expr)["result"])

    def value(self, expr: str) -> float:
        """Of the only series; 0 if there is none."""
        found = self.query(expr)
        return float(found[0]["value"][1]) if found else 0.0

    def samples(self, selector: str, window: str = "30m") -> list[tuple[float, float]]:
        """All samples of the only series, as time and value."""
        [series] = self.query(f"{selector}[{window}]")
        return [(float(moment), float(value)) for moment, value in series["values"]]


@contextmanager
def prometheus(folder: Path, monitor_port: int, peers: list[str]) -> Iterator[Prometheus]:
    """Prometheus with the repository's rules, scraping every second."""
    program = shutil.which("prometheus")
    if program is None:
        skip("prometheus is not installed (Debian package prometheus)")
    config = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": targets}]}
            for job, targets in (("dupt-monitor", [f"127.0.0.1:{monitor_port}"]), ("dupt-peer", peers))
        ],
    }
    folder.mkdir()
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        *(program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"),
        *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        server = Prometheus(folder, port)
        wait_until(server.ready, "Prometheus' start")
        yield server
    finally:
        process.terminate()
        process.wait(30)


class Stack:
    """The whole of it: processes by name, where the monitor is, and Prometheus."""

    def __init__(self, folder: Path, processes: LocalProcesses) -> None:
        self.folder, self.processes = folder, processes
        self.port = free_port()
        self.peer_targets: list[str] = []
        self.prometheus: Prometheus
        self.swarm_id = self.address = ""

    def start_peers(self) -> None:
        """A first peer, three oracles that serve their metrics, and an evaluator."""
        text = library(self.folder / "text", "argparse", "inspect", "typing", "tarfile")
        manifest = new.write(
            self.folder / "run.toml", "tiny", new.read_all([TextFiles(text)]), name="watched", seed=1
        )
        shrink(self.folder / "run.toml", manifest.tokenizer.sha256)
        self.processes.start(
            *("bootstrap", "dupt-peer", "bootstrap", str(self.folder / "run.toml"), "--json", *LISTEN),
            *("--state-dir", str(self.folder / "bootstrap")),
        )
        about = json.loads(self.processes.first_line("bootstrap"))
        self.swarm_id, self.address = about["swarm_id"], about["addresses"][0]
        for name in ORACLES:
            self.peer_targets.append(f"127.0.0.1:{free_port()}")
            served = ("--metrics-addr", self.peer_targets[-1])
            self.start_peer(name, "join", "--corpus", str(text), "--name", name, *served)
        self.start_peer("evaluator", "evaluate", "--corpus", str(text), "--name", "evaluator")

    def start_peer(self, name: str, command: str, *arguments: str) -> None:
        self.processes.start(
            *(name, "dupt-peer", command, "--initial-peers", self.address, *arguments, *LISTEN),
            *("--state-dir", str(self.folder / name)),
            OMP_NUM_THREADS="1",
        )

    def start_monitor(self) -> subprocess.Popen[str]:
        """The monitor, always on the same port and with the same state."""
        process = self.processes.start(
            *("monitor", "dupt-monitor", "--initial-peers", self.address, "--port", str(self.port)),
            *("--state-dir", str(self.folder / "monitor")),
        )
        self.processes.first_line("monitor")
        return process

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as response:
            return str(response.read().decode())

    def substitute(self, expr: str) -> str:
        """With the dashboard's variables in place, as Grafana would send it."""
        values = {"run": self.swarm_id, "instance": self.peer_targets[0], "__rate_interval": "30s"}
        return re.sub(r"\$(\w+)", lambda match: values[match[1]], expr)


def shrink(path: Path, tokenizer: str) -> None:
    """A smaller model, shorter rounds that do not grow, and records that expire sooner than the preset's."""
    make_smaller(path, growth=1.0, record_seconds=float(RECORD_SECONDS))
    assert tokenizer in path.read_text()
