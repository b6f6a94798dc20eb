"""A real swarm, its monitor and a real Prometheus: what dashboards and rules ask for is there."""

import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from monitor.dashboards import DASHBOARDS
from monitor.dashboards.learning import TASK
from monitor.dashboards.peer import GPU, PEER
from peers.processes import LocalProcesses
from tests.support.leftovers import nothing_new, sockets_folder
from tests.support.prometheus import (
    ORACLES,
    RECORD_SECONDS,
    RULES,
    SCRAPE_SECONDS,
    Prometheus,
    Stack,
    kill,
    prometheus,
    wait_until,
)

ROUNDS = 3
# Panels that have no data in a swarm of healthy oracles without GPUs, and why.
MAY_BE_EMPTY = {
    ("Swarm", "Averagings by outcome"): "no averaging failed",
    ("Swarm", "Rejected"): "no contribution and no record was rejected",
    ("Swarm", "Left out for good"): "nobody has contradicted itself",
    ("Learning", "Tasks"): "its evaluator has none; tests/system/test_lm_eval.py has one that has",
    ("Peer", "Failed averagings"): "none did",
    ("Peer", "Refused"): "nobody sent what a healthy peer would not",
    ("Peer", "State downloads"): "nobody missed a round",
    ("Peer", "Checkpoint age"): "oracles save every five minutes",
    ("Peer", "Accuracy"): "it learns language, not a task",
    **{("Learning", panel.title): "likewise" for panel in TASK.panels},
    **{("Peer", panel.title): "no GPU" for panel in GPU.panels},
}

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Everything, after some rounds; nothing of it is left afterwards."""
    folder = tmp_path_factory.mktemp("observed")
    with nothing_new(), sockets_folder() as sockets, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(sockets))
        with LocalProcesses(folder / "logs") as processes:
            whole = Stack(folder, processes)
            whole.start_peers()
            whole.start_monitor()
            with prometheus(folder / "prometheus", whole.port, whole.peer_targets) as whole.prometheus:
                wait_until(partial(settled, whole.prometheus), f"{ROUNDS} rounds of {len(ORACLES)} oracles")
                yield whole


def settled(prometheus: Prometheus) -> bool:
    """Whether Prometheus has seen some rounds of all oracles, and several samples."""
    return (
        prometheus.value("dupt_swarm_round") >= ROUNDS
        and prometheus.value("run_instance:dupt_swarm_oracles_working:sum") == len(ORACLES)
        and prometheus.value("count_over_time(dupt_swarm_tokens_total[10m])") > 5
    )


PANELS = [
    pytest.param(board, panel, id=f"{board.title}-{panel.title}")
    for board in DASHBOARDS
    for panel in board.panels
]


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_every_query_of_every_dashboard(stack: Stack, board: Any, panel: Any) -> None:
    """Prometheus answers each query, and panels that should have data have it."""
    for query in panel.queries:
        expr = stack.substitute(query.expr)
        if (board.title, panel.title) in MAY_BE_EMPTY:
            stack.prometheus.query(expr)
        else:
            assert wait_until(partial(stack.prometheus.query, expr), expr)


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
            for expr in (rule["query"], rule["name"]):  # after a scrape that took too long there are none
                assert wait_until(partial(stack.prometheus.query, expr), expr)
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
    # The monitor counts from an oracle's second record on, which may be that of a later round.
    failed = "sum(dupt_swarm_averaging_rounds_failed_total)"
    assert wait_until(
        lambda: ask("dupt_swarm_averaging_rounds_total") > ask(failed), "rounds that are counted"
    )
    assert ask("dupt_swarm_tokens_total") >= ROUNDS * 8192
    assert 0 < ask("dupt_swarm_loss_min_nats") <= ask("dupt_swarm_loss_max_nats") < 20
    assert ask("dupt_swarm_averaging_duration_seconds") > 0
    assert ask("count(dupt_swarm_peer_tokens_total)") == len(ORACLES)
    named = stack.prometheus.query("group by (name) (dupt_swarm_peer_info)")
    assert {series["metric"].get("name", "") for series in named} >= set(ORACLES)


def test_a_killed_oracles_series_vanish(stack: Stack) -> None:
    """They end with its last record's lifetime, and Prometheus has forgotten them two scrapes later."""
    [info] = stack.prometheus.query('dupt_swarm_peer_info{name="three"}')
    selector = f'dupt_swarm_peer_last_seen_timestamp_seconds{{peer_id="{info["metric"]["peer_id"]}"}}'
    kill(stack.processes.started["three"].pid)
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
    kill(stack.processes.started["monitor"].pid)
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
    for name, process in stack.processes.started.items():
        if name != "monitor" and process.poll() is None:
            kill(process.pid)
    wait_until(lambda: stack.prometheus.query("dupt_monitor_up == 0"), "`up` turns 0")

    def states() -> set[str]:
        groups = stack.prometheus.ask("rules", type="alert")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return {rule["state"] for rule in rules if rule["name"] == "DuptMonitorStale"}

    wait_until(lambda: states() <= {"pending", "firing"}, "an alert")
