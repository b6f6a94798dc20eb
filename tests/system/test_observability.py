"""A real swarm, its monitor and a real Prometheus: what dashboards and rules ask for is there."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from click.testing import CliRunner

import monitor
from monitor.dashboards import DASHBOARDS
from monitor.dashboards.peer import PEER
from peers import new
from peers.cli import COMMANDS, main
from peers.local import LocalProcesses

RULES = Path(monitor.__file__).parent / "prometheus" / "rules.yml"
LISTEN = ("--host-maddrs", "/ip4/127.0.0.1/tcp/0")
ORACLES = ("one", "two", "three")
RECORD_SECONDS = 15  # of the test's manifest: how long a silent peer counts as there
SCRAPE_SECONDS = 1
PATIENCE_SECONDS = 240
ROUNDS = 3
# Panels that have no data in a swarm of healthy oracles on processors, and why.
MAY_BE_EMPTY = {
    "Rejected": "no contribution and no record was rejected",
    "GPU": "no GPU here",
    "Downloads of the state": "nobody missed a round",
    "Time paused": "nobody was paused",
    "Failures": "restarts have a series for each reason that occurred",
    "Averagings that failed": "none did",
    "Averagings by outcome": "none failed",
    "Age of the checkpoint": "oracles save every five minutes",
}
WITHOUT_EVALUATOR = {
    "Bits per byte",
    "Bits per byte against tokens",
    "Rounds behind",
    "Age of the measurement",
}

pytestmark = pytest.mark.system


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """What ``condition`` returns as soon as that is true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: did not happen in time"
        time.sleep(0.5)
    return found


def kill(pid: int) -> None:
    """End a program and all of its processes at once, so that it cannot even say farewell."""
    program = psutil.Process(pid)
    family = [*program.children(recursive=True), program]
    for process in family:
        process.suspend()
    for process in family:
        process.kill()
    psutil.wait_procs(family, timeout=10)


def offered(command: str, option: str) -> bool:
    """Whether this version of `dupt-peer` knows the option."""
    return option in CliRunner().invoke(main, [command, "--help"]).output


class Prometheus:
    """A running Prometheus server and its API."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.url = folder, f"http://127.0.0.1:{port}"

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
        except OSError:
            return []  # not up yet
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        data = self.ask("query", query=expr)
        return data["result"] if data else []

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
        reason = "prometheus is not installed (Debian package prometheus)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
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
        yield Prometheus(folder, port)
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
        """A first peer, three oracles with a text each, and an evaluator if there are such."""
        text = write_text(self.folder / "text")
        manifest = new.write(
            self.folder / "run.toml", "tiny", str(text), field="text", name="watched", seed=1
        )
        shrink(self.folder / "run.toml", manifest.tokenizer.sha256)
        first = self.processes.start(
            *("bootstrap", "dupt-peer", "bootstrap", str(self.folder / "run.toml"), "--json", *LISTEN),
            *("--state-dir", str(self.folder / "bootstrap")),
        )
        about = json.loads(self.processes.first_line(first))
        self.swarm_id, self.address = about["swarm_id"], about["addresses"][0]
        for name in ORACLES:
            extra: list[str] = []
            if offered("join", "--metrics-addr"):
                self.peer_targets.append(f"127.0.0.1:{free_port()}")
                extra = ["--metrics-addr", self.peer_targets[-1]]
            self.start_peer(name, "join", "--corpus", str(text), "--name", name, *extra)
        if "evaluate" in COMMANDS:
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
        self.processes.first_line(process)
        return process

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as response:
            return str(response.read().decode())

    def substitute(self, expr: str) -> str:
        """With the dashboard's variables in place, as Grafana would send it."""
        instance = self.peer_targets[0] if self.peer_targets else "none"
        values = {"run": self.swarm_id, "instance": instance, "__rate_interval": "30s"}
        return re.sub(r"\$(\w+)", lambda match: values[match[1]], expr)


def write_text(folder: Path) -> Path:
    """Modules of the standard library."""
    folder.mkdir()
    for module in ("argparse", "inspect", "typing", "tarfile"):
        shutil.copy(Path(os.__file__).with_name(f"{module}.py"), folder)
    return folder


