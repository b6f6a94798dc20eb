import shutil
import subprocess
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

import monitor
from dupt_swarm.node.record import EvaluationRecord, PeerRecord, TaskResult
from dupt_swarm.node.view import Peer, View
from dupt_swarm.presets import manifest_from_preset
from dupt_swarm.replica.ledger import Entry, Ledger
from monitor.collector import METRICS, SwarmCollector
from monitor.dashboards.query import Query
from monitor.dashboards.swarm import SWARM
from monitor.server import build_app
from monitor.tally import Tally
from monitor.watcher import Snapshot
from tests.support.costs import cost_fields
from tests.support.invented import serving
from tests.support.lacking import skip

NOW = 1_000_000.0
PROMETHEUS = Path(monitor.__file__).parent / "prometheus"

pytestmark = pytest.mark.system


def full_snapshot() -> Snapshot:
    """A swarm in which every metric has a value, and a name that needs escaping."""
    manifest = manifest_from_preset(
        "tiny", name="test", seed=1, tokenizer_sha256="0" * 64, vocabulary_size=512
    )
    record = PeerRecord(
        role="oracle",
        state="training",
        time=NOW,
        round=3,
        state_digest="a" * 64,
        swarm_tokens=900,
        loss=4.0,
        heldout_loss=4.5,
        heldout_bits_per_byte=2.5,
        heldout_accuracy=0.5,
        heldout_nsp_accuracy=0.5,
        group_size=3,
        round_seconds=60.0,
        averaging_seconds=2.5,
        checkpoint_round=2,
        exposed=("QmLiar",),
        name='"\\\n',
        **cost_fields(),
    )
    evaluation = EvaluationRecord(
        dataset="wiki", bits_per_byte=1.5, loss_nats=3.0, accuracy=0.5, round=3, time=NOW
    )
    tasks = (TaskResult(task="arc", metric="acc", value=0.25, round=3),)
    evaluator = record.model_copy(update={"role": "evaluator", "evaluation": evaluation, "tasks": tasks})
    view = View(NOW, (Peer("a", record), Peer("e", evaluator)))
    seen = Snapshot(manifest, View(NOW, ())).succeeded(view, Tally(), 0.5)
    return replace(seen, ledger=Ledger(0, 3, (Entry("a", 900, 3, 0, 1, 3),)))


def served_metrics(snapshot: Snapshot) -> str:
    """What a scrape over HTTP gets."""
    registry = CollectorRegistry()
    registry.register(SwarmCollector(lambda: snapshot, 50, lambda: NOW))
    with (
        serving(build_app(registry, lambda: True)) as server,
        urllib.request.urlopen(f"{server.url}/metrics", timeout=5) as response,
    ):
        return str(response.read().decode())


@pytest.fixture(scope="module")
def promtool() -> str:
    """The path of Prometheus' tool; without it the tests are skipped, but not in CI."""
    path = shutil.which("promtool")
    if path is None:
        skip("promtool is not installed (Debian package prometheus)")
    return path


def run(*command: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)