def shrink(path: Path, tokenizer: str) -> None:
    """A smaller model, shorter rounds, and records that expire sooner than the preset's."""
    text = path.read_text()
    for key, value in (
        *(("layers", 1), ("width", 64), ("hidden_width", 128), ("tokens_per_round", 8192)),
        ("record_seconds", f"{RECORD_SECONDS}.0"),
    ):
        text, count = re.subn(rf"^{key} = \S+", f"{key} = {value}", text, flags=re.MULTILINE)
        assert count == 1, key
    path.write_text(text)
    assert tokenizer in text


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Everything, after some rounds; nothing of it is left afterwards."""
    folder = tmp_path_factory.mktemp("observed")
    before = set(psutil.Process().children(recursive=True))
    with LocalProcesses(folder / "logs") as processes:
        whole = Stack(folder, processes)
        whole.start_peers()
        whole.start_monitor()
        with prometheus(folder / "prometheus", whole.port, whole.peer_targets) as whole.prometheus:
            wait_until(
                lambda: (
                    whole.prometheus.value("dupt_swarm_round") >= ROUNDS
                    and whole.prometheus.value("run_instance:dupt_swarm_oracles_working:sum") == len(ORACLES)
                    and len(whole.prometheus.samples("dupt_swarm_tokens_total")) > 5
                ),
                f"{ROUNDS} rounds of {len(ORACLES)} oracles",
            )
            yield whole
    _, left = psutil.wait_procs(set(psutil.Process().children(recursive=True)) - before, timeout=20)
    assert not left


def queries() -> list[Any]:
    """Each panel's queries, as test parameters."""
    return [
        pytest.param(board, row, panel, id=f"{board.title}-{panel.title}")
        for board in DASHBOARDS
        for row in board.rows
        for panel in row.panels
    ]


@pytest.mark.parametrize(("board", "row", "panel"), queries())
def test_every_query_of_every_dashboard(stack: Stack, board: Any, row: Any, panel: Any) -> None:
    """Prometheus answers each query, and panels that should have data have it."""
    found = [
        wait_for_data(stack, query.expr)
        if needs_data(stack, board, row, panel)
        else stack.prometheus.query(stack.substitute(query.expr))
        for query in panel.queries
    ]
    assert not needs_data(stack, board, row, panel) or all(found)


def wait_for_data(stack: Stack, expr: str) -> list[dict[str, Any]]:
    return wait_until(lambda: stack.prometheus.query(stack.substitute(expr)), expr)


def needs_data(stack: Stack, board: Any, row: Any, panel: Any) -> bool:
    """Whether all queries of this panel should have an answer."""
    if board is PEER and not stack.peer_targets:
        return False
    if panel.title in WITHOUT_EVALUATOR and board is not PEER and "evaluate" not in COMMANDS:
        return False
    allowed = MAY_BE_EMPTY.keys() & {panel.title, row.title}
    return not allowed or (panel.title == "Age of the checkpoint" and board is not PEER)


def test_every_choice_of_every_dashboard(stack: Stack) -> None:
    """The variables offer the swarm that is there, and the peers that are scraped."""
    for board in DASHBOARDS:
        choice = board.choice
        path = f"label/{choice.label}/values"
        offers = stack.prometheus.ask(path, **{"match[]": choice.spec.name})
        expected = stack.peer_targets if board is PEER else [stack.swarm_id]
        assert sorted(offers) == sorted(expected)


def test_every_rule(stack: Stack) -> None:
    """Prometheus evaluates each rule without error, the recorded ones have values, and no alert fires."""
    groups = stack.prometheus.ask("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == sum(len(group["rules"]) for group in yaml.safe_load(RULES.read_text())["groups"])
    for rule in rules:
        assert (rule["health"], rule.get("lastError")) == ("ok", None), rule["name"]
        if rule["type"] == "recording":
            assert stack.prometheus.query(rule["query"]), rule["name"]
            assert stack.prometheus.query(rule["name"]), rule["name"]
        else:
            stack.prometheus.query(rule["query"])
            assert rule["state"] != "firing", rule["name"]


def test_promtool_accepts_what_is_served(stack: Stack) -> None:
    """`promtool check metrics` has no complaint about the metrics of a real swarm."""
    promtool = shutil.which("promtool")
    assert promtool is not None, "it comes with Debian's prometheus"
    done = subprocess.run(
        [promtool, "check", "metrics"], input=stack.metrics(), capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_figures_are_the_swarms(stack: Stack) -> None:
    """What Prometheus holds fits what the swarm is: three oracles that average together and learn."""
    ask = stack.prometheus.value
    assert ask('sum(dupt_swarm_peers{role="bootstrap"})') == 1
    assert wait_until(lambda: ask("dupt_swarm_group_size_max") == len(ORACLES), "a group of all")
    assert ask("dupt_swarm_averaging_rounds_total") > ask("sum(dupt_swarm_averaging_rounds_failed_total)")
    assert ask("dupt_swarm_tokens_total") > ROUNDS * 8192
    assert 0 < ask("dupt_swarm_loss_min_nats") <= ask("dupt_swarm_loss_max_nats") < 20
    assert ask("dupt_swarm_averaging_duration_seconds") > 0
    assert ask("count(dupt_swarm_peer_tokens_total)") == len(ORACLES)
    named = stack.prometheus.query("group by (name) (dupt_swarm_peer_info)")
    assert {series["metric"].get("name", "") for series in named} >= set(ORACLES)


def test_a_killed_oracles_series_vanish(stack: Stack) -> None:
    """They end with its last record's lifetime, and Prometheus has forgotten them two scrapes later."""
    [info] = stack.prometheus.query('dupt_swarm_peer_info{name="three"}')
    selector = f'dupt_swarm_peer_last_seen_timestamp_seconds{{peer_id="{info["metric"]["peer_id"]}"}}'
    kill(stack.processes.pid("three"))
    wait_until(lambda: not stack.prometheus.query(selector), "the series' end")

    ended, last_record = stack.prometheus.samples(selector)[-1]
    assert ended - last_record < RECORD_SECONDS
    for series in ("peer_last_seen_timestamp_seconds", "peer_tokens_total", "peer_loss_nats", "peer_info"):
        moment = str(ended + 2 * SCRAPE_SECONDS)
        expr = f'dupt_swarm_{series}{{peer_id="{info["metric"]["peer_id"]}"}}'
        assert stack.prometheus.ask("query", query=expr, time=moment)["result"] == [], series
    wait_until(
        lambda: stack.prometheus.value("run_instance:dupt_swarm_oracles_working:sum") == len(ORACLES) - 1,
        "two oracles left",
    )


def test_tokens_survive_the_monitor(stack: Stack) -> None:
    """The monitor is killed and started again: the counter of tokens never falls, and goes on rising."""
    ask = stack.prometheus.value
    kill(stack.processes.pid("monitor"))
    wait_until(lambda: stack.prometheus.query('up{job="dupt-monitor"} == 0'), "Prometheus misses it")
    before = stack.prometheus.samples("dupt_swarm_tokens_total")

    stack.start_monitor()
    wait_until(lambda: ask("dupt_swarm_tokens_total") > before[-1][1], "the counter goes on")
    after = stack.prometheus.samples("dupt_swarm_tokens_total")
    values = [value for _, value in after]
    assert values == sorted(values)
    assert ask("resets(dupt_swarm_tokens_total[30m])") == 0
    assert ask("resets(dupt_swarm_averaging_rounds_total[30m])") == 0


def test_an_unreachable_swarm_is_noticed(stack: Stack) -> None:
    """When all peers are gone at once the monitor says that it is alone, and an alert is on its way."""
    for name in stack.processes.running():
        if name != "monitor":
            kill(stack.processes.pid(name))
    wait_until(lambda: stack.prometheus.query("dupt_monitor_up == 0"), "`up` turns 0")

    def states() -> set[str]:
        groups = stack.prometheus.ask("rules", type="alert")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return {rule["state"] for rule in rules if rule["name"] == "DuptMonitorStale"}

    wait_until(lambda: states() <= {"pending", "firing"}, "an alert")