def test_promtool_has_no_complaint(promtool: str) -> None:
    """Prometheus' own linter accepts every metric that the monitor serves."""
    text = served_metrics(full_snapshot())
    assert all(f"# TYPE {spec.name} " in text for spec in METRICS)

    done = run(promtool, "check", "metrics", text=text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_configuration_is_valid(promtool: str) -> None:
    """Prometheus accepts the configuration with the rules and the lists of targets that it names."""
    done = run(promtool, "check", "config", str(PROMETHEUS / "prometheus.yml"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr


@pytest.mark.parametrize("path", sorted((PROMETHEUS / "tests").glob("*.yml")), ids=lambda path: path.stem)
def test_rules_do_what_they_say(promtool: str, path: Path) -> None:
    """Each alert fires when it should and not when it should not."""
    done = run(promtool, "test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def queries(kind: str, title: str) -> tuple[Query, ...]:
    """Of a panel of the dashboard `swarm`."""
    [panel] = [panel for panel in SWARM.panels if (panel.kind, panel.title) == (kind, title)]
    return panel.queries


def check_values(
    promtool: str, folder: Path, query: Query, series: dict[str, str], *values: float, at: str = "60m"
) -> None:
    """Prometheus finds these ``values`` of swarm `s` in ``series``, which has a sample each minute."""
    counts = [{"labels": f'{{value="{value:g}"}}', "value": values.count(value)} for value in set(values)]
    # Whatever the labels are: a single number is shown without.
    expr = f'count_values("value", {query.expr.replace("$run", "s")})'
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": told} for name, told in series.items()],
        "promql_expr_test": [{"expr": expr, "eval_time": at, "exp_samples": counts}],
    }
    path = folder / "query.yml"
    path.write_text(yaml.safe_dump({"tests": [test]}))
    done = run(promtool, "test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_number_of_bits_per_byte(promtool: str, tmp_path: Path) -> None:
    """The panel shows the evaluators' figure alone if there is one, and else the oracles'."""
    [query] = queries("stat", "Bits per byte")
    oracles = {'dupt_swarm_heldout_bpb{run="s", instance="m"}': "2x60"}
    evaluators = {
        'dupt_swarm_eval_bpb{run="s", instance="m", dataset="wiki"}': "3x60",
        'dupt_swarm_eval_bpb{run="s", instance="m", dataset="news"}': "4x60",
    }
    check_values(promtool, tmp_path, query, oracles, 2)
    check_values(promtool, tmp_path, query, oracles | evaluators, 3)


@pytest.mark.parametrize("kind", ["stat", "timeseries"])
def test_tokens_per_second_of_long_rounds(promtool: str, tmp_path: Path, kind: str) -> None:
    """Whenever one looks at rounds of an hour it is their mean, and nothing once the monitor is gone."""
    [query] = queries(kind, "Tokens per second")
    hours = " ".join(f"{hour * 3_600_000}x59" for hour in range(6))
    tokens = {'dupt_swarm_tokens_total{run="s", instance="m"}': hours}
    for at in ("200m", "235m", "290m"):
        check_values(promtool, tmp_path, query, tokens, 1000, at=at)
    check_values(promtool, tmp_path, query, tokens, at="370m")


@pytest.mark.parametrize("monitors", ["m", "mn"])
@pytest.mark.parametrize(
    ("kind", "title", "place", "values"),
    [
        ("stat", "Peers", 0, [6]),
        ("stat", "Failed averagings", 0, [0.75]),
        ("timeseries", "Averagings by outcome", 0, [15]),
        ("timeseries", "Averagings by outcome", 1, [30, 15]),
        ("timeseries", "Group sizes", 2, [4]),
        ("timeseries", "Oracles by state", 0, [3, 1]),
        ("timeseries", "Other peers", 0, [2]),
        ("timeseries", "Versions", 0, [5, 1]),
        ("timeseries", "Rejected", 0, [15]),
        ("timeseries", "Rejected", 1, [30]),
        ("timeseries", "Rejected", 2, [45]),
        ("table", "Peers", 1, [30, 10]),
        ("table", "Peers", 2, [0.75, 0.25]),
        ("table", "Peers", 3, [4, 5]),
        ("table", "Peers", 4, [7, 6]),
        ("table", "Peers", 5, [2, 3]),
        ("table", "Peers", 6, [1000, 2000]),
        ("table", "Peers", 7, [100, 200]),
        ("table", "Peers", 8, [300, 400]),
        ("table", "Peers", 9, [0.5, 0.25]),
    ],
)
def test_a_second_monitor_adds_nothing(
    promtool: str, tmp_path: Path, monitors: str, kind: str, title: str, place: int, values: list[float]
) -> None:
    """Two monitors of one swarm tell the same, and the dashboard shows it once: no figure is doubled."""
    one = {
        'peers{role="oracle", state="training", ': "3x60",
        'peers{role="oracle", state="averaging", ': "1x60",
        'peers{role="bootstrap", state="training", ': "2x60",
        "averaging_rounds_total{": "0+4x60",
        'averaging_rounds_failed_total{reason="timeout", ': "0+2x60",
        'averaging_rounds_failed_total{reason="network", ': "0+1x60",
        'peer_versions{version="1", ': "5x60",
        'peer_versions{version="2", ': "1x60",
        'rejected_contributions_total{reason="norm", ': "0+1x60",
        'refused_messages_total{reason="size", ': "0+2x60",
        'invalid_records_total{reason="time", ': "0+3x60",
    }
    for name, (a, b) in {
        "tokens_total": (30, 10),
        "loss_nats": (4, 5),
        "round": (7, 6),
        "failed_rounds_total": (2, 3),
        "last_seen_timestamp_seconds": (1, 2),
        "round_transmit_bytes": (100, 200),
        "round_receive_bytes": (300, 400),
        "round_waiting_seconds": (0.5, 0.25),
    }.items():
        one |= {f'peer_{name}{{peer_id="a", ': f"{a}x60", f'peer_{name}{{peer_id="b", ': f"{b}x60"}
    series = {
        f'dupt_swarm_{start}run="s", job="dupt-monitor", instance="{instance}"}}': told
        for instance in monitors
        for start, told in one.items()
    }
    check_values(promtool, tmp_path, queries(kind, title)[place], series, *values)
